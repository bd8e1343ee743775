// The server's API as the pages ask it: refusals as errors, and the header that a restricted server
// wants, or the token. All text goes into the document as text; nothing here or elsewhere parses HTML.

/** The server answered, and not with 2xx. */
export class Refused extends Error {
  constructor(response, text) {
    super(text);
    this.status = response.status;
    /** Another token would help. */
    this.wantsToken = response.status === 429 || response.headers.has("WWW-Authenticate");
    /** Another token or key would. */
    this.isOfAccess = this.wantsToken || response.status === 403;
    this.line = `${response.status} ${response.statusText}`.trim();
  }
}

/** Header to value, as somebody typed them; never stored. */
const keys = new Map();

/** Where the token is, for as long as the tab is open. */
const TOKEN = "zmqtriton.token";
/** Said of the last token, which was not valid. */
let rejection = "";

/** The headers that a request needs, with their values left out. */
export const accessHeaders = () => [...keys.keys()].map((name) => `${name}: …`)
  .concat(sessionStorage.getItem(TOKEN) ? ["Authorization: Bearer …"] : []);

const forShell = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

/** A request for a shell. A key is named, not shown. */
export function curlCommand(method, path, body) {
  const words = ["curl", path.endsWith("stream") ? "-sN" : "-s"];
  if (method !== (body === undefined ? "GET" : "POST")) words.push("-X", method);
  words.push(forShell(location.origin + path));
  for (const header of accessHeaders()) words.push("-H", forShell(header));
  if (body !== undefined) words.push("-d", forShell(body));
  return words.join(" ");
}

/** The response to a request; a Refused error for any but 2xx, a TypeError where nobody answers. */
export async function ask(method, path, { body, signal } = {}) {
  const headers = Object.fromEntries(keys);
  const token = sessionStorage.getItem(TOKEN);
  if (token) headers.Authorization = `Bearer ${token}`;
  if (typeof body === "string") headers["Content-Type"] = "application/json";
  const response = await fetch(path, { method, body, headers, signal, cache: "no-store" });
  if (response.ok) return response;
  const text = await errorOf(response);
  if (token && [401, 429].includes(response.status)) drop(token, text);
  throw new Refused(response, (response.status === 401 && rejection) || text);
}

/** A WebSocket of this server; null where its handshake would need a header, which no page can give it. */
export function socketTo(path) {
  if (keys.size) return null;
  const token = sessionStorage.getItem(TOKEN);
  const protocols = ["zmqtriton", ...(token ? [`bearer.${token}`] : [])];
  return new WebSocket(location.origin.replace("http", "ws") + path, protocols);
}

/** Forgets a token that is not valid: asking again and again would only make its address wait. */
function drop(token, text) {
  if (sessionStorage.getItem(TOKEN) !== token) return;
  sessionStorage.removeItem(TOKEN);
  rejection = text;
}

export const askJson = async (method, path, options) => (await ask(method, path, options)).json();

async function errorOf(response) {
  const text = await response.text();
  try {
    const { error } = JSON.parse(text);
    return String(error?.message ?? error ?? text);
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

/** The form for a key or a token: `show` opens it with a Refused error, `hide` closes it. */
export function accessForm(form, retry) {
  const { header, value } = form.elements;
  const say = (id, text) => setText(form.querySelector(`#access-${id}`), text);
  let staysOpen = false;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const name = header.disabled ? "Authorization" : header.value;
    try {
      new Headers([[name, value.value]]);
    } catch {
      say("text", "That cannot be sent as a header.");
      return;
    }
    if (header.disabled) useToken(value.value.trim());
    else keys.set(name.trim(), value.value);
    value.value = "";
    staysOpen = false;
    retry();
  });
  return {
    /** What nobody asks for again on his own has to stay open until there is an answer. */
    show(refused, isAskedOnce = false) {
      const wantsToken = refused.wantsToken;
      staysOpen ||= isAskedOnce;
      say("text", refused.message);
      say("title", wantsToken ? "This server needs a token" : "This server restricts its API");
      say("label", wantsToken ? "Token" : "Value");
      say("hint", wantsToken
        ? "Kept for this tab only; forgotten when it is closed."
        : "Kept in the memory of this page only; forgotten when it is closed or loaded anew.");
      header.disabled = header.parentElement.hidden = wantsToken;
      const wanted = /expecting header '([^']+)'/.exec(refused.message);
      if (wanted && form.hidden && !wantsToken) header.value = wanted[1];
      form.hidden = false;
    },
    hide() {
      form.hidden = !staysOpen;
    },
    /** Nobody waits for that answer any more. */
    release() {
      staysOpen = false;
    },
  };
}

function useToken(token) {
  rejection = "";
  sessionStorage.setItem(TOKEN, token);
}
