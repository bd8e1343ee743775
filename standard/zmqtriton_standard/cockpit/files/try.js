// The form that tries one model: fields from its metadata, an answer or a stream of them.

import { Refused, ask, curlCommand, element, setText } from "./api.js";
import { eventsOf, fold } from "./events.js";
import { openSocket, responsesOf } from "./sockets.js";
import { modelPath } from "./sources.js";
import * as tensors from "./tensors.js";

const MAX_EVENTS = 500;
let unique = 0;

/** What the configuration says in a few words; nothing where it may not be read. */
export function factsOf(config) {
  if (!config) return [];
  const facts = [config.platform || config.backend];
  if (config.max_batch_size) facts.push(`batches up to ${config.max_batch_size}`);
  if (config.model_transaction_policy?.decoupled) facts.push("decoupled");
  if (config.sequence_batching) facts.push("sequences");
  const instances = instancesOf(config);
  if (instances) facts.push(instances);
  return facts;
}

export function instancesOf(config) {
  const groups = (config?.instance_group ?? []).map((group) => {
    const kind = (group.kind ?? "").replace("KIND_", "");
    const copies = group.count * (group.gpus?.length || 1);
    return `${copies} × ${kind}${group.gpus?.length ? ` ${group.gpus.join(",")}` : ""}`;
  });
  return groups.join(", ");
}

/** One input: its label, its field, and for a free shape a field for that. */
class Field {
  constructor(input, isOptional, parameters) {
    this.input = input;
    const id = `field${++unique}`;
    this.text = element("textarea", { id, spellcheck: "false", rows: 1, "aria-describedby": `${id}h` });
    this.text.value = tensors.example(input, parameters);
    this.shape = element("input", { id: `${id}s`, autocomplete: "off", spellcheck: "false" });
    this.isSent = element("input", { type: "checkbox" });
    this.isSent.checked = !isOptional;
    this.wrong = element("p", { id: `${id}h`, class: "wrong" });

    const head = element("div", { class: "field-head" },
      element("label", { for: id }, input.name),
      element("span", { class: "type" }, `${input.datatype} ${tensors.write(input.shape)}`));
    if (isOptional) {
      head.append(element("label", { class: "optional" }, this.isSent, "send",
        element("span", { class: "unseen" }, ` ${input.name}`)));
    }
    // What is not sent takes no room.
    this.rest = element("div", {}, this.text);
    this.element = element("div", { class: "field" }, head, this.rest);
    const isFree = input.shape.includes(-1);
    if (isFree) {
      this.rest.append(element("div", { class: "shape" },
        element("label", { for: this.shape.id, class: "hint" }, "shape"), this.shape));
    }
    if (input.datatype === "BYTES" && (isFree || tensors.count(input.shape) > 1)) {
      this.rest.append(element("p", { class: "hint" }, "One element per line."));
    } else if (this.text.value.length < 6 && tensors.count(input.shape) > 1) {
      this.rest.append(element("p", { class: "hint" }, "A single value fills the tensor."));
    }
    this.rest.append(this.wrong);
    this.element.addEventListener("input", () => this.#look());
    this.#look();
  }

  get isWanted() {
    return this.isSent.checked;
  }

  /** What will be sent; throws, and says so at the field, what cannot be. */
  read() {
    try {
      const found = tensors.read(this.text.value, this.input, this.shape.value);
      this.#say("");
      return found;
    } catch (error) {
      this.#say(error.message);
      throw error;
    }
  }

  #look() {
    this.rest.hidden = !this.isWanted;
    if (!this.isWanted) return this.#say("");
    try {
      this.shape.placeholder = tensors.write(this.read().shape);
    } catch {
      this.shape.placeholder = "";
    }
  }

  #say(text) {
    setText(this.wrong, text);
    this.text.setAttribute("aria-invalid", String(Boolean(text)));
  }
}

