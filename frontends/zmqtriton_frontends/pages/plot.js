// One plot with its axes, drawn by uPlot, a global of the script that front.html loads before.

import { element, setText } from "./api.js";
import { NOTHING, timeOfDay } from "./words.js";

const HEIGHT = 150;
const AXIS_WIDTH = 62;
/** Steps of an axis of bytes: 1, 2, 4, … */
const POWERS_OF_2 = [...Array(50).keys()].map((power) => 2 ** power);
/** Steps of an axis of things that are counted: 1, 2, 5, 10, … */
const WHOLE = [...Array(10).keys()].flatMap((power) => [1, 2, 5].map((step) => step * 10 ** power));
const dark = matchMedia("(prefers-color-scheme: dark)");
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** Samples without neighbours, which no line would show. */
function alone(chart, series) {
  const values = chart.data[series];
  return [...values.keys()].filter((at) =>
    values[at] !== null && (values[at - 1] ?? null) === null && (values[at + 1] ?? null) === null);
}

/** A figure whose caption has the values under the pointer, or the last ones. */
export class Plot {
  #about;
  #values;
  #chart = null;
  #seconds = 0;

  constructor(about, parent) {
    this.#about = about;
    this.#values = about.lines.map(() => element("output", {}, NOTHING));
    const keys = about.lines.map(({ label, colour: name }, at) =>
      element("span", { class: "key", "data-colour": name }, `${label} `, this.#values[at]));
    this.canvas = element("div", { class: "canvas", role: "img" });
    this.figure = element("figure", {},
      element("figcaption", {}, element("h4", {}, about.title), ...keys), this.canvas);
    parent.append(this.figure);
    this.observer = new ResizeObserver(() => this.#chart?.setSize(this.#size));
    this.observer.observe(this.canvas);
    this.redraw = () => this.#chart?.redraw(false, true);
    dark.addEventListener("change", this.redraw);
  }

  remove() {
    dark.removeEventListener("change", this.redraw);
    this.observer.disconnect();
    this.#chart?.destroy();
    this.figure.remove();
  }

  draw({ times, columns }, seconds) {
    this.#seconds = seconds;
    const data = [times, ...this.#about.lines.map(({ name }) => columns[name] ?? times.map(() => null))];
    if (this.#chart) this.#chart.setData(data);
    else this.#chart = new window.uPlot(this.#options(), data, this.canvas);
    this.#tell(null);
    const said = this.#about.lines.map(({ label }, at) => `${label} ${this.#values[at].textContent}`);
    this.canvas.setAttribute("aria-label", `${this.#about.title}, now: ${said.join(", ")}`);
    this.#tell(this.#chart.cursor.idx ?? null);
  }

  /** The values of one sample; the last ones for null. */
  #tell(at) {
    this.#about.lines.forEach((_, index) => {
      const values = this.#chart?.data[index + 1] ?? [];
      const value = at === null ? values.at(-1) : values[at];
      setText(this.#values[index], this.#about.format(value));
    });
  }

  get #size() {
    return { width: Math.max(this.canvas.clientWidth, 100), height: HEIGHT };
  }

  #options() {
    const { lines, format, isBinary, isWhole } = this.#about;
    const axis = {
      stroke: () => colour("muted"),
      font: "11px system-ui, sans-serif",
      grid: { stroke: () => colour("edge"), width: 1 },
      ticks: { stroke: () => colour("edge"), width: 1, size: 4 },
    };
    return {
      ...this.#size,
      legend: { show: false },
      cursor: { sync: { key: "time" }, drag: { x: false, y: false }, y: false },
      scales: {
        x: { range: (chart) => this.#timeRange(chart.data[0].at(-1)) },
        y: { range: (_, lowest, highest) => [0, highest > 0 ? highest * 1.1 : 1] },
      },
      axes: [
        { ...axis, size: 28, space: 36, values: (_, times) => times.map((time) => timeOfDay(time, false)) },
        {
          ...axis, size: AXIS_WIDTH, space: 32, incrs: isBinary ? POWERS_OF_2 : isWhole ? WHOLE : undefined,
          values: (_, values) => values.map(format),
        },
      ],
      series: [{}, ...lines.map(({ colour: name }) => ({
        stroke: () => colour(name), width: 1.5, points: { size: 4, fill: () => colour(name), filter: alone },
      }))],
      hooks: { setCursor: [(chart) => this.#tell(chart.cursor.idx ?? null)] },
    };
  }

  /** All of the range, also while the server is younger: axes that stay are easier to read. */
  #timeRange(last = Date.now() / 1000) {
    return [last - this.#seconds, last];
  }
}
