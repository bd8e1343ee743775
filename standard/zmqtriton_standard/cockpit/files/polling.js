// Jobs that are done again and again: never twice at once, and not while nobody sees the page.

/** A job that takes long is done less often: it may take one part in so many of the time. */
const SHARE = 10;
const LATE_MS = 15000;

export class Poll {
  #job;
  #wake = () => {};
  #isNeeded = false;

  /** `job` gets a signal that ends when the answer comes too late. */
  constructor(pauseMs, job) {
    this.pauseMs = pauseMs;
    this.#job = job;
    document.addEventListener("visibilitychange", () => this.#wake());
  }

  /** Do it at once, and from then on; one that is under way is done once more. */
  hurry() {
    this.#isNeeded = true;
    this.#wake();
  }

  async run() {
    for (;;) {
      this.#isNeeded = false;
      const began = performance.now();
      try {
        await this.#job(AbortSignal.timeout(LATE_MS));
      } catch (error) {
        console.error(error); // the next answer may be one that can be shown
      }
      const pause = Math.max(this.pauseMs, SHARE * (performance.now() - began));
      await this.#sleep(Math.min(pause, LATE_MS));
      while (document.hidden && !this.#isNeeded) await this.#sleep();
    }
  }

  #sleep(ms) {
    if (this.#isNeeded) return Promise.resolve();
    return new Promise((resolve) => {
      this.#wake = resolve;
      if (ms !== undefined) setTimeout(resolve, ms);
    });
  }
}
