// The larger half of the page: the server, or one model, with its processes, plots, log and trial.

import { element, setText } from "./api.js";
import { Actions } from "./actions.js";
import { Logs } from "./logs.js";
import { keyOf } from "./models.js";
import { Plots } from "./plots.js";
import { ProcessTable } from "./processes.js";
import { Trials } from "./trials.js";
import { NOTHING, apart, bytes, duration, percent, short, stateOf, visible, sum } from "./words.js";

const PARTS = ["overview", "logs", "jobs", "try"];
/** What instances had better hold once, in bytes. */
const MUCH = 512 * 1024 * 1024;

export class Detail {
  #subject = undefined;
  #part = "";

  /** `events`: onAction, onRefusal, onRelease, say(what, refused). */
  constructor(section, events) {
    const find = (selector) => section.querySelector(selector);
    this.section = section;
    this.title = find("#detail-title");
    this.version = find("#detail-version");
    this.state = find("#detail-state");
    this.reason = find("#detail-reason");
    this.facts = find("#facts");
    this.error = find("#detail-error");
    this.links = Object.fromEntries(PARTS.map((part) => [part, find(`[data-part=${part}]`)]));
    this.parts = Object.fromEntries(PARTS.map((part) => [part, find(`#${part}`)]));
    this.environments = find("#environments");
    this.processesTitle = find("#processes-title");
    this.unseen = find("#processes-unseen");
    this.processes = new ProcessTable(find("#processes"));
    this.actions = new Actions(section, document.getElementById("confirm"), events.onAction, events.onRefusal);
    this.plots = new Plots(find("#plots"), (refused) => events.say("history", refused));
    this.logs = new Logs(find("#logs"), (refused) => events.say("logs", refused));
    this.trials = new Trials(find("#try"), events.onRefusal, events.onRelease);
  }

  /** Choose a model, or the server for null, and a part of what there is to see of it. */
  choose(subject, part, { processes = [] }) {
    const key = subject && keyOf(subject);
    if (this.#subject === undefined || key !== (this.#subject && keyOf(this.#subject))) {
      this.#subject = subject;
      this.plots.show(subject);
    }
    this.links.jobs.hidden = Boolean(subject) || !processes.some(({ role }) => role === "jobs");
    this.links.try.hidden = !subject;
    this.#part = PARTS.includes(part) && !this.links[part].hidden ? part : "overview";
    for (const each of PARTS) {
      this.parts[each].hidden = each !== this.#part;
      this.links[each].href = `#${key ?? ""}/${each}`;
      if (each === this.#part) this.links[each].setAttribute("aria-current", "page");
      else this.links[each].removeAttribute("aria-current");
    }
    this.logs.show(this.#part === "logs" ? subject?.name ?? "" : null);
  }

  /** Keep in step with the server; `model` is what is chosen as it is now, null for the server. */
  async show(model, found) {
    if (model) this.#showModel(model, found);
    else this.#showServer(found);
    await this.#showJobs(found.hasOpenAi);
    const hasFigures = model && found.hasInspection && this.#part === "overview";
    await this.#showFigures(hasFigures ? model : null);
    if (model && this.#part === "try") await this.trials.show(model, found.hasOpenAi);
  }

  /** The part for jobs, which is loaded when somebody looks at it. */
  async #showJobs(hasBatches) {
    const isShown = this.#part === "jobs";
    if (isShown && !this.jobs) {
      const { Jobs } = await import("./jobs.js");
      this.jobs = new Jobs(this.parts.jobs, (...words) => this.actions.confirm(...words));
    }
    this.jobs?.show(isShown, hasBatches);
  }

  /** The metrics of a model's own, whose module is loaded with the first model. */
  async #showFigures(model) {
    if (model && !this.figures) {
      const { Figures } = await import("./figures.js");
      this.figures = new Figures(this.section.querySelector("#figures"));
    }
    await this.figures?.show(model);
  }

  #showServer({ name, version, uptimeS, ready, processes, environments = [] }) {
    setText(this.title, name ?? "The server");
    setText(this.version, version ? `zmqtriton ${version}` : "");
    this.#setState(ready.word, ready.kind);
    this.reason.hidden = true;
    this.error.hidden = true;
    this.#setFacts([["since its start", duration(uptimeS)]]);
    this.#showProcesses(processes, (process) => process.role !== "stub", "Processes", "Process");
    this.#showEnvironments(environments);
    this.actions.show(null, {});
  }

