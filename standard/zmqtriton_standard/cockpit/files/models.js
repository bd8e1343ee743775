// The table of models: one row for each version, found by name or state. Trouble comes first, and otherwise
// the server's order; or a figure, the greatest first.

import { element, setText } from "./api.js";
import { NOTHING, apart, bytes, percent, short, stateOf, sum } from "./words.js";

const FILTER_FROM = 9;
/** Those that narrow screens have too. */
const COLUMNS = 4;
const WORDS = { good: "ready", busy: "changing", bad: "failed", off: "not loaded or asleep" };
/** The order by state: trouble comes first. */
const SEVERITY = { bad: 3, busy: 2, unknown: 1, good: 0, off: -1 };
const FAILS = 2.5, TROUBLE = 2.2;

export const keyOf = ({ name, version }) => `${encodeURIComponent(name)}/${encodeURIComponent(version)}`;

/** A long name goes on in the next line between its words. */
function breakable(name) {
  const parts = name.split(/(?<=[_.-])/);
  return parts.flatMap((part, number) => number ? [element("wbr"), part] : [part]);
}

class Row {
  constructor(model) {
    const cell = (className) => element("td", { class: className });
    this.version = element("span", { class: "muted" });
    this.state = element("span", { class: "state" });
    this.instances = cell("number roomy");
    this.rate = cell("number");
    this.failures = cell("number failing");
    this.waiting = cell("number spacious");
    this.memory = cell("number roomy");
    this.cpu = cell("number roomy");
    this.text = element("pre");
    this.link = element("a", { href: `#${keyOf(model)}` }, ...breakable(model.name));
    this.line = element("tr", {},
      element("th", { scope: "row" }, this.link, " ", this.version),
      element("td", {}, this.state), this.rate, this.failures, this.waiting, this.instances, this.memory, this.cpu);
    this.reason = element("tr", { class: "reason" }, element("td", { colspan: COLUMNS }, this.text));
  }

  show(model, processes, environment) {
    const { word, kind } = stateOf(model);
    this.model = model;
    this.kind = kind;
    setText(this.version, model.version && `v${model.version}`);
    setText(this.state, word);
    this.state.dataset.kind = this.text.dataset.kind = kind;
    // All of it stands where the model is shown alone; that of many that sleep would say nothing.
    const reason = environment?.step ?? (word === "ASLEEP" ? "" : model.reason || model.trouble || "");
    this.hasReason = Boolean(reason);
    if (model.trouble) this.text.dataset.kind = "busy";
    setText(this.text, reason);
    const ready = processes.filter(({ state }) => state === "READY").length;
    setText(this.instances, processes.length ? `${ready} of ${processes.length}` : NOTHING);
    setText(this.rate, short(model.requests_per_s));
    setText(this.waiting, short(model.pending));
    const own = apart(processes);
    const memory = sum(own.map((process) => process.memory_bytes));
    const cpu = sum(own.map((process) => process.cpu_percent));
    setText(this.memory, bytes(memory));
    setText(this.cpu, percent(cpu));
    setText(this.failures, short(model.failures_per_s));
    this.failures.dataset.kind = model.failures_per_s > 0 ? "bad" : "good";
    this.figures = {
      state: Math.max(SEVERITY[kind], model.failures_per_s > 0 ? FAILS : model.trouble ? TROUBLE : -1),
      rate: model.requests_per_s, failures: model.failures_per_s,
      waiting: model.pending, memory, cpu,
    };
  }

  mark(isChosen) {
    this.line.classList.toggle("chosen", isChosen);
    if (isChosen) this.link.setAttribute("aria-current", "true");
    else this.link.removeAttribute("aria-current");
  }
}

export class ModelTable {
  #rows = new Map();
  #chosen = "";
  #sort = "state";
  #found = null;

