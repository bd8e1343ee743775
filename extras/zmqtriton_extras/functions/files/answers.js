// What a function answers, for people: pictures, sounds, tables, plots and texts; of a stream each part
// as it comes.

import { element } from "./api.js";

/** Rows of a table that are shown, and points of a line. */
const MAX_ROWS = 100, MAX_POINTS = 2000;
/** Fewer numbers are no line. */
const MIN_POINTS = 3;
const [WIDTH, HEIGHT] = [600, 140];
const SVG = "http://www.w3.org/2000/svg";

const isMedia = (value, kind) => typeof value === "string" && value.startsWith(`data:${kind}/`);
const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const isTable = (value) => Array.isArray(value) && value.length > 0 && value.every(isObject);
const isLine = (value) => Array.isArray(value) && value.length >= MIN_POINTS && value.every(Number.isFinite);

/** The answers to one request, below each other in an element. */
export class Answers {
  /** The text or the table that the next part of a stream continues. */
  #open = null;

  constructor(target, { is_stream: isStream, output }) {
    this.target = target;
    this.isStream = isStream;
    this.output = output;
  }

  /** Shows one answer; false for an error in its place. */
  show(document) {
    const isWrong = document.error !== undefined && !("error" in this.output.properties);
    const names = Object.keys(document).filter((name) => !this.isStream || ![null, ""].includes(document[name]));
    const continues = this.isStream && !isWrong && names.length === 1 && (this.#open?.name ?? names[0]) === names[0];
    if (continues && this.#continue(names[0], document[names[0]])) return true;
    this.#open = null;
    const lines = Object.fromEntries(names.filter((name) => isLine(document[name])).map((name) => [name, document[name]]));
    if (Object.keys(lines).length) this.target.append(plot(lines));
    for (const name of names) {
      if (Object.keys(document).length > 1) this.target.append(element("h3", {}, name));
      this.target.append(shown(name, document[name]));
    }
    return !isWrong;
  }

  /** Adds a part of a stream to those before it; false if it has to be shown by itself. */
  #continue(name, value) {
    const kind = isObject(value) ? "rows" : typeof value === "string" && !value.startsWith("data:") ? "text" : "";
    if (!kind) return false;
    if (this.#open?.kind !== kind) this.#open = kind === "rows" ? new Rows(name) : new Pieces(name);
    if (!this.#open.element.isConnected) this.target.append(this.#open.element);
    this.#open.add(value);
    return true;
  }
}

/** A text whose pieces come one after the other. */
class Pieces {
  kind = "text";

  constructor(name) {
    this.name = name;
    this.element = element("pre", { class: "box pieces", tabindex: 0, "aria-label": name });
  }

  add(text) {
    this.element.append(element("span", {}, text));
  }
}

/** A table whose rows come one after the other. */
class Rows {
  kind = "rows";
  #all = [];

  constructor(name) {
    this.name = name;
    this.element = element("div");
  }

  add(row) {
    this.#all.push(row);
    this.element.replaceChildren(table(this.name, this.#all));
  }
}

/** What no JSON is, though numbers are: it becomes a text that begins with a letter of no text. */
const ODD = "\u0000";

export function parsed(text) {
  return JSON.parse(text.replace(/"(?:[^"\\]|\\.)*"|-?\b(?:NaN|Infinity)\b/g,
    (word) => (word.startsWith('"') ? word : `"\\u0000${word}"`)));
}

function textOf(value) {
  if (typeof value === "string") return value.replace(ODD, "");
  return JSON.stringify(value).replace(/"\\u0000(-?\w+)"/g, "$1");
}

/** A value for people: a picture as one, a sound to be played, rows as a table, any other file to be kept. */
function shown(name, value) {
  if (isMedia(value, "image")) return element("img", { src: value, alt: name });
  if (isMedia(value, "audio")) return element("audio", { src: value, controls: true, "aria-label": name });
  if (isMedia(value, "application")) return element("a", { href: value, download: name }, name);
  if (isTable(value)) return table(name, value);
  if (isObject(value) && Object.keys(value).length) return table(name, [value]);
  return element("pre", { class: "box", tabindex: 0, "aria-label": name }, textOf(value));
}

function table(name, rows) {
  const columns = [...new Set(rows.flatMap(Object.keys))];
  const head = element("tr", {}, ...columns.map((column) => element("th", { scope: "col" }, column)));
  const body = rows.slice(0, MAX_ROWS).map((row) => element("tr", {},
    ...columns.map((column) => element("td", {}, column in row ? textOf(row[column]) : ""))));
  const more = rows.length > MAX_ROWS ? [element("caption", {}, `${MAX_ROWS} of ${rows.length} rows`)] : [];
  return element("div", { class: "box scroll", tabindex: 0, role: "group", "aria-label": name },
    element("table", {}, ...more, element("thead", {}, head), element("tbody", {}, ...body)));
}

/** Lists of numbers as lines over their places, all on one scale. */
function plot(lists) {
  const lines = Object.entries(lists).map(([name, numbers]) => [name, numbers.slice(0, MAX_POINTS)]);
  const all = lines.flatMap(([, numbers]) => numbers);
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const drawn = (tag, attributes) => {
    const made = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  };
  const names = lines.map(([name]) => name).join(", ");
  const picture = drawn("svg", { viewBox: `0 -4 ${WIDTH} ${HEIGHT + 8}`, preserveAspectRatio: "none", role: "img",
    "aria-label": `${names}: from ${low} to ${high}` });
  for (const [at, [, numbers]] of lines.entries()) {
    const points = numbers.map((number, place) => [place / (numbers.length - 1) * WIDTH,
      HEIGHT - (number - low) / (high - low || 1) * HEIGHT].map((each) => each.toFixed(1)).join());
    picture.append(drawn("polyline", { class: `line${at % 3}`, points: points.join(" ") }));
  }
  return element("figure", { class: "plot" }, picture, element("figcaption", { class: "hint" },
    `${textOf(low)} to ${textOf(high)}`));
}
