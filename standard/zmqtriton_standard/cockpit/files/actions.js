// The buttons that load, unload and restart a model; what goes wrong is said beside them.

import { Refused, ask, element, setText } from "./api.js";
import { modelPath } from "./sources.js";

const repositoryPath = (name) => `/v2/repository/models/${encodeURIComponent(name)}`;
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
};

export class Actions {
  /** Name to {busy} or {error}: what was asked for last, also while another model is shown. */
  #asked = new Map();
  #name = "";
  /** Takes the answer to the question that is open. */
  #answer = () => {};

  /** `onDone` is called when the server has answered; `onRefusal` with what a key would help. */
  constructor(section, dialog, onDone, onRefusal) {
    this.dialog = dialog;
    this.onDone = onDone;
    this.onRefusal = onRefusal;
    this.message = section.querySelector("#actions-message");
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
  show(model, { isLoaded, hasProcesses, mayLoad, mayRestart }) {
    this.#name = model?.name ?? "";
    setText(this.buttons.load, isLoaded ? "Reload" : "Load");
    setText(this.buttons.unload, "Unload");
    setText(this.buttons.restart, "Restart");
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
  }

  async #choose(verb, name) {
    const { question, path, busy } = ACTIONS[verb];
    if (question && !(await this.confirm(question(name), this.buttons[verb].textContent))) return;
    this.#asked.set(name, { busy });
    this.#tell();
    try {
      await ask("POST", path(name), { body: "{}" });
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
