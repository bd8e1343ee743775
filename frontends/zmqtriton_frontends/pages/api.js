// The server's API as the pages ask it: refusals as errors, and the header that a restricted server
// wants. All text goes into the document as text; nothing here or elsewhere parses HTML.

/** The server answered, and not with 2xx. */
export class Refused extends Error {
  constructor(response, text) {
    super(text);
    this.status = response.status;
    this.line = `${response.status} ${response.statusText}`.trim();
  }
}

/** Header to value, as somebody typed them; never stored. */
const keys = new Map();

export const keyNames = () => [...keys.keys()];

/** The response to a request; a Refused error for any but 2xx, a TypeError where nobody answers. */
export async function ask(method, path, { body, signal } = {}) {
  const headers = Object.fromEntries(keys);
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const response = await fetch(path, { method, body, headers, signal, cache: "no-store" });
  if (!response.ok) throw new Refused(response, await errorOf(response));
  return response;
}

export const askJson = async (method, path, options) => (await ask(method, path, options)).json();

async function errorOf(response) {
  const text = await response.text();
  try {
    return String(JSON.parse(text).error ?? text);
  } catch {
    return text || `HTTP ${response.status}`;
  }
}

/** An element with attributes and children; strings become text. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== false && value !== undefined) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

/** Sets text only where it is another, so that a screen reader hears changes alone. */
export function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

/** The form for a restricted API: `show` opens it with the server's words, `hide` closes it. */
export function accessForm(form, retry) {
  const { header, value } = form.elements;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    try {
      new Headers([[header.value, value.value]]);
    } catch {
      setText(form.querySelector("#access-text"), "That cannot be sent as a header.");
      return;
    }
    keys.set(header.value.trim(), value.value);
    value.value = "";
    retry();
  });
  return {
    show(text) {
      setText(form.querySelector("#access-text"), text);
      const wanted = /expecting header '([^']+)'/.exec(text);
      if (wanted && form.hidden) header.value = wanted[1];
      form.hidden = false;
    },
    hide() {
      form.hidden = true;
    },
  };
}