/** The body of the panel for one model; `stop` ends what it has under way. */
export class Trial {
  /** `codes` returns what shows a path and a body as code, after curl. */
  constructor(metadata, config, version, onRefusal, codes = () => []) {
    this.codes = codes;
    this.name = metadata.name;
    this.onRefusal = onRefusal;
    this.path = modelPath(metadata.name, version);
    this.isStream = Boolean(config?.model_transaction_policy?.decoupled);
    const optional = new Set((config?.input ?? []).filter((i) => i.optional).map((i) => i.name));
    const inputs = metadata.inputs ?? [];
    this.fields = inputs.map((input) => new Field(input, optional.has(input.name), config?.parameters));
    this.parameters = element("textarea", {
      rows: 1, spellcheck: "false", "aria-label": "Parameters, a JSON object",
      placeholder: '{"key": "value"}',
    });
    this.parametersWrong = element("p", { class: "wrong" });
    if (config?.sequence_batching) {
      this.parameters.value = '{"sequence_id": 1, "sequence_start": true, "sequence_end": false}';
    }
    this.run = element("button", { class: "main", title: "Ctrl+Enter" }, this.isStream ? "Stream" : "Run");
    this.halt = element("button", { type: "button", hidden: true }, "Stop");
    this.status = element("span", { class: "state", role: "status", hidden: true });
    this.answer = element("div", { class: "answer" });
    this.element = this.#layout(metadata, config);
    this.halt.addEventListener("click", () => this.stop());
  }

  stop() {
    this.controller?.abort();
  }

