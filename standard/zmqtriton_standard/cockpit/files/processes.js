// A table of processes: the instances of a model, or those of the server itself.

import { element, setText } from "./api.js";
import { NOTHING, bytes, duration, percent, short } from "./words.js";

/** Title, class and text of each column; on a narrow screen the title stands before each text. Those
 * with a condition are there if a process meets it. */
const COLUMNS = [
  ["Pid", "number", ({ pid }) => String(pid || NOTHING)],
  ["State", "", null],
  ["Age", "number", ({ uptime_s: seconds }) => duration(seconds)],
  ["Restarts", "number", ({ restarts }) => short(restarts)],
  ["In flight", "number", ({ in_flight: number }) => short(number)],
  ["Executing", "number", ({ executing_s: seconds }) => seconds >= 1 ? duration(seconds) : NOTHING],
  ["CPU", "number", ({ cpu_percent: number }) => percent(number)],
  ["Memory", "number", ({ memory_bytes: number }) => bytes(number)],
  ["Private", "number", ({ private_bytes: number }) => bytes(number), isInstance],
  ["Shared", "number", ({ shared_bytes: number }) => bytes(number), isInstance],
  ["PSS", "number", ({ pss_bytes: number }) => bytes(number), isInstance],
  ["GPU", "number", gpuOf, usesGpu],
];
const KINDS = { READY: "good", running: "good", FAILED: "bad" };

/** Also one that is not measured yet: with the columns, all else would move once it is. */
function isInstance({ role }) {
  return role === "stub";
}

/** Every instance has a device: one of the kind GPU, or with memory there, has one to speak of. */
function usesGpu({ kind, gpu_bytes: memory }) {
  return kind === "GPU" || memory;
}

function gpuOf({ kind, device, gpu_bytes: memory = {} }) {
  const parts = Object.entries(memory).map(([gpu, number]) => `${gpu}: ${bytes(number)}`);
  return parts.join(", ") || (kind === "GPU" ? String(device) : NOTHING);
}

function stateOf({ role, state, stop, is_connected: isConnected = true }) {
  // The step that it takes, and how far it is, stands above the table.
  if (role === "environment") return { word: "preparing", kind: "busy" };
  if (stop) return { word: "debugged", kind: "busy" };
  if (state) return { word: state, kind: KINDS[state] ?? "busy" };
  return isConnected ? { word: "running", kind: "good" } : { word: "not connected", kind: "busy" };
}

/** Where a debugger has stopped an instance. */
function stopOf({ model, place, for_s: seconds, has_operator: hasOperator }) {
  const where = place ? `Stands at ${place.split("/").pop()}` : "Is being debugged";
  const who = hasOperator ? "with an operator" : `waits for zmqtriton-ctl debug ${model}`;
  return `${where} for ${duration(seconds)}, ${who}.`;
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

  show(process, hidden) {
    setText(this.name, process.instance ?? process.role);
    for (const [title, , text] of COLUMNS) {
      if (text) setText(this.#cells.get(title), text(process));
      this.#cells.get(title).parentElement.hidden = hidden.has(title);
    }
    const { word, kind } = stateOf(process);
    setText(this.state, word);
    this.state.dataset.kind = kind;
    const reason = process.last_reason && `Last end: ${process.last_reason}`;
    const texts = [process.stop && stopOf(process.stop), reason].filter(Boolean);
    setText(this.text, texts.join("\n"));
    this.reason.hidden = !texts.length;
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
    const unused = COLUMNS.filter(([, , , isMet]) => isMet && !processes.some(isMet));
    const hidden = new Set(unused.map(([title]) => title));
    COLUMNS.forEach(([title], at) => { this.titles[at].hidden = hidden.has(title); });
    const known = new Set();
    processes.forEach((process, at) => {
      // One that is started anew takes the place of the one that ended.
      const key = process.instance ? `${process.model}:${process.version}:${process.instance}` : `${process.role} ${at}`;
      known.add(key);
      if (!this.#rows.has(key)) this.#rows.set(key, new Row());
      const row = this.#rows.get(key);
      row.show(process, hidden);
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
