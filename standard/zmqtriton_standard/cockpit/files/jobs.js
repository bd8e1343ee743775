// The newest jobs and batches: those of the token, where the server has tokens.

import { Refused, ask, askJson, element, setText } from "./api.js";
import { Poll } from "./polling.js";
import { attempt } from "./sources.js";
import { NOTHING, duration, visible } from "./words.js";

const PAUSE_MS = 2000;
const NONE = "There are none now. A request with the header \"Prefer: respond-async\" becomes a job, and is " +
  "answered with its id at once.";
const KINDS = {
  running: "busy", succeeded: "good", failed: "bad",
  validating: "busy", in_progress: "busy", finalizing: "busy", cancelling: "busy", completed: "good", expired: "bad",
};
const age = (since) => (row, nowS) => duration(Math.max(0, nowS - row[since]));
/** Of each list: title, class and text of each column but the state, and what else is said of a row. */
const JOBS = {
  columns: [
    ["Age", "number", age("submitted")],
    ["Took", "number", ({ started, ended }) => started && ended ? duration(ended - started) : NOTHING],
    ["Request", "mono", ({ path }) => visible(path)],
    ["Webhook", "", ({ webhook }) => webhook ? `${webhook.state} (${webhook.tries})` : NOTHING],
  ],
  stateOf: ({ state }) => state,
  reasonOf: ({ reason, webhook }) =>
    [reason, webhook?.problem ? `Webhook: ${webhook.problem}` : ""].filter(Boolean).join("\n"),
};
const BATCHES = {
  columns: [
    ["Age", "number", age("created_at")],
    ["Answered", "number", ({ request_counts: { completed, failed, total } }) => `${completed + failed} of ${total}`],
    ["Failed", "number", ({ request_counts: { failed } }) => String(failed)],
    ["Request", "mono", ({ endpoint }) => visible(endpoint)],
  ],
  stateOf: ({ status }) => status,
  reasonOf: ({ errors }) =>
    (errors?.data ?? []).map(({ line, message }) => line ? `Line ${line}: ${message}` : message).join("\n"),
};
const MAY_CANCEL = ["validating", "in_progress", "finalizing"];

class Row {
  constructor(id, { columns, stateOf, reasonOf, onCancel }) {
    Object.assign(this, { columns, stateOf, reasonOf });
    this.state = element("span", { class: "state" });
    this.values = columns.map(() => element("span"));
    this.text = element("pre");
    this.line = element("tr", {}, element("th", { scope: "row", class: "mono" }, id),
      element("td", { "data-title": "State" }, this.state),
      ...columns.map(([title, className], at) =>
        element("td", { class: className, "data-title": title }, this.values[at])));
    if (onCancel) {
      this.button = element("button", { type: "button", "aria-label": `Cancel ${id}` }, "Cancel");
      this.button.addEventListener("click", () => onCancel(id));
      this.line.append(element("td", {}, this.button));
    }
    this.reason = element("tr", { class: "reason" },
      element("td", { colspan: this.line.children.length }, this.text));
  }

  show(row, nowS) {
    this.columns.forEach(([, , text], at) => setText(this.values[at], text(row, nowS)));
    const state = this.stateOf(row);
    setText(this.state, state);
    this.state.dataset.kind = KINDS[state] ?? "off";
    if (this.button) this.button.hidden = !MAY_CANCEL.includes(state);
    const reason = this.reasonOf(row);
    setText(this.text, visible(reason));
    this.reason.hidden = !reason;
  }
}

/** A table whose rows come and go. */
class List {
  #rows = new Map();

  constructor(table, title, kind) {
    this.table = table;
    this.kind = kind;
    this.body = element("tbody");
    const heads = [[title, ""], ["State", ""], ...kind.columns];
    this.table.append(element("thead", {}, element("tr", {},
      ...heads.map(([text, className]) => element("th", { scope: "col", class: className }, text)),
      ...kind.onCancel ? [element("td")] : [])), this.body);
  }

  show(rows) {
    const nowS = Date.now() / 1000;
    const known = new Set(rows.map(({ id }) => id));
    for (const [id, row] of this.#rows) {
      if (known.has(id)) continue;
      row.line.remove();
      row.reason.remove();
      this.#rows.delete(id);
    }
    rows.forEach((each, at) => {
      if (!this.#rows.has(each.id)) this.#rows.set(each.id, new Row(each.id, this.kind));
      const row = this.#rows.get(each.id);
      row.show(each, nowS);
      if (this.body.children[2 * at] === row.line) return;
      this.body.insertBefore(row.line, this.body.children[2 * at] ?? null);
      row.line.after(row.reason);
    });
    this.table.hidden = !rows.length;
  }
}

export class Jobs {
  #isShown = false;
  #hasBatches = false;

  /** `confirm` asks the person; true for yes. */
  constructor(section, confirm) {
    this.confirm = confirm;
    this.note = section.querySelector(".hint");
    this.part = section.querySelector("#batches");
    this.jobs = new List(section.querySelector("#job-list"), "Job", JOBS);
    this.batches = new List(section.querySelector("#batch-list"), "Batch",
      { ...BATCHES, onCancel: (id) => this.#cancel(id) });
    this.poll = new Poll(PAUSE_MS, (signal) => this.#look(signal));
    this.poll.run();
  }

  /** Batches are there with OpenAI's API. */
  show(isShown, hasBatches) {
    this.#hasBatches = hasBatches;
    if (isShown && !this.#isShown) this.poll.hurry();
    this.#isShown = isShown;
  }

  async #look(signal) {
    if (!this.#isShown) return;
    const { value, refused } = await attempt(askJson("GET", "/v2/jobs", { signal })).catch(() => ({}));
    if (value) this.jobs.show(value.jobs);
    if (refused) setText(this.note, `Not shown: ${refused.message}`);
    else if (value) setText(this.note, value.jobs.length ? "" : NONE);
    if (!this.#hasBatches) return;
    const batches = await attempt(askJson("GET", "/v1/batches?limit=100", { signal })).catch(() => ({}));
    if (batches.value) this.batches.show(batches.value.data);
    this.part.hidden = this.batches.table.hidden;
  }

  async #cancel(id) {
    const question = `Cancel ${id}? What its lines have answered is kept.`;
    if (!(await this.confirm(question, "Cancel it"))) return;
    try {
      await ask("POST", `/v1/batches/${id}/cancel`);
    } catch (error) {
      setText(this.note, `Not done: ${error instanceof Refused ? error.message : "The server does not answer."}`);
    }
    this.poll.hurry();
  }
}
