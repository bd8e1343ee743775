// A chat with a model by OpenAI's API: what was said, and the answer as it comes.

import { Refused, ask, curlCommand, element, setText } from "./api.js";
import { eventsOf, fold } from "./events.js";

const PATH = "/v1/chat/completions";
/** How often what has come of an answer is written: each time lays out all of it. */
const WRITE_MS = 50;

/** True if a model of these tensors makes text from text, as OpenAI's API needs it. */
export function isChatModel(metadata, config) {
  const nameOf = (key, standard) => config?.parameters?.[`openai_${key}`]?.string_value || standard;
  const has = (list, name) => (list ?? []).some((tensor) => tensor.name === name);
  const inputs = [nameOf("messages_input", ""), nameOf("text_input", "text_input")];
  return inputs.some((name) => has(metadata.inputs, name))
    && has(metadata.outputs, nameOf("text_output", "text_output"));
}

export class Chat {
  /** What was said so far, as the server gets it. */
  #messages = [];
  #controller = null;

  /** `onRefusal` is called with what a key would help. */
  constructor(model, onRefusal) {
    this.model = model;
    this.onRefusal = onRefusal;
    this.list = element("ol", { class: "chat", role: "log", "aria-label": "Chat", tabindex: 0 });
    this.text = element("textarea", { rows: 1, "aria-label": "Message", placeholder: "a question" });
    this.send = element("button", { class: "main", title: "Enter" }, "Send");
    this.halt = element("button", { type: "button", hidden: true }, "Stop");
    this.anew = element("button", { type: "button", hidden: true }, "New chat");
    this.wrong = element("p", { class: "wrong", role: "status" });
    const form = element("form", {}, this.text,
      element("div", { class: "actions" }, this.send, this.halt, this.anew), this.wrong);
    const example = JSON.stringify({ model, messages: [{ role: "user", content: "a few words of text" }] });
    this.element = element("section", { "aria-label": `Chat with ${model}` }, this.list, form,
      fold("A chat by OpenAI's API with curl", curlCommand("POST", PATH, example)));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#ask();
    });
    this.text.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#ask();
    });
    this.halt.addEventListener("click", () => this.stop());
    this.anew.addEventListener("click", () => this.#begin());
  }

  stop() {
    this.#controller?.abort();
  }

  #begin() {
    this.stop();
    this.#messages = [];
    this.list.replaceChildren();
    this.anew.hidden = true;
    setText(this.wrong, "");
    this.text.focus();
  }

  async #ask() {
    const content = this.text.value.trim();
    if (!content || this.#controller) return;
    const messages = this.#messages;
    this.text.value = "";
    setText(this.wrong, "");
    messages.push({ role: "user", content });
    this.#say("user", content);
    const answer = this.#say("assistant", "");
    this.#controller = new AbortController();
    this.#setBusy(true);
    try {
      await this.#follow(messages, answer, this.#controller.signal);
    } catch (error) {
      this.#fail(error);
    } finally {
      // What was heard of it is a part of the chat; a question without an answer is not.
      if (answer.textContent) messages.push({ role: "assistant", content: answer.textContent });
      else {
        messages.pop();
        answer.parentElement.remove();
      }
      this.#controller = null;
      this.#setBusy(false);
    }
  }

  async #follow(messages, answer, signal) {
    const body = JSON.stringify({ model: this.model, messages, stream: true });
    let [text, pausedMs] = ["", performance.now()];
    const write = () => {
      if (!text) return;
      answer.append(text);
      text = "";
      this.list.scrollTop = this.list.scrollHeight;
    };
    const writing = setInterval(write, WRITE_MS);
    try {
      for await (const data of eventsOf(await ask("POST", PATH, { body, signal }))) {
        if (data === "[DONE]") return;
        const { choices = [], error } = JSON.parse(data);
        if (error) throw new Error(error.message ?? String(error));
        text += choices[0]?.delta?.content ?? "";
        if (performance.now() < pausedMs + WRITE_MS) continue;
        // A model that is faster than the page would leave its buttons no time.
        await new Promise((resolve) => setTimeout(resolve));
        pausedMs = performance.now();
      }
    } finally {
      clearInterval(writing);
      write();
    }
  }

  #say(role, content) {
    const text = element("span", {}, content);
    this.list.append(element("li", { "data-role": role }, element("span", { class: "muted" }, `${role} `), text));
    this.list.scrollTop = this.list.scrollHeight;
    this.anew.hidden = false;
    return text;
  }

  #setBusy(isBusy) {
    this.send.disabled = isBusy;
    this.halt.hidden = !isBusy;
  }

  #fail(error) {
    if (error.name === "AbortError") return;
    if (error instanceof Refused && error.isOfAccess) this.onRefusal(error);
    const isAnswer = error instanceof Refused || !(error instanceof TypeError);
    setText(this.wrong, isAnswer ? error.message : "The server does not answer.");
  }
}
