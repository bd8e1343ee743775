// One operation of the API on the page at /docs: what it takes and answers, an example in several
// languages, and a form that sends it.

import { Refused, ask, element, setText } from "./api.js";
import { CODE, neat } from "./docs-code.js";

const JSON_TYPE = "application/json";

export class Operation {
  #method;
  #path;
  #operation;
  #server;
  #examples;
  #fields = new Map();
  #body = null;
  #tabs = [];
  #code = element("pre", { class: "box", tabindex: 0, role: "tabpanel", "aria-label": "Example" });
  #state = element("p", { class: "state", role: "status" });
  #answer = element("pre", { class: "box", tabindex: 0, "aria-label": "Answer", hidden: true });
  #send = element("button", { class: "main", type: "submit" }, "Send");
  #chosen = "";

  constructor(method, path, operation, description) {
    this.#method = method;
    this.#path = path;
    this.#operation = operation;
    this.#server = { grpc: description.info["x-grpc"] };
    /** Called if a key or a token is missing. */
    this.onRefused = () => {};
    const request = operation.requestBody?.content[JSON_TYPE];
    this.#examples = request?.examples ?? {};
    this.element = element("div", { class: "operation" },
      this.#form(request), this.#codes(), ...documents(operation, request, description.components.schemas));
    this.#useExample();
  }

  /** Changes of the server are for those who know what they do: the page sends questions and inferences. */
  get #canBeSent() {
    const { tags } = this.#operation;
    return tags.some((tag) => tag === "inference" || tag.endsWith(".routes")) || (this.#method === "GET" && !tags.includes("pages"));
  }

  #form(request) {
    const form = element("form", {});
    for (const { name, in: place } of this.#operation.parameters ?? []) {
      if (place !== "header") form.append(element("label", {}, name, " ", this.#field(name, place)));
    }
    if (request) {
      this.#body = element("textarea", { spellcheck: "false", rows: 3 });
      this.#body.addEventListener("input", () => this.#show());
      form.append(element("label", { class: "body" }, "Body", this.#body));
    }
    if (this.#canBeSent) {
      form.append(element("div", { class: "actions" }, this.#send, this.#state), this.#answer);
    }
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.#canBeSent) this.#try();
    });
    return form;
  }

  #field(name, place) {
    const models = Object.keys(this.#examples);
    const isChoice = name === "model" && models.length > 0;
    const field = isChoice
      ? element("select", {}, ...models.map((model) => element("option", {}, model)))
      : element("input", { autocomplete: "off", spellcheck: "false", required: place === "path", placeholder: name });
    field.addEventListener("input", () => (isChoice ? this.#useExample() : this.#show()));
    this.#fields.set(name, field);
    return field;
  }

  #codes() {
    const tabs = element("div", { class: "tabs", role: "tablist", "aria-label": "Example" });
    for (const [name, { isFor }] of Object.entries(CODE)) {
      if (!isFor({ method: this.#method, path: this.#path, ...this.#server })) continue;
      const tab = element("button", { type: "button", role: "tab" }, name);
      tab.addEventListener("click", () => this.#choose(name));
      this.#tabs.push(tab);
      tabs.append(tab);
    }
    this.#chosen = this.#tabs[0].textContent;
    return element("div", { class: "codes" }, tabs, this.#code);
  }

  #choose(name) {
    this.#chosen = name;
    this.#show();
  }

  /** Puts the example of the chosen model into the form. */
  #useExample() {
    const model = this.#fields.get("model")?.value ?? Object.keys(this.#examples)[0];
    const example = this.#examples[model];
    if (this.#body && example) this.#body.value = neat(example.value);
    this.#show();
  }

  #show() {
    for (const tab of this.#tabs) {
      const isChosen = tab.textContent === this.#chosen;
      tab.setAttribute("aria-selected", String(isChosen));
    }
    const { path, body } = this.#request();
    setText(this.#code, CODE[this.#chosen].write({ method: this.#method, path, body, ...this.#server }));
  }

  /** What the form says: {path, body}. A field that is empty is named. */
  #request() {
    const path = this.#path.replace(/{(\w+)}/g, (whole, name) =>
      encodeURIComponent(this.#fields.get(name)?.value ?? "") || name.toUpperCase());
    const query = new URLSearchParams();
    for (const { name, in: place } of this.#operation.parameters ?? []) {
      const value = place === "query" && this.#fields.get(name).value;
      if (value) query.set(name, value);
    }
    const body = this.#body?.value.trim() || (this.#operation.requestBody?.required ? "{}" : undefined);
    return { path: query.size ? `${path}?${query}` : path, body };
  }

  async #try() {
    const { path, body } = this.#request();
    const began = performance.now();
    this.#send.disabled = true;
    this.#say("busy", "waiting");
    try {
      const response = await ask(this.#method, path, { body });
      this.#showAnswer("good", `${response.status} ${response.statusText}`, began, await response.text());
    } catch (error) {
      if (error instanceof Refused) {
        this.#showAnswer("bad", error.line, began, error.message);
        if (error.isOfAccess) this.onRefused(error);
      } else {
        console.debug(error);
        this.#showAnswer("bad", "The server does not answer.", began, "");
      }
    } finally {
      this.#send.disabled = false;
    }
  }

  #showAnswer(kind, line, began, text) {
    this.#say(kind, `${line} · ${Math.round(performance.now() - began)} ms`);
    this.#answer.hidden = !text;
    setText(this.#answer, asDocument(text));
  }

  #say(kind, text) {
    this.#state.dataset.kind = kind;
    setText(this.#state, text);
  }
}

function asDocument(text) {
  try {
    return neat(JSON.parse(text));
  } catch {
    return text; // events, metrics, a sentence
  }
}

function* documents(operation, request, schemas) {
  if (request) yield* part("Request", outline(request.schema, schemas));
  for (const [status, { description, content }] of Object.entries(operation.responses)) {
    const [[media, { schema }] = ["", {}]] = Object.entries(content ?? {});
    const title = status === "default" ? "Any other status" : status;
    yield* part(`${title}: ${description} ${media}`.trim(), schema?.$ref ? outline(schema, schemas) : "");
  }
}

function* part(title, text) {
  if (text) yield element("details", {}, element("summary", {}, title), element("pre", { class: "box" }, text));
  else yield element("p", { class: "muted" }, title);
}

/** A schema as a sketch of the document, types in place of values. */
function outline(schema, schemas, indent = "") {
  if (schema.$ref) return outline(schemas[schema.$ref.split("/").at(-1)], schemas, indent);
  const deeper = `${indent}  `;
  if (schema.properties) {
    const lines = Object.entries(schema.properties).map(([name, value]) => {
      const optional = schema.required?.includes(name) ? "" : "?";
      return `${deeper}${name}${optional}: ${outline(value, schemas, deeper)}`;
    });
    return `{\n${lines.join("\n")}\n${indent}}`;
  }
  if (schema.type === "array") {
    return schema.items ? `[${outline(schema.items, schemas, indent)}, …]` : `[…] ${schema.description ?? ""}`.trim();
  }
  if (schema.enum) return schema.enum.join(" | ");
  if (schema.additionalProperties) return `{name: ${outline(schema.additionalProperties, schemas, indent)}, …}`;
  return [schema.type].flat().join(" | ") + (schema.description ? `  (${schema.description})` : "");
}
