// The form of a model with a schema of its arguments: fields by their kinds, files among them, and
// answers as texts, pictures and sounds.

import { Refused, ask, element, setText } from "./api.js";
import { eventsOf, fold } from "./events.js";

let unique = 0;

const isFile = (schema) => schema.contentEncoding === "base64";
const isMedia = (value, kind) => typeof value === "string" && value.startsWith(`data:${kind}/`);

function typeOf(schema) {
  if (isFile(schema)) return "file";
  const shape = schema["x-dims"] ? `${schema["x-datatype"]} [${schema["x-dims"].join(", ")}]` : "";
  return shape || (schema.contentMediaType ? "JSON" : schema.type) || "";
}

/** One argument: its label and its field. */
class Argument {
  constructor(name, schema, isRequired) {
    this.name = name;
    this.schema = schema;
    const id = `argument${++unique}`;
    this.input = this.#input({ id, name, required: isRequired });
    this.element = element("div", { class: "field" },
      element("div", { class: "field-head" }, element("label", { for: id }, name),
        element("span", { class: "type" }, typeOf(schema) + (isRequired ? "" : ", optional"))),
      this.input);
  }

  #input(attributes) {
    const { schema } = this;
    if (isFile(schema)) {
      const kind = (schema.contentMediaType ?? "").split("/")[0];
      const accept = ["image", "audio"].includes(kind) ? `${kind}/*` : undefined;
      return element("input", { ...attributes, type: "file", accept });
    }
    const values = schema.enum ?? (schema.type === "boolean" ? [true, false] : null);
    if (values) {
      const options = attributes.required ? values : ["", ...values];
      return element("select", attributes, ...options.map((each) => element("option", {}, String(each))));
    }
    const placeholder = schema.default == null ? "" : String(schema.default);
    return element("textarea", { ...attributes, rows: 1, spellcheck: "false", placeholder });
  }

  /** Adds the value to a form, and its words to a command; what is empty is left out. */
  add(form, words) {
    const value = isFile(this.schema) ? this.input.files[0] : this.input.value;
    if (value === undefined || (value === "" && !this.input.required)) return;
    form.append(this.name, value);
    words.push("-F", quoted(`${this.name}=${value instanceof File ? `@${value.name}` : value}`));
  }
}

const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

/** The body of the panel for one model; `stop` ends what it has under way. */
export class Form {
  constructor(name, config, onRefusal) {
    this.name = name;
    /** The schema of arguments and answer. */
    const schema = JSON.parse(config.parameters.FUNCTION.string_value);
    this.schema = schema;
    this.onRefusal = onRefusal;
    const { properties, required } = schema.input;
    this.fields = Object.entries(properties)
      .map(([each, of]) => new Argument(each, of, required.includes(each)));
    this.run = element("button", { class: "main", title: "Ctrl+Enter" }, "Run");
    this.halt = element("button", { type: "button", hidden: true }, "Stop");
    this.status = element("span", { class: "state", role: "status", hidden: true });
    this.answer = element("div", { class: "answer" });
    const form = element("form", { "aria-label": `Arguments of ${name}` },
      element("p", { class: "muted" }, schema.about), ...this.fields.map((field) => field.element),
      element("div", { class: "actions" }, this.run, this.halt, this.status));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (!this.controller) this.#start();
    });
    form.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
    });
    this.halt.addEventListener("click", () => this.stop());
    this.element = element("div", {}, form, this.answer);
  }

  stop() {
    this.controller?.abort();
  }

  async #start() {
    const body = new FormData(), words = ["curl", quoted(`${location.origin}/${this.name}`)];
    for (const field of this.fields) field.add(body, words);
    this.answer.replaceChildren();
    this.controller = new AbortController();
    this.run.disabled = true;
    this.halt.hidden = false;
    this.#say("busy", "under way");
    try {
      const { signal } = this.controller;
      const response = await ask("POST", `/${encodeURIComponent(this.name)}`, { body, signal });
      const texts = this.schema.is_stream ? eventsOf(response) : [await response.text()];
      let isWrong = false;
      for await (const text of texts) isWrong = !this.#show(JSON.parse(text)) || isWrong;
      this.#say(isWrong ? "bad" : "good", `${response.status} ${response.statusText}`.trim());
    } catch (error) {
      if (error.isOfAccess) this.onRefusal(error);
      const line = error instanceof Refused ? error.line : "The server does not answer.";
      this.#say("bad", error.name === "AbortError" ? "stopped" : line);
      this.answer.append(element("pre", { class: "box wrong" }, error.message));
    } finally {
      this.controller = null;
      this.run.disabled = false;
      this.halt.hidden = true;
      this.answer.append(fold("The same with curl", words.join(" ")));
    }
  }

  /** Shows one answer; false for an error in its place. */
  #show(document) {
    for (const [name, value] of Object.entries(document)) this.answer.append(shown(name, value));
    return document.error === undefined || "error" in this.schema.output.properties;
  }

  #say(kind, text) {
    this.status.hidden = false;
    this.status.dataset.kind = kind;
    setText(this.status, text);
  }
}

/** A value for people: a picture as one, a sound to be played, any other file to be kept. */
function shown(name, value) {
  if (isMedia(value, "image")) return element("img", { src: value, alt: name });
  if (isMedia(value, "audio")) return element("audio", { src: value, controls: true, "aria-label": name });
  if (isMedia(value, "application")) return element("a", { href: value, download: name }, name);
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return element("pre", { class: "box", tabindex: 0, "aria-label": name }, text);
}