  constructor(section) {
    this.table = section.querySelector("table");
    this.body = section.querySelector("tbody");
    this.summary = section.querySelector("#summary");
    this.empty = section.querySelector("#empty");
    this.filter = section.querySelector("#filter");
    this.filter.addEventListener("input", () => this.#applyFilter());
    this.table.tHead.addEventListener("click", ({ target }) => {
      const sort = target.closest("[data-sort]")?.dataset.sort;
      if (sort) this.sortBy(sort === this.#sort ? "name" : sort);
    });
    this.#markSort();
  }

  /** The model of a key, or one of its name: a model gets its version when it is loaded first.
   * Undefined if there is none. */
  get(key) {
    const isNamesake = (each) => each.split("/")[0] === key.split("/")[0];
    return this.#rows.get(this.#rows.has(key) ? key : this.keys.find(isNamesake))?.model;
  }

  get keys() {
    return [...this.#rows.keys()];
  }

  /** Order the rows by a figure, or by "name" as the server has them. */
  sortBy(name) {
    this.#sort = name;
    this.#markSort();
    if (this.#found) this.show(this.#found);
  }

  #markSort() {
    for (const button of this.table.tHead.querySelectorAll("[data-sort]")) {
      const isChosen = button.dataset.sort === this.#sort;
      const order = this.#sort === "name" ? "ascending" : "descending";
      if (isChosen) button.parentElement.setAttribute("aria-sort", order);
      else button.parentElement.removeAttribute("aria-sort");
    }
  }

  /** Those without the figure come last, and equal ones in the server's order. */
  #ordered(rows) {
    if (this.#sort === "name") return rows;
    const figureOf = ({ figures }) => figures[this.#sort] ?? -Infinity;
    return rows.toSorted((one, other) => figureOf(other) - figureOf(one) || 0);
  }

  show(found) {
    this.#found = found;
    const { models, processes = [], environments = [], unlisted } = found;
    const ofModels = Map.groupBy(processes.filter(({ role }) => role === "stub"), keyOfOwner);
    this.#removeOthers(new Set(models.map(keyOf)));
    const rows = models.map((model) => {
      const row = this.#rowOf(model);
      const environment = environments.find((each) => each.model === model.name);
      row.show(model, ofModels.get(keyOf(model)) ?? [], environment);
      return row;
    });
    let previous = null;
    for (const row of this.#ordered(rows)) {
      const place = previous ? previous.nextSibling : this.body.firstChild;
      if (place !== row.line) this.body.insertBefore(row.line, place);
      row.line.after(row.reason);
      previous = row.reason;
    }
    this.table.hidden = !models.length;
    this.filter.parentElement.hidden = models.length < FILTER_FROM;
    this.#summarize();
    this.#showEmpty(models.length, unlisted);
    this.#applyFilter();
  }

  choose(key) {
    this.#chosen = key;
    for (const [each, row] of this.#rows) row.mark(each === key);
  }

  #rowOf(model) {
    const key = keyOf(model);
    if (!this.#rows.has(key)) {
      const row = new Row(model);
      row.mark(key === this.#chosen);
      this.#rows.set(key, row);
    }
    return this.#rows.get(key);
  }

  #removeOthers(known) {
    for (const [key, row] of this.#rows) {
      if (known.has(key)) continue;
      row.line.remove();
      row.reason.remove();
      this.#rows.delete(key);
    }
  }

  #summarize() {
    const kinds = Map.groupBy(this.#rows.values(), ({ kind }) => kind);
    const parts = Object.entries(WORDS).filter(([kind]) => kinds.has(kind));
    setText(this.summary, parts.map(([kind, word]) => `${kinds.get(kind).length} ${word}`).join(" · "));
  }

  #showEmpty(number, refused) {
    this.empty.hidden = number > 0;
    const why = refused ? "refused" : "none";
    if (this.empty.hidden || this.empty.dataset.why === why) return;
    this.empty.dataset.why = why;
    this.empty.replaceChildren(...(refused
      ? [element("p", {}, "Which models there are may not be read: "), element("pre", {}, refused.message)]
      : [element("p", {}, "This server has no models yet."),
        element("p", { class: "muted" }, "Put one into the model repository, as NAME/1/model.py with a " +
          "config.pbtxt beside the 1, and start the server anew. In the mode explicit, load it:"),
        element("pre", { class: "box" }, `curl -X POST ${location.origin}/v2/repository/models/NAME/load`)]));
  }

  #applyFilter() {
    const typed = this.filter.parentElement.hidden ? "" : this.filter.value.toLowerCase();
    for (const row of this.#rows.values()) {
      const told = [row.model.name, row.state.textContent, WORDS[row.kind] ?? ""];
      const isShown = told.some((text) => text.toLowerCase().includes(typed));
      row.line.hidden = !isShown;
      row.reason.hidden = !isShown || !row.hasReason;
    }
  }
}

const keyOfOwner = ({ model, version }) => keyOf({ name: model, version });
