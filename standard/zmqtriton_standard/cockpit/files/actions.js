// The buttons that load, unload, restart and profile a model; what goes wrong is said beside them.

import { Refused, ask, element, setText } from "./api.js";
import { modelPath } from "./sources.js";

const repositoryPath = (name) => `/v2/repository/models/${encodeURIComponent(name)}`;
const PROFILE_S = 10;
const ACTIONS = {
  load: {
    path: (name) => `${repositoryPath(name)}/load`,
    busy: "It is loading.",
  },
  unload: {
    path: (name) => `${repositoryPath(name)}/unload`,
    busy: "It is unloading.",
    question: (name) => `Unload ${name}? Requests that it has are answered before; new ones are refused until it is loaded again.`,
  },
  restart: {
    path: (name) => `${modelPath(name)}/restart`,
    busy: "Its processes restart.",
    question: (name) => `Restart the processes of ${name}? Requests that they execute now fail; those in the queue wait.`,
  },
  profile: {
    path: (name) => `${modelPath(name)}/profile`,
    body: { seconds: PROFILE_S },
    busy: `It is looked at for ${PROFILE_S} s, while it serves.`,
  },
};

export class Actions {
  /** Name to {busy} or {error}: what was asked for last, also while another model is shown. */
  #asked = new Map();
  #name = "";
  /** Name to the address of a flame graph, of the models that were profiled. */
  #graphs = new Map();
  /** Takes the answer to the question that is open. */
  #answer = () => {};

  /** `onDone` is called when the server has answered; `onRefusal` with what a key would help. */
  constructor(section, dialog, onDone, onRefusal) {
    this.dialog = dialog;
    this.onDone = onDone;
    this.onRefusal = onRefusal;
    this.message = section.querySelector("#actions-message");
    this.graph = section.querySelector("#profile");
    this.buttons = {};
    dialog.addEventListener("close", () => {
      // Told late, it may be of the question before.
      if (!dialog.open) this.#answer(dialog.returnValue === "yes");
    });
    for (const verb of Object.keys(ACTIONS)) {
      const button = element("button", { type: "button", hidden: true });
      button.addEventListener("click", () => this.#choose(verb, this.#name));
      section.querySelector("#actions-buttons").append(button);
      this.buttons[verb] = button;
    }
  }

  /** The buttons that make sense for a model in its state, and are allowed; none for no model. */
  show(model, { isLoaded, hasProcesses, mayLoad, mayRestart, mayProfile }) {
    this.#name = model?.name ?? "";
    setText(this.buttons.load, isLoaded ? "Reload" : "Load");
    setText(this.buttons.unload, "Unload");
    setText(this.buttons.restart, "Restart");
    setText(this.buttons.profile, "Profile");
    this.buttons.profile.hidden = !model || !mayProfile || !hasProcesses;
    this.buttons.load.hidden = !model || !mayLoad;
    this.buttons.unload.hidden = !model || !mayLoad || !isLoaded;
    this.buttons.restart.hidden = !model || !mayRestart || !hasProcesses;
    this.#tell();
  }

  #tell() {
    const { busy, error } = this.#asked.get(this.#name) ?? {};
    for (const button of Object.values(this.buttons)) button.disabled = Boolean(busy);
    this.message.classList.toggle("wrong", Boolean(error));
    setText(this.message, busy ?? error ?? "");
    this.message.hidden = !busy && !error;
    const graph = this.#graphs.get(this.#name);
    this.graph.hidden = !graph;
    if (graph && this.graph.querySelector("img").src !== graph) {
      this.graph.querySelector("img").src = graph;
      this.graph.querySelector("a").href = graph;
      this.graph.querySelector("a").download = `${this.#name}.svg`;
    }
  }

  async #choose(verb, name) {
    const { question, path, busy, body = {} } = ACTIONS[verb];
    if (question && !(await this.confirm(question(name), this.buttons[verb].textContent))) return;
    this.#asked.set(name, { busy });
    this.#tell();
    try {
      const response = await ask("POST", path(name), { body: JSON.stringify(body) });
      if (verb === "profile") this.#graphs.set(name, await dataAddressOf(await response.blob()));
      this.#asked.delete(name);
    } catch (error) {
      const text = error instanceof Refused ? error.message : "The server does not answer.";
      this.#asked.set(name, { error: `Not done: ${text}` });
      if (error.isOfAccess) this.onRefusal(error);
    }
    this.#tell();
    this.onDone();
  }

  /** True if the person says yes; Escape is no. */
  confirm(question, verb) {
    this.#answer(false);
    setText(this.dialog.querySelector("p"), question);
    const yes = this.dialog.querySelector("[value=yes]");
    setText(yes, verb);
    this.dialog.returnValue = "";
    this.dialog.showModal();
    return new Promise((resolve) => {
      this.#answer = resolve;
    });
  }
}

/** An address that a picture may have here; it also keeps a script of the file from running. */
const dataAddressOf = (blob) => new Promise((resolve) => {
  const reader = new FileReader();
  reader.addEventListener("load", () => resolve(reader.result));
  reader.readAsDataURL(blob);
});
