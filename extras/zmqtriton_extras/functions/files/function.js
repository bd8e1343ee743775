// The form of a model with a schema of its arguments: fields by their kinds, files among them, and
// examples to press. answers.js shows what comes, code.js writes the same request as code.

import { Refused, accessHeaders, ask, element, setText } from "./api.js";
import { Answers, parsed } from "./answers.js";
import { inPython, withOpenAi } from "./code.js";
import { eventsOf, fold } from "./events.js";

/** Bytes of a chosen file that is shown next to its field. */
const MAX_PREVIEW = 8 << 20;
/** Letters of an example on its button. */
const MAX_LABEL = 32;
let unique = 0;

const isFile = (schema) => schema.contentEncoding === "base64";
const hasFiles = (schema) => isFile(schema) || isFile(schema.items ?? {});
const typed = (value) => (typeof value === "string" ? value : JSON.stringify(value));

function typeOf(schema) {
  if (hasFiles(schema)) return isFile(schema) ? "file" : "files";
  const shape = schema["x-dims"] ? `${schema["x-datatype"]} [${schema["x-dims"].join(", ")}]` : "";
  return shape || (schema.contentMediaType ? "JSON" : schema.type) || "";
}

/** One argument: its label and its field. */
class Argument {
  constructor(name, schema, isRequired, example) {
    this.name = name;
    this.schema = schema;
    const id = `argument${++unique}`;
    this.input = this.#input({ id, name, required: isRequired });
    this.preview = element("div", { class: "preview" });
    this.input.addEventListener("change", () => this.#look());
    if (example !== undefined) this.fill(example);
    this.element = element("div", { class: "field" },
      element("div", { class: "field-head" }, element("label", { for: id }, name),
        element("span", { class: "type" }, [typeOf(schema), isRequired ? "" : "optional"].filter(Boolean).join(", "))),
      this.input, this.preview,
      ...(schema.description ? [element("p", { class: "hint" }, schema.description)] : []));
  }

  /** Shows pictures that are chosen, and lets sounds be heard. */
  #look() {
    this.preview.replaceChildren();
    for (const file of this.input.files ?? []) {
      const kind = file.type.split("/")[0];
      if (file.size > MAX_PREVIEW || !["image", "audio"].includes(kind)) continue;
      const reader = new FileReader();
      reader.addEventListener("load", () => this.preview.append(kind === "image"
        ? element("img", { src: reader.result, alt: file.name })
        : element("audio", { src: reader.result, controls: true, "aria-label": file.name })));
      reader.readAsDataURL(file);
    }
  }

  #input(attributes) {
    const { schema } = this;
    if (hasFiles(schema)) {
      const kind = (schema.contentMediaType ?? "").split("/")[0];
      const accept = ["image", "audio"].includes(kind) ? `${kind}/*` : undefined;
      return element("input", { ...attributes, type: "file", accept, multiple: !isFile(schema) });
    }
    const values = schema.enum ?? (schema.type === "boolean" ? [true, false] : null);
    if (values) {
      const options = values.map((each) => element("option", {}, String(each)));
      const none = schema.default == null ? "" : `${schema.default} (default)`;
      if (!attributes.required) options.unshift(element("option", { value: "" }, none));
      return element("select", attributes, ...options);
    }
    const placeholder = schema.default == null ? "" : typed(schema.default);
    return element("textarea", { ...attributes, rows: 1, spellcheck: "false", placeholder });
  }

  /** Fills the field with a value of an example; undefined empties it. */
  fill(example) {
    if (!hasFiles(this.schema)) {
      this.input.value = example === undefined ? "" : typed(example);
      return;
    }
    const files = new DataTransfer();
    const type = (this.schema.items ?? this.schema).contentMediaType ?? "";
    const suffix = type.match(/^(?:image|audio)\/(.*)/)?.[1] ?? "bin";
    for (const text of [example ?? []].flat()) {
      const bytes = Uint8Array.from(atob(text.split(",").at(-1)), (letter) => letter.charCodeAt(0));
      files.items.add(new File([bytes], `example.${suffix}`, { type }));
    }
    this.input.files = files.files;
    this.#look();
  }

  /** The files or the text that will be sent; an empty list for nothing. */
  values() {
    const values = hasFiles(this.schema) ? [...this.input.files] : [this.input.value];
    return values.filter((value) => value !== "" || this.input.required);
  }

  /** Adds the value to a form, and its words to a command; what is empty is left out. */
  add(form, words) {
    for (const value of this.values()) {
      form.append(this.name, value);
      words.push("-F", quoted(`${this.name}=${value instanceof File ? `@${value.name}` : value}`));
    }
  }
}