  #layout(metadata, config) {
    const outputs = (metadata.outputs ?? []).map((output) =>
      `${output.name} ${output.datatype} ${tensors.write(output.shape)}`);
    const unsendable = this.fields.filter((field) => field.isWanted).map((field) => field.input)
      .filter((input) => tensors.BINARY_ONLY.includes(input.datatype));
    const form = element("form", { novalidate: true, "aria-label": `Inputs of ${this.name}` },
      element("p", { class: "muted" }, factsOf(config).join(" · ")),
      ...this.fields.map((field) => field.element));
    if (unsendable.length) {
      form.append(element("p", { class: "wrong" },
        `JSON cannot carry ${unsendable[0].datatype}: this model needs a client that sends binary tensors.`));
    }
    const more = element("details", {}, element("summary", {}, "Parameters"),
      this.parameters, this.parametersWrong);
    more.open = Boolean(this.parameters.value);
    form.append(more,
      element("div", { class: "actions" }, this.run, this.halt, this.status),
      element("p", { class: "hint" }, "Answers ", element("span", { class: "mono" }, outputs.join(", ") || "nothing")));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (!this.controller) this.#start();
    });
    form.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
    });
    return element("div", {}, form, this.answer);
  }

  /** The JSON of the request, and that for `generate_stream`, made as text: numbers stay as they were typed. */
  #bodies() {
    const read = this.fields.filter((field) => field.isWanted).map((field) => {
      try {
        return { ...field.read(), name: JSON.stringify(field.input.name), datatype: field.input.datatype };
      } catch (error) {
        field.text.focus();
        throw error;
      }
    });
    const typed = this.#readParameters();
    const parameters = typed ? [`"parameters": ${typed}`] : [];
    const inputs = read.map(({ name, datatype, shape, elements }) =>
      `{"name": ${name}, "datatype": "${datatype}", "shape": ${tensors.write(shape)}, "data": ${elements}}`);
    const members = read.map(({ name, elements }) => `${name}: ${elements}`);
    return {
      infer: [`"inputs": [${inputs.join(", ")}]`, ...parameters].join(", "),
      generate: `{${[...members, ...parameters].join(", ")}}`,
    };
  }

  /** The text of the parameters; throws, and says so at their field, what is no JSON object. */
  #readParameters() {
    const typed = this.parameters.value.trim();
    try {
      if (typed && (!typed.startsWith("{") || !JSON.parse(typed))) throw new SyntaxError();
      setText(this.parametersWrong, "");
    } catch (error) {
      setText(this.parametersWrong, 'This is no JSON object, like {"key": "value"}.');
      this.parameters.closest("details").open = true;
      this.parameters.setAttribute("aria-invalid", "true");
      this.parameters.focus();
      throw error;
    }
    this.parameters.setAttribute("aria-invalid", "false");
    return typed;
  }

  async #start() {
    this.answer.replaceChildren();
    let bodies;
    try {
      bodies = this.#bodies();
    } catch {
      // What is wrong stands at its field.
      return this.#say("bad", "Not sent.");
    }
    const url = `${this.path}/${this.isStream ? "generate_stream" : "infer"}`;
    const body = this.isStream ? bodies.generate : `{${bodies.infer}}`;
    this.controller = new AbortController();
    const { signal } = this.controller;
    this.run.disabled = true;
    this.halt.hidden = false;
    this.#say("busy", "under way");
    const began = performance.now();
    const since = () => performance.now() - began;
    try {
      const socket = this.isStream ? await openSocket(`${this.path}/stream`) : null;
      if (socket) await this.#follow(responsesOf(socket, bodies.infer, signal), "WebSocket", since);
      else {
        // Without a socket the answer says why, or comes where a proxy lets no sockets through.
        const response = await ask("POST", url, { body, signal });
        const line = `${response.status} ${response.statusText}`.trim();
        if (this.isStream) await this.#follow(generated(response), line, since);
        else await this.#take(response, line, since);
      }
    } catch (error) {
      this.#fail(error, since());
    } finally {
      this.controller = null;
      this.run.disabled = false;
      this.halt.hidden = true;
      this.answer.append(curl(url, body), ...this.codes(url, body));
    }
  }

  async #take(response, line, since) {
    const text = await response.text();
    this.#say("good", `${line} · ${milliseconds(since())}`);
    for (const output of JSON.parse(text).outputs ?? []) {
      this.answer.append(
        element("h3", {}, output.name, " ",
          element("span", { class: "type" }, `${output.datatype} ${tensors.write(output.shape)}`)),
        element("pre", { class: "box", tabindex: 0, "aria-label": output.name }, tensors.show(output)));
    }
    this.answer.append(fold("Answer as JSON", text));
  }

  /** Shows each response as it comes: its error, or its outputs by their names. */
  async #follow(items, line, since) {
    const list = element("ol", { class: "events box mono", tabindex: 0, "aria-label": "Responses" });
    this.answer.append(list);
    let number = 0, failed = false;
    for await (const { error, outputs } of items) {
      number += 1;
      failed ||= error !== undefined;
      list.append(element("li", { class: error === undefined ? "" : "wrong" },
        element("time", {}, `+${milliseconds(since())}`), element("span", {}, error ?? fieldsOf(outputs))));
      if (list.children.length > MAX_EVENTS) list.firstChild.remove();
      list.scrollTop = list.scrollHeight;
      this.#say("busy", `${line} · ${responses(number)}`);
    }
    this.#say(failed ? "bad" : "good", `${line} · ${responses(number)} · ${milliseconds(since())}`);
  }

  #fail(error, after) {
    if (error.name === "AbortError") return this.#say("busy", `stopped after ${milliseconds(after)}`);
    if (!(error instanceof Refused)) return this.#say("bad", "The server does not answer.");
    if (error.isOfAccess) this.onRefusal(error);
    this.#say("bad", `${error.line} · ${milliseconds(after)}`);
    this.answer.append(element("pre", { class: "box wrong" }, error.message));
  }

  #say(kind, text) {
    this.status.hidden = false;
    this.status.dataset.kind = kind;
    setText(this.status, text);
  }
}

const fieldsOf = (outputs) =>
  Object.entries(outputs).map(([name, value]) => `${name} ${JSON.stringify(value)}`).join("  ");

/** What the events of `generate_stream` say. */
async function* generated(response) {
  for await (const data of eventsOf(response)) {
    const { model_name, model_version, error, ...outputs } = JSON.parse(data);
    yield { error, outputs };
  }
}

const responses = (number) => `${number} ${number === 1 ? "response" : "responses"}`;

const milliseconds = (ms) => (ms < 10 ? `${ms.toFixed(1)} ms` : `${Math.round(ms)} ms`);

/** The same inference for a shell. */
function curl(path, body) {
  return fold("The same with curl", curlCommand("POST", path, body));
}
