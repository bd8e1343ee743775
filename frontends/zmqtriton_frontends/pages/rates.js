// Rates and means of the last seconds, from counts that only grow. Knows nothing of the document.

/** Long enough that a slow model shows, short enough that a change does. */
const WINDOW_MS = 5000;

const COUNTS = {
  success: (s) => s.success.count,
  failed: (s) => s.fail.count,
  total: (s) => s.success.ns,
  queued: (s) => s.queue.count,
  queue: (s) => s.queue.ns,
  computed: (s) => s.compute_infer.count,
  compute: (s) => s.compute_infer.ns,
};

/** The samples of one model. */
export class Samples {
  #samples = [];

  add(at, statistics) {
    const sample = { at };
    for (const [name, read] of Object.entries(COUNTS)) sample[name] = read(statistics);
    const last = this.#samples.at(-1);
    // A model that was loaded anew counts from nothing.
    if (last && sample.success + sample.failed < last.success + last.failed) this.#samples = [];
    this.#samples.push(sample);
    while (this.#samples.length > 2 && at - this.#samples[1].at >= WINDOW_MS) this.#samples.shift();
  }

  get counts() {
    return this.#samples.at(-1);
  }

  /** What was added in the window, and the window's length in ms; null before a second sample. */
  get change() {
    if (this.#samples.length < 2) return null;
    const [first, last] = [this.#samples[0], this.#samples.at(-1)];
    return Object.fromEntries(Object.keys(last).map((name) => [name, last[name] - first[name]]));
  }
}

/** Rates of one change, or of many together. */
export function ratesOf(changes) {
  const sum = (name) => changes.reduce((total, change) => total + change[name], 0);
  const seconds = Math.max(0, ...changes.map((change) => change.at)) / 1000;
  if (!seconds) return null;
  return {
    rate: (sum("success") + sum("failed")) / seconds,
    failures: sum("failed") / seconds,
    // Time spent waiting per time that went by: how many were waiting, on average.
    waiting: sum("queue") / 1e9 / seconds,
    latency: mean(sum("total"), sum("success")),
    queue: mean(sum("queue"), sum("queued")),
    compute: mean(sum("compute"), sum("computed")),
  };
}

const mean = (ns, count) => (count ? ns / count / 1e6 : null);

/** As many digits as a glance takes in. */
export function short(number) {
  if (number === null || number === undefined) return "–";
  if (number >= 100) return Math.round(number).toLocaleString("en");
  return String(Number(number.toFixed(number >= 10 ? 1 : number >= 0.1 ? 2 : 3)));
}
