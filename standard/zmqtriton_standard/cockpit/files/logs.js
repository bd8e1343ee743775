// The last log lines of a model, or of the server, and those that come.

import { askJson, element, setText } from "./api.js";
import { Poll } from "./polling.js";
import { attempt } from "./sources.js";
import { timeOfDay, visible } from "./words.js";

const PAUSE_MS = 2000;
const LINES = 500;
const LEVELS = { E: "error", W: "warning", I: "info", V: "verbose" };

export class Logs {
  /** The model; "" for the server, null while no log is looked at. */
  #model = null;
  #last = 0;
  /** When the log began that it is from. */
  #startedS = 0;
  /** The server has refused to show it: nothing but a key changes that. */
  #isRefused = false;

  /** `say` gets the refusal where the log may not be read, or nothing. */
  constructor(section, say) {
    this.list = section.querySelector("ol");
    this.follows = section.querySelector("[name=follow]");
    this.severe = section.querySelector("[name=severe]");
    this.note = section.querySelector(".hint");
    this.say = say;
    this.poll = new Poll(PAUSE_MS, (signal) => this.#look(signal));
    this.severe.addEventListener("change", () =>
      this.list.classList.toggle("severe", this.severe.checked));
    this.follows.addEventListener("change", () => this.poll.hurry());
    this.poll.run();
  }

  show(model) {
    if (model === this.#model) return;
    if (model === null) this.say();
    this.#model = model;
    this.#isRefused = false;
    this.#last = 0;
    this.list.replaceChildren();
    setText(this.note, "");
    if (model !== null) this.poll.hurry();
  }

  /** Ask again where the log could not be read: with another key. */
  retry() {
    this.#isRefused = false;
    this.poll.hurry();
  }

  async #look(signal) {
    const model = this.#model;
    if (model === null || this.#isRefused || (this.#last && !this.follows.checked)) return;
    const query = new URLSearchParams({ model, lines: LINES, after: this.#last });
    const { value, refused } =
      await attempt(askJson("GET", `/v2/zmqtriton/logs?${query}`, { signal })).catch(() => ({}));
    if (model !== this.#model) return;
    this.say(refused);
    this.#isRefused = refused?.status === 401 || refused?.status === 403;
    if (value) this.#append(value);
    setText(this.note, this.#whyEmpty(refused, model));
  }

  #whyEmpty(refused, model) {
    if (refused) return `Not shown: ${refused.message}`;
    if (this.list.children.length) return "";
    return model ? "This model has written nothing yet." : "There are no lines yet.";
  }

  #append({ lines, last, started_s: startedS }) {
    const isOfAnother = this.#last && startedS !== this.#startedS;
    this.#startedS = startedS;
    if (isOfAnother) {
      // The server was started anew, and has numbered its lines anew.
      this.#last = 0;
      this.poll.hurry();
      return;
    }
    const { list } = this;
    // Who has scrolled up reads there.
    const isAtEnd = list.scrollTop + list.clientHeight > list.scrollHeight - 40;
    list.append(...lines.map(lineOf));
    this.#last = last;
    while (list.children.length > 4 * LINES) list.firstChild.remove();
    if (isAtEnd && lines.length) list.scrollTop = list.scrollHeight;
  }
}

function lineOf({ time_s: seconds, level, instance, text }) {
  return element("li", { "data-level": level },
    element("time", { datetime: new Date(seconds * 1000).toISOString() }, timeOfDay(seconds)),
    element("span", { class: "level" }, LEVELS[level] ?? level),
    element("span", {}, ...(instance ? [element("span", { class: "muted" }, `${instance} `)] : []), visible(text.trimEnd())));
}
