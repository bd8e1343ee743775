// The newest jobs: those of the token, where the server has tokens.

import { askJson, element, setText } from "./api.js";
import { Poll } from "./polling.js";
import { attempt } from "./sources.js";
import { NOTHING, duration, visible } from "./words.js";

const PAUSE_MS = 2000;
const KINDS = { running: "busy", succeeded: "good", failed: "bad" };
/** Title, class and text of each column. */
const COLUMNS = [
  ["State", "", null],
  ["Age", "number", ({ submitted }, nowS) => duration(Math.max(0, nowS - submitted))],
  ["Took", "number", ({ started, ended }) => started && ended ? duration(ended - started) : NOTHING],
  ["Request", "mono", ({ path }) => visible(path)],
  ["Webhook", "", ({ webhook }) => webhook ? `${webhook.state} (${webhook.tries})` : NOTHING],
];

class Row {
  constructor(id) {
    this.state = element("span", { class: "state" });
    this.values = COLUMNS.map(([, , text]) => element("span", {}, text ? "" : this.state));
    this.text = element("pre");
    this.line = element("tr", {}, element("th", { scope: "row", class: "mono" }, id),
      ...COLUMNS.map(([title, className], at) =>
        element("td", { class: className, "data-title": title }, this.values[at])));
    this.reason = element("tr", { class: "reason" },
      element("td", { colspan: COLUMNS.length + 1 }, this.text));
  }

  show(job, nowS) {
    COLUMNS.forEach(([, , text], at) => text && setText(this.values[at], text(job, nowS)));
    setText(this.state, job.state);
    this.state.dataset.kind = KINDS[job.state] ?? "off";
    const problem = job.webhook?.problem ? `Webhook: ${job.webhook.problem}` : "";
    const reason = [job.reason, problem].filter(Boolean).join("\n");
    setText(this.text, visible(reason));
    this.reason.hidden = !reason;
  }
}

export class Jobs {
  #rows = new Map();
  #isShown = false;

  constructor(section) {
    this.table = section.querySelector("table");
    this.note = section.querySelector(".hint");
    this.body = element("tbody");
    const titles = ["Job", ...COLUMNS.map(([title]) => title)];
    const classes = ["", ...COLUMNS.map(([, className]) => className)];
    this.table.append(element("thead", {}, element("tr", {},
      ...titles.map((title, at) => element("th", { scope: "col", class: classes[at] }, title)))), this.body);
    this.poll = new Poll(PAUSE_MS, (signal) => this.#look(signal));
    this.poll.run();
  }

  show(isShown) {
    if (isShown && !this.#isShown) this.poll.hurry();
    this.#isShown = isShown;
  }

  async #look(signal) {
    if (!this.#isShown) return;
    const { value, refused } = await attempt(askJson("GET", "/v2/jobs", { signal })).catch(() => ({}));
    if (value) this.#list(value.jobs);
    if (refused) setText(this.note, `Not shown: ${refused.message}`);
    else if (value) setText(this.note, value.jobs.length ? "" : "There are none now.");
  }

  #list(jobs) {
    const nowS = Date.now() / 1000;
    const known = new Set(jobs.map(({ id }) => id));
    for (const [id, row] of this.#rows) {
      if (known.has(id)) continue;
      row.line.remove();
      row.reason.remove();
      this.#rows.delete(id);
    }
    jobs.forEach((job, at) => {
      if (!this.#rows.has(job.id)) this.#rows.set(job.id, new Row(job.id));
      const row = this.#rows.get(job.id);
      row.show(job, nowS);
      if (this.body.children[2 * at] === row.line) return;
      this.body.insertBefore(row.line, this.body.children[2 * at] ?? null);
      row.line.after(row.reason);
    });
    this.table.hidden = !jobs.length;
  }
}
