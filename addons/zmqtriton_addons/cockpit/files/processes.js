// A table of processes: the instances of a model, or those of the server itself.

import { element, setText } from "./api.js";
import { NOTHING, bytes, duration, percent, short } from "./words.js";

/** Title, class and text of each column; on a narrow screen the title stands before each text. */
const COLUMNS = [
  ["Pid", "number", ({ pid }) => String(pid || NOTHING)],
  ["State", "", null],
  ["Age", "number", ({ uptime_s: seconds }) => duration(seconds)],
  ["Restarts", "number", ({ restarts }) => short(restarts)],
  ["In flight", "number", ({ in_flight: number }) => short(number)],
  ["Executing", "number", ({ executing_s: seconds }) => seconds >= 1 ? duration(seconds) : NOTHING],
  ["CPU", "number", ({ cpu_percent: number }) => percent(number)],
  ["Memory", "number", ({ memory_bytes: number }) => bytes(number)],
  ["GPU", "number", gpuOf],
];
const KINDS = { READY: "good", running: "good", FAILED: "bad" };

function gpuOf({ kind, device, gpu_memory_bytes: memory }) {
  if (kind !== "GPU") return NOTHING;
  return memory ? `${device}: ${bytes(memory)}` : String(device);
}

function stateOf({ role, state, is_connected: isConnected = true }) {
  // The step that it takes, and how far it is, stands above the table.
  if (role === "environment") return { word: "preparing", kind: "busy" };
  if (state) return { word: state, kind: KINDS[state] ?? "busy" };
  return isConnected ? { word: "running", kind: "good" } : { word: "not connected", kind: "busy" };
}

class Row {
  #cells = new Map();

  constructor() {
    this.name = element("th", { scope: "row", class: "mono" });
    this.state = element("span", { class: "state" });
    this.text = element("pre");
    this.line = element("tr", {}, this.name);
    for (const [title, className, text] of COLUMNS) {
      const value = element("span", {}, text ? "" : this.state);
      const cell = element("td", { class: className, "data-title": title }, value);
      this.#cells.set(title, value);
      this.line.append(cell);
    }
    this.reason = element("tr", { class: "reason" },
      element("td", { colspan: COLUMNS.length + 1 }, this.text));
  }

  show(process, hasGpu) {
    setText(this.name, process.instance ?? process.role);
    for (const [title, , text] of COLUMNS) if (text) setText(this.#cells.get(title), text(process));
    this.#cells.get("GPU").parentElement.hidden = !hasGpu;
    const { word, kind } = stateOf(process);
    setText(this.state, word);
    this.state.dataset.kind = kind;
    const reason = process.last_reason ?? "";
    setText(this.text, reason && `Last end: ${reason}`);
    this.reason.hidden = !reason;
  }
}

export class ProcessTable {
  #rows = new Map();

  constructor(table) {
    this.table = table;
    this.body = element("tbody");
    this.titles = COLUMNS.map(([title, className]) =>
      element("th", { scope: "col", class: className }, title));
    this.first = element("th", { scope: "col" });
    table.append(element("thead", {}, element("tr", {}, this.first, ...this.titles)), this.body);
  }

  show(processes, title) {
    setText(this.first, title);
    const hasGpu = processes.some(({ kind }) => kind === "GPU");
    this.titles.at(-1).hidden = !hasGpu;
    const known = new Set();
    processes.forEach((process, at) => {
      // One that is started anew takes the place of the one that ended.
      const key = process.instance ? `${process.model}:${process.version}:${process.instance}` : `${process.role} ${at}`;
      known.add(key);
      if (!this.#rows.has(key)) this.#rows.set(key, new Row());
      const row = this.#rows.get(key);
      row.show(process, hasGpu);
      if (this.body.children[2 * at] === row.line) return;
      this.body.insertBefore(row.line, this.body.children[2 * at] ?? null);
      row.line.after(row.reason);
    });
    for (const [key, row] of this.#rows) {
      if (known.has(key)) continue;
      row.line.remove();
      row.reason.remove();
      this.#rows.delete(key);
    }
    this.table.hidden = !processes.length;
  }
}
