// A request of a decoupled model over a WebSocket: responses as they come, and a stop that the model sees.

import { socketTo } from "./api.js";

const ID = "page";
const LATE_MS = 5000;

/** An open socket; null where there is none, for whatever reason. */
export function openSocket(path) {
  let socket;
  try {
    socket = socketTo(path);
  } catch {
    return null; // a token that cannot be a subprotocol
  }
  return socket && new Promise((resolve) => {
    const late = setTimeout(() => socket.close(), LATE_MS);
    const settle = (opened) => {
      clearTimeout(late);
      resolve(opened);
    };
    socket.addEventListener("open", () => settle(socket));
    socket.addEventListener("close", () => settle(null));
  });
}

/** {error, outputs} of each response to a request, given as the members of its JSON. */
export async function* responsesOf(socket, members, signal) {
  const received = [];
  let wake = () => {};
  socket.addEventListener("message", ({ data }) => (received.push(JSON.parse(data)), wake()));
  socket.addEventListener("close", () => (received.push(null), wake()));
  const cancel = () => socket.send(JSON.stringify({ cancel: ID }));
  signal.addEventListener("abort", cancel);
  socket.send(`{"id": "${ID}", ${members}}`);
  if (signal.aborted) cancel();
  try {
    for (;;) {
      while (!received.length) await new Promise((resolve) => (wake = resolve));
      const response = received.shift();
      const isFinal = !response || response.parameters.triton_final_response;
      // Responses that were on their way are no news to somebody who has stopped them.
      if (signal.aborted) {
        if (isFinal) throw signal.reason;
        continue;
      }
      if (!response) throw new TypeError("the connection has ended");
      const outputs = (response.outputs ?? []).map(({ name, data }) => [name, data?.length === 1 ? data[0] : data]);
      if (response.error !== undefined || outputs.length) {
        yield { error: response.error, outputs: Object.fromEntries(outputs) };
      }
      if (isFinal) return;
    }
  } finally {
    signal.removeEventListener("abort", cancel);
    socket.close();
  }
}
