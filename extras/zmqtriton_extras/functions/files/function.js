// The form of a model with a schema of its arguments: fields by their kinds, files among them, and
// answers as texts, tables, pictures and sounds.

import { Refused, accessHeaders, ask, element, setText } from "./api.js";
import { eventsOf, fold } from "./events.js";

/** Rows of a table that are shown. */
const MAX_ROWS = 100;
let unique = 0;

const isFile = (schema) => schema.contentEncoding === "base64";
const hasFiles = (schema) => isFile(schema) || isFile(schema.items ?? {});
const typed = (value) => (typeof value === "string" ? value : JSON.stringify(value));
const isMedia = (value, kind) => typeof value === "string" && value.startsWith(`data:${kind}/`);

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
    if (example !== undefined) this.#fill(example);
    this.element = element("div", { class: "field" },
      element("div", { class: "field-head" }, element("label", { for: id }, name),
        element("span", { class: "type" }, [typeOf(schema), isRequired ? "" : "optional"].filter(Boolean).join(", "))),
      this.input);
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

  #fill(example) {
    if (!hasFiles(this.schema)) {
      this.input.value = typed(example);
      return;
    }
    const files = new DataTransfer();
    const suffix = this.schema.contentMediaType?.match(/^(?:image|audio)\/(.*)/)?.[1] ?? "bin";
    for (const text of [example].flat()) {
      const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
      files.items.add(new File([bytes], `example.${suffix}`));
    }
    this.input.files = files.files;
  }

  /** Adds the value to a form, and its words to a command; what is empty is left out. */
  add(form, words) {
    const values = hasFiles(this.schema) ? this.input.files : [this.input.value];
    for (const value of values) {
      if (value === "" && !this.input.required) continue;
      form.append(this.name, value);
      words.push("-F", quoted(`${this.name}=${value instanceof File ? `@${value.name}` : value}`));
    }
  }
}

const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

/** The body of the panel for one model; `stop` ends what it has under way. */
export class Form {
  /** `schema` has `about`, `is_stream`, and the schemas of `input` and `output`. */
  constructor(name, schema, onRefusal, example = {}) {
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
    const command = fold("The same with curl", "");
    this.command = command.querySelector("pre");
    const form = element("form", { "aria-label": `Arguments of ${name}` },
      element("p", { class: "muted about" }, schema.about), ...this.fields.map((field) => field.element),
      element("div", { class: "actions" }, this.run, this.halt, this.status), command);
    form.addEventListener("input", () => this.#body());
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

  /** The form to be sent, which curl is shown to send, too. */
  #body() {
    const body = new FormData();
    const words = ["curl", this.schema.is_stream ? "-sN" : "-s", quoted(`${location.origin}/${this.name}`)];
    for (const header of accessHeaders()) words.push("-H", quoted(header));
    for (const field of this.fields) field.add(body, words);
    if ([...body].length === 0) words.push("-d", "''");
    setText(this.command, words.join(" "));
    return body;
  }

  async #start() {
    const body = this.#body();
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
      for await (const text of texts) isWrong = !this.#show(parsed(text)) || isWrong;
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

  /** Shows one answer; false for an error in its place. */
  #show(document) {
    const names = Object.keys(document);
    for (const name of names) {
      if (names.length > 1) this.answer.append(element("h3", {}, name));
      this.answer.append(shown(name, document[name]));
    }
    return document.error === undefined || "error" in this.schema.output.properties;
  }

  #say(kind, text) {
    this.status.hidden = false;
    this.status.dataset.kind = kind;
    setText(this.status, text);
  }
}

/** What no JSON is, though numbers are: it becomes a text that begins with a letter of no text. */
const ODD = "\u0000";

function parsed(text) {
  return JSON.parse(text.replace(/"(?:[^"\\]|\\.)*"|-?\b(?:NaN|Infinity)\b/g,
    (word) => (word.startsWith('"') ? word : `"\\u0000${word}"`)));
}

function textOf(value) {
  if (typeof value === "string") return value.replace(ODD, "");
  return JSON.stringify(value).replace(/"\\u0000(-?\w+)"/g, "$1");
}

/** A value for people: a picture as one, a sound to be played, rows as a table, any other file to be kept. */
function shown(name, value) {
  if (isMedia(value, "image")) return element("img", { src: value, alt: name });
  if (isMedia(value, "audio")) return element("audio", { src: value, controls: true, "aria-label": name });
  if (isMedia(value, "application")) return element("a", { href: value, download: name }, name);
  if (isTable(value)) return table(name, value);
  return element("pre", { class: "box", tabindex: 0, "aria-label": name }, textOf(value));
}

const isTable = (value) => Array.isArray(value) && value.length > 0
  && value.every((row) => row !== null && typeof row === "object" && !Array.isArray(row));

function table(name, rows) {
  const columns = [...new Set(rows.flatMap(Object.keys))];
  const head = element("tr", {}, ...columns.map((column) => element("th", { scope: "col" }, column)));
  const body = rows.slice(0, MAX_ROWS).map((row) => element("tr", {},
    ...columns.map((column) => element("td", {}, column in row ? textOf(row[column]) : ""))));
  const more = rows.length > MAX_ROWS ? [element("caption", {}, `${MAX_ROWS} of ${rows.length} rows`)] : [];
  return element("div", { class: "box scroll", tabindex: 0, role: "group", "aria-label": name },
    element("table", {}, ...more, element("thead", {}, head), element("tbody", {}, ...body)));
}