const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

/** The body of the panel for one model; `stop` ends what it has under way. */
export class Form {
  /** `schema` has `about`, `is_stream`, the schemas of `input` and `output`, and it may have `examples`,
   * and `openai`: the kind and the name of the argument that OpenAI's clients send. */
  constructor(name, schema, onRefusal, example = schema.examples?.[0] ?? {}) {
    this.name = name;
    this.schema = schema;
    this.onRefusal = onRefusal;
    const { properties, required } = schema.input;
    this.fields = Object.entries(properties)
      .map(([each, of]) => new Argument(each, of, required.includes(each), example[each]));
    this.run = element("button", { class: "main", title: "Ctrl+Enter" }, "Run");
    this.halt = element("button", { type: "button", hidden: true }, "Stop");
    this.status = element("span", { class: "state", role: "status", hidden: true });
    this.answer = element("div", { class: "answer" });
    const codes = [["The same with curl", () => this.command], ["The same in Python", inPython],
      ...(schema.openai ? [["The same with OpenAI's client", withOpenAi]] : [])];
    this.codes = codes.map(([title, write]) => ({ element: fold(title, ""), write }));
    const form = element("form", { "aria-label": `Arguments of ${name}` },
      element("p", { class: "muted about" }, schema.about), ...this.#examples(schema.examples ?? []),
      ...this.fields.map((field) => field.element),
      element("div", { class: "actions" }, this.run, this.halt, this.status),
      ...this.codes.map((code) => code.element));
    for (const event of ["input", "change"]) form.addEventListener(event, () => this.#body());
    this.#body();
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

  /** A button for each example, which fills all fields. */
  #examples(examples) {
    if (!examples.length) return [];
    const buttons = examples.map((example, at) => {
      const button = element("button", { type: "button" }, labelOf(example, this.schema.input) || `Example ${at + 1}`);
      button.addEventListener("click", () => {
        for (const field of this.fields) field.fill(example[field.name]);
        this.#body();
      });
      return button;
    });
    return [element("div", { class: "actions examples", role: "group", "aria-label": "Examples" }, ...buttons)];
  }

  /** The form to be sent, which the codes are shown to send, too. */
  #body() {
    const body = new FormData();
    const words = ["curl", this.schema.is_stream ? "-sN" : "-s", quoted(`${location.origin}/${this.name}`)];
    for (const header of accessHeaders()) words.push("-H", quoted(header));
    for (const field of this.fields) field.add(body, words);
    if ([...body].length === 0) words.push("-d", "''");
    this.command = words.join(" ");
    for (const { element: each, write } of this.codes) setText(each.querySelector("pre"), write(this));
    return body;
  }

  async #start() {
    const body = this.#body();
    this.answer.replaceChildren();
    const answers = new Answers(this.answer, this.schema);
    this.controller = new AbortController();
    this.run.disabled = true;
    this.halt.hidden = false;
    this.#say("busy", "under way");
    try {
      const { signal } = this.controller;
      const response = await ask("POST", `/${encodeURIComponent(this.name)}`, { body, signal });
      const texts = this.schema.is_stream ? eventsOf(response) : [await response.text()];
      let isWrong = false;
      for await (const text of texts) isWrong = !answers.show(parsed(text)) || isWrong;
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
    }
  }

  #say(kind, text) {
    this.status.hidden = false;
    this.status.dataset.kind = kind;
    setText(this.status, text);
  }
}

/** The words of an example on its button: its shortest text, or nothing. */
function labelOf(example, { properties }) {
  const texts = Object.entries(example).filter(([name, value]) => !hasFiles(properties[name]) && typeof value !== "object")
    .map(([name, value]) => (typeof value === "string" ? value : `${name} ${value}`));
  const label = texts.join(", ");
  return label.length > MAX_LABEL ? `${label.slice(0, MAX_LABEL)}…` : label;
}