  #showModel(model, { processes, environments = [], mayLoad, mayRestart, mayProfile, nowS }) {
    const { word, kind } = stateOf(model);
    setText(this.title, model.name);
    setText(this.version, model.version && `v${model.version}`);
    this.#setState(word, kind);
    const reason = model.reason || model.trouble || "";
    setText(this.reason, reason);
    this.reason.hidden = !reason;
    this.reason.dataset.kind = model.trouble ? "busy" : kind;
    this.#setFacts([
      ["in the queue", short(model.pending)],
      ["in flight", short(model.in_flight)],
      ["answered", short(model.succeeded)],
      ["failed", short(model.failed)],
      ...choiceOf(model.batching),
    ]);
    this.#showError(model.last_error, nowS);
    const isOwn = (each) => each.role === "stub" && each.model === model.name && each.version === model.version;
    const own = processes?.filter(isOwn) ?? [];
    const memory = sum(apart(own).map((each) => each.memory_bytes));
    const isOrigin = (each) => each.role === "template" && each.model === model.name && each.version === model.version;
    const advice = sharingOf(model.name, own.length, memory, processes?.find(isOrigin));
    this.#showProcesses(processes, isOwn, "Instances", "Instance", advice);
    this.plots.present = { instances: own.length, memory_bytes: memory };
    this.#showEnvironments(environments.filter((each) => each.model === model.name));
    const hasProcesses = processes?.some((each) => each.model === model.name);
    this.actions.show(model, { isLoaded: word === "READY", hasProcesses, mayLoad, mayRestart, mayProfile });
  }

  #showError(error, nowS) {
    this.error.hidden = !error;
    if (!error) return;
    const [when, text] = this.error.children;
    setText(when, `The last error, ${duration(Math.max(0, nowS - error.at_s))} ago:`);
    setText(text, visible(error.text.trimEnd()));
  }

  #setState(word, kind) {
    setText(this.state, word);
    this.state.dataset.kind = kind;
  }

  #setFacts(facts) {
    if (this.facts.children.length !== facts.length) {
      this.facts.replaceChildren(...facts.map(() => element("div", {}, element("dt"), element("dd"))));
    }
    facts.forEach(([name, value], at) => {
      setText(this.facts.children[at].children[0], name);
      setText(this.facts.children[at].children[1], value);
    });
  }

  #showProcesses(processes, isShown, title, first, advice = "") {
    const shown = processes?.filter(isShown) ?? [];
    this.processes.show(shown, first);
    setText(this.processesTitle, title);
    this.unseen.hidden = shown.length > 0 && !advice;
    setText(this.unseen, shown.length ? advice : processes ? "There are none now." : NOTHING);
  }

  #showEnvironments(environments) {
    this.environments.hidden = !environments.length;
    const list = this.environments.querySelector("ul");
    while (list.children.length > environments.length) list.lastChild.remove();
    environments.forEach(({ model, step, progress, seconds }, at) => {
      if (!list.children[at]) list.append(element("li", {}, element("span"), element("progress", { max: 1 })));
      const [text, bar] = list.children[at].children;
      const share = progress === null || progress === undefined ? "" : `, ${percent(100 * progress)}`;
      setText(text, `${model}: ${step}${share}, ${duration(seconds)} so far`);
      bar.setAttribute("aria-label", `The preparation of ${model}`);
      if (share) bar.value = progress;
      else bar.removeAttribute("value");
    });
  }
}

/** The delay and size of batches that the server chose; nothing if they are fixed. */
function choiceOf(batching) {
  if (!batching?.auto) return [];
  const delay = batching.delay_us / 1000;
  return [[`batches for ${batching.auto}`, `up to ${batching.target} within ${short(delay)} ms`]];
}

/** What instances share, or might, in words; "" if that is nothing to speak of. */
function sharingOf(name, count, memory, origin) {
  if (count < 2) return "";
  if (origin) return `They are ${origin.instances} of process ${origin.pid}, and share one load.`;
  if (memory < MUCH) return "";
  return `Each loads the model by itself, ${bytes(memory)} together. What of that would be held once with INSTANCES forks`
    + ` or threads: zmqtriton-ctl explain ${name}`;
}
