// The part of the page in which a model is tried: its form stays, with what was typed and answered,
// while the model is away.

import { askJson, element, setText } from "./api.js";
import { attempt, modelPath } from "./sources.js";
import { Trial } from "./try.js";
import { keyOf } from "./models.js";
import { stateOf } from "./words.js";

const LATE_MS = 15000;

const nothing = () => ({ key: "", kind: "", source: "", form: null, chat: null });

function stop({ form, chat }) {
  form?.stop();
  chat?.stop();
}

export class Trials {
  /** What is shown: the key of its model, how that was, and what its form was made of. */
  #shown = nothing();

  /** `onRefusal` is called with what a key would help, `onChange` when nobody waits for it. */
  constructor(section, onRefusal, onChange) {
    this.title = section.querySelector("#try-title");
    this.note = section.querySelector("#try-note");
    this.body = section.querySelector("#try-body");
    this.onRefusal = onRefusal;
    this.onChange = onChange;
  }

  /** Make the form anew at the next look. */
  forget() {
    stop(this.#shown);
    this.#shown = nothing();
  }

  async show(model, hasOpenAi) {
    const key = keyOf(model);
    if (this.#shown.key !== key) this.#begin(key, model);
    const { word, kind } = stateOf(model);
    // Of one that is unknown for no reason only the server can tell.
    const isTried = kind === "good" || (kind === "unknown" && !model.reason);
    this.#tell(isTried ? "" : `It cannot be tried now. ${model.reason || `It is ${word}.`}`);
    const isNews = this.#shown.kind !== kind;
    this.#shown.kind = kind;
    if (isTried && isNews) await this.#makeForm(model, hasOpenAi);
  }

  #begin(key, model) {
    this.forget();
    this.#shown.key = key;
    this.onChange();
    setText(this.title, `Try ${model.name}`);
    this.body.replaceChildren();
  }

  async #makeForm({ name, version }, hasOpenAi) {
    const mine = this.#shown;
    const path = modelPath(name, version);
    const signal = AbortSignal.timeout(LATE_MS);
    const [metadata, config] = await Promise.all([
      attempt(askJson("GET", path, { signal })),
      attempt(askJson("GET", `${path}/config`, { signal })),
    ]);
    if (this.#shown !== mine) return;
    if (metadata.refused) {
      mine.kind = ""; // to be asked for again
      this.#tell(`It cannot be tried now. ${metadata.refused.message}`);
      return;
    }
    const source = JSON.stringify([metadata.value, config.value]);
    if (source === mine.source) return;
    stop(mine);
    mine.source = source;
    // Loaded where it is needed: most models have no schema of their arguments.
    const functions = config.value?.parameters?.FUNCTION ? await import("./function.js") : null;
    if (this.#shown !== mine) return;
    const schema = functions && JSON.parse(config.value.parameters.FUNCTION.string_value);
    mine.form = functions ? new functions.Form(name, schema, this.onRefusal)
      : new Trial(metadata.value, config.value, version, this.onRefusal);
    // Loaded where it is needed: most servers make no text.
    const chats = hasOpenAi ? await import("./chat.js") : null;
    if (this.#shown !== mine) return;
    const isChat = chats?.isChatModel(metadata.value, config.value);
    mine.chat = isChat ? new chats.Chat(name, this.onRefusal) : null;
    this.body.replaceChildren(...(mine.chat ? [mine.chat.element] : []), mine.form.element);
  }

  #tell(text) {
    setText(this.note, text);
    this.note.hidden = !text;
  }
}
