// Plots of what the server has measured, over a time range that the reader chooses.

import { element, setText } from "./api.js";
import { DECIMAL, POWERS_OF_2, WHOLE } from "./axes.js";
import { askSamples } from "./history.js";
import { Plot } from "./plot.js";
import { Poll } from "./polling.js";
import { attempt } from "./sources.js";
import { bytes, percent, short } from "./words.js";

const PAUSE_MS = 5000;
const RANGES = [[300, "5 min"], [900, "15 min"], [3600, "1 h"]];
const line = (name, label, colour = "accent") => ({ name, label, colour });

const RATE = {
  title: "Requests per second", format: short, steps: DECIMAL,
  lines: [line("requests_per_s", "answered"), line("failures_per_s", "failed", "bad")],
};
const MEMORY = { title: "Memory", format: bytes, steps: POWERS_OF_2, lines: [line("memory_bytes", "in use")] };
const OF_SERVER = [
  RATE,
  { title: "Requests in the queue", format: short, steps: WHOLE, lines: [line("pending", "waiting")] },
  { title: "CPU, 100 % is one core", format: percent, steps: DECIMAL, lines: [line("cpu_percent", "in use")] },
  MEMORY,
];
const OF_MODEL = [
  RATE,
  {
    title: "Latency in milliseconds", format: short, steps: DECIMAL,
    lines: [line("latency_p50_ms", "p50"), line("latency_p99_ms", "p99", "busy"), line("queue_ms", "queue", "muted")],
  },
  {
    title: "Requests in the queue", format: short, steps: WHOLE,
    lines: [line("pending", "waiting")],
  },
  { title: "Mean batch size", format: short, steps: DECIMAL, lines: [line("batch", "requests")] },
  MEMORY,
  { title: "Instances", format: short, steps: WHOLE, lines: [line("instances", "running")] },
  { title: "Tokens per second", format: short, steps: DECIMAL, lines: [line("tokens_per_s", "made")], isForSome: true },
];
/** A plot has some 250 points beside each other: a longer range needs to be asked for less often. */
const POINTS = 240;

export class Plots {
  #subject = null;
  #seconds = RANGES[0][0];
  #plots = [];
  #poll;
  /** Figures of a model that are known without requests, by the names of their columns. */
  present = {};

  /** `say` gets the refusal where nothing may be shown, or nothing. */
  constructor(section, say) {
    this.grid = section.querySelector(".plots");
    this.note = section.querySelector(".hint");
    this.say = say;
    const ranges = section.querySelector(".ranges");
    for (const [seconds, label] of RANGES) {
      const radio = element("input", { type: "radio", name: "range", value: seconds, checked: seconds === this.#seconds });
      radio.addEventListener("change", () => this.#choose(seconds));
      ranges.append(element("label", {}, radio, element("span", {}, label)));
    }
    this.#poll = new Poll(PAUSE_MS, (signal) => this.#look(signal));
    this.#poll.run();
  }

  /** Show another model, or the server for null. */
  show(subject) {
    this.#subject = subject;
    for (const plot of this.#plots) plot.remove();
    this.#plots = (subject ? OF_MODEL : OF_SERVER).map((about) =>
      new Plot(about, this.grid, (age) => this.#point(age)));
    this.hurry();
  }

  hurry() {
    this.#poll.hurry();
  }

  #point(age) {
    for (const plot of this.#plots) plot.choose(age);
  }

  #choose(seconds) {
    this.#seconds = seconds;
    this.#poll.pauseMs = Math.max(PAUSE_MS, (1000 * seconds) / POINTS);
    this.hurry();
  }

  /** Columns of a model that had no requests: its figures of now are those of the last sample. */
  #presentColumns(times) {
    const last = times.length - 1;
    return Object.fromEntries(Object.entries(this.present).map(([name, figure]) =>
      [name, times.map((_, at) => at === last ? figure : null)]));
  }

  async #look(signal) {
    const [plots, seconds] = [this.#plots, this.#seconds];
    if (!plots.length) return;
    const { value, refused } =
      await attempt(askSamples(this.#subject, seconds, signal)).catch(() => ({}));
    if (plots !== this.#plots) return;
    this.say(refused);
    if (!value) return;
    setText(this.note, noteOf(value));
    const drawn = Object.keys(value.columns).length ? value : { ...value, columns: this.#presentColumns(value.times) };
    for (const plot of plots) plot.draw(drawn, seconds);
  }
}

const noteOf = ({ columns }) =>
  (Object.keys(columns).length ? "" : "It had no requests in this time: its memory and instances are those of now.");
