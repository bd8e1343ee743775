// The table of models: one row for each version, found by name or state, in the server's order.

import { element, setText } from "./api.js";
import { NOTHING, bytes, short, stateOf, sum } from "./words.js";

const FILTER_FROM = 9;
/** Those that narrow screens have too. */
const COLUMNS = 4;
const WORDS = { good: "ready", busy: "changing", bad: "failed", off: "not loaded or asleep" };

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
    this.waiting = cell("number");
    this.memory = cell("number roomy");
    this.text = element("pre");
    this.link = element("a", { href: `#${keyOf(model)}` }, ...breakable(model.name));
    this.line = element("tr", {},
      element("th", { scope: "row" }, this.link, " ", this.version),
      element("td", {}, this.state), this.rate, this.waiting, this.instances, this.memory);
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
    const reason = environment?.step ?? (word === "ASLEEP" ? "" : model.reason ?? "");
    this.hasReason = Boolean(reason);
    setText(this.text, reason);
    const ready = processes.filter(({ state }) => state === "READY").length;
    setText(this.instances, processes.length ? `${ready} of ${processes.length}` : NOTHING);
    setText(this.rate, short(model.requests_per_s));
    setText(this.waiting, short(model.pending));
    setText(this.memory, bytes(sum(processes.map(({ memory_bytes: memory }) => memory))));
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

  constructor(section) {
    this.table = section.querySelector("table");
    this.body = section.querySelector("tbody");
    this.summary = section.querySelector("#summary");
    this.empty = section.querySelector("#empty");
    this.filter = section.querySelector("#filter");
    this.filter.addEventListener("input", () => this.#applyFilter());
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

  show({ models, processes = [], environments = [], unlisted }) {
    const ofModels = Map.groupBy(processes.filter(({ role }) => role === "stub"), keyOfOwner);
    this.#removeOthers(new Set(models.map(keyOf)));
    let previous = null;
    for (const model of models) {
      const row = this.#rowOf(model);
      const environment = environments.find((each) => each.model === model.name);
      row.show(model, ofModels.get(keyOf(model)) ?? [], environment);
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
