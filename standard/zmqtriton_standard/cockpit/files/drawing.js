// The drawing of a plot: axes, lines, and the place that is pointed at. It is SVG, so that all of its
// colours are those of the style sheet.

import { element, setText } from "./api.js";
import { marksOf, timeMarksOf } from "./axes.js";
import { trace } from "./trace.js";
import { timeOfDay } from "./words.js";

/** In cockpit.css, too. */
const HEIGHT = 150;
const LEFT = 62, RIGHT = 17, TOP = 10, BOTTOM = HEIGHT - 24;
const TICK = 4;
/** Pixels between two marks, at least. */
const SPACE_OF_TIMES = 40, SPACE_OF_VALUES = 26;
/** Free above the highest value. */
const HEADROOM = 1.1;

function shape(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Texts at places, in the elements that are there already. */
function label(axis, places) {
  while (axis.children.length > places.length) axis.lastChild.remove();
  while (axis.children.length < places.length) axis.append(shape("text"));
  places.forEach(({ x, y, text }, at) => {
    const target = axis.children[at];
    if (target.getAttribute("x") !== String(x)) target.setAttribute("x", x);
    if (target.getAttribute("y") !== String(y)) target.setAttribute("y", y);
    setText(target, text);
  });
}

/** Whole pixels, since others would have to be painted anew. */
const move = (target, x, y) => { target.style.transform = `translate(${Math.round(x)}px, ${Math.round(y)}px)`; };
/** Lines of one pixel are sharp between two. */
const sharp = (place) => Math.round(place) + 0.5;

export class Drawing {
  #steps;
  #format;
  #first;
  #last;
  #right;
  #highest;

  constructor({ lines, steps, format }) {
    this.#steps = steps;
    this.#format = format;
    const ofEachLine = (make, tag, name) =>
      lines.map(({ colour }) => make(tag, { class: name, "data-colour": colour }));
    this.grid = shape("path", { class: "grid" });
    this.timeAxis = shape("g", { class: "times" });
    this.valueAxis = shape("g", { class: "values" });
    this.curves = ofEachLine(shape, "path", "curve");
    this.dots = ofEachLine(shape, "path", "dots");
    // No SVG: elements of their own are moved without painting what lies below them.
    this.pointer = element("i", { class: "pointer", hidden: true });
    this.points = ofEachLine(element, "i", "point");
    const svg = shape("svg", { "aria-hidden": true }, this.grid, this.timeAxis, this.valueAxis,
      ...this.curves, ...this.dots);
    this.elements = [svg, this.pointer, ...this.points];
  }

  /** Draw columns of values from one time to another, in so many pixels. */
  draw(times, columns, first, last, width) {
    [this.#first, this.#last, this.#right] = [first, last, Math.max(width - RIGHT, LEFT + 1)];
    this.#highest = HEADROOM * columns.reduce(highestOf, 0) || 1;
    const xs = times.map((time) => this.#xOf(time));
    const yOf = (value) => this.#yOf(value);
    this.#drawAxes();
    columns.forEach((values, at) => {
      const { lines, dots } = trace(xs, values, yOf);
      this.curves[at].setAttribute("d", lines);
      this.dots[at].setAttribute("d", dots);
    });
  }

  /** Show where a time is, and the values of the sample that is nearest to it; nothing for null. */
  point(time, sampleTime, values) {
    this.pointer.hidden = time === null;
    if (time !== null) move(this.pointer, this.#xOf(time), TOP);
    this.points.forEach((point, at) => {
      point.hidden = time === null || !Number.isFinite(values[at]);
      if (!point.hidden) move(point, this.#xOf(sampleTime), this.#yOf(values[at]));
    });
  }

  /** The time at so many pixels from the left; null beside the plot. */
  timeAt(x) {
    const share = (x - LEFT) / (this.#right - LEFT);
    return share >= 0 && share <= 1 ? this.#first + share * (this.#last - this.#first) : null;
  }

  #xOf(time) {
    return LEFT + ((time - this.#first) / (this.#last - this.#first)) * (this.#right - LEFT);
  }

  #yOf(value) {
    return BOTTOM - (value / this.#highest) * (BOTTOM - TOP);
  }

  #drawAxes() {
    const times = timeMarksOf(this.#first, this.#last, this.#right - LEFT, SPACE_OF_TIMES)
      .map((time) => ({ x: sharp(this.#xOf(time)), y: HEIGHT - 8, text: timeOfDay(time, false) }));
    const values = marksOf(this.#highest, BOTTOM - TOP, this.#steps, SPACE_OF_VALUES)
      .map((value) => ({ x: LEFT - TICK - 4, y: sharp(this.#yOf(value)), text: this.#format(value) }));
    label(this.timeAxis, times);
    label(this.valueAxis, values);
    const upright = times.map(({ x }) => `M${x} ${TOP}V${BOTTOM + TICK}`);
    const level = values.map(({ y }) => `M${LEFT - TICK} ${y}H${this.#right}`);
    this.grid.setAttribute("d", [...upright, ...level].join(""));
  }
}

/** The highest of these values and the one before; null is none of them. */
const highestOf = (before, values) =>
  values.reduce((highest, value) => (value > highest ? value : highest), before);
