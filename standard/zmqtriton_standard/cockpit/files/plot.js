// One plot: a caption with values, and a drawing in which the pointer or the arrow keys choose a time.

import { element, setText } from "./api.js";
import { nearest } from "./axes.js";
import { Drawing } from "./drawing.js";
import { NOTHING, timeOfDay } from "./words.js";

/** Samples that a key moves the chosen time by, to the right. */
const MOVES = {
  ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1,
  PageDown: -12, PageUp: 12, Home: -Infinity, End: Infinity,
};

/** A figure whose caption has the values at the chosen time, or the last ones. */
export class Plot {
  #about;
  #values;
  #drawing;
  #onChoice;
  #times = [];
  #columns = [];
  #seconds = 0;
  #width = 0;
  /** The chosen time, in seconds before the last sample, so that new ones move past it; or null. */
  #age = null;

  /** `onChoice` gets the age of the chosen time: all plots show the same. */
  constructor(about, parent, onChoice) {
    this.#about = about;
    this.#onChoice = onChoice;
    this.#drawing = new Drawing(about);
    // A screen reader hears them from the slider, and not at each new sample.
    this.#values = about.lines.map(() => element("output", { "aria-live": "off" }, NOTHING));
    const keys = about.lines.map(({ label, colour }, at) =>
      element("span", { class: "key", "data-colour": colour }, `${label} `, this.#values[at]));
    this.plot = element("div", {
      class: "plot", role: "slider", tabindex: 0, "aria-label": about.title, "aria-valuemax": 0, "aria-valuenow": 0,
    }, ...this.#drawing.elements);
    this.figure = element("figure", {},
      element("figcaption", {}, element("h4", {}, about.title), ...keys), this.plot);
    this.#listen();
    parent.append(this.figure);
  }

  remove() {
    this.observer.disconnect();
    this.figure.remove();
  }

  draw({ times, columns }, seconds) {
    const since = times.findIndex((time) => time >= times.at(-1) - seconds);
    this.#times = times.slice(since);
    this.#columns = this.#about.lines.map(({ name }) => (columns[name] ?? []).slice(since));
    this.#seconds = seconds;
    // What only some models have is not shown of the others.
    this.figure.hidden = this.#about.isForSome === true && !this.#columns.flat().some((value) => value !== null);
    this.plot.setAttribute("aria-valuemin", -seconds);
    if (this.#age > seconds) this.#age = null;
    this.#redraw();
  }

  /** Show the values of another time; the last ones for null. */
  choose(age) {
    this.#age = age;
    if (this.#width && this.#seconds) this.#showChoice();
  }

  /** Without layout there is no drawing, and without samples neither. */
  #redraw() {
    if (!this.#width || !this.#seconds) return;
    // All of the range, also while the server is younger: axes that stay are easier to read.
    this.#drawing.draw(this.#times, this.#columns, this.#last - this.#seconds, this.#last, this.#width);
    this.#showChoice();
  }

  #showChoice() {
    const at = this.#at;
    const values = this.#columns.map((column) => column[at]);
    const texts = values.map(this.#about.format);
    texts.forEach((text, index) => setText(this.#values[index], text));
    const time = this.#age === null ? null : this.#last - this.#age;
    this.#drawing.point(time, this.#times[at], values);
    const read = this.#about.lines.map(({ label }, index) => `${label} ${texts[index]}`).join(", ");
    this.plot.setAttribute("aria-valuenow", -Math.round(this.#age ?? 0));
    this.plot.setAttribute("aria-valuetext", `${time === null ? "now" : timeOfDay(this.#times[at])}: ${read}`);
  }

  get #last() {
    return this.#times.at(-1) ?? Date.now() / 1000;
  }

  /** The index of the sample at the chosen time, or of the last one. */
  get #at() {
    return this.#age === null ? this.#times.length - 1 : nearest(this.#times, this.#last - this.#age);
  }

  #listen() {
    this.observer = new ResizeObserver(([{ contentRect }]) => {
      this.#width = contentRect.width;
      this.#redraw();
    });
    this.observer.observe(this.plot);
    this.plot.addEventListener("mousemove", ({ offsetX }) => {
      const time = this.#times.length ? this.#drawing.timeAt(offsetX) : null;
      this.#onChoice(time === null ? null : this.#last - time);
    });
    for (const end of ["mouseleave", "blur"]) this.plot.addEventListener(end, () => this.#onChoice(null));
    this.plot.addEventListener("keydown", (event) => this.#onKey(event));
  }

  #onKey(event) {
    if (event.key === "Escape") this.#onChoice(null);
    const move = MOVES[event.key];
    if (!move || !this.#times.length || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const at = Math.min(Math.max(this.#at + move, 0), this.#times.length - 1);
    this.#onChoice(this.#last - this.#times[at]);
  }
}
