// Answers as they come, and texts that are folded.

import { element } from "./api.js";

/** The data of server-sent events, each as soon as it is whole. */
export async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) if (event.startsWith("data: ")) yield event.slice(6);
  }
}

export function fold(title, text) {
  return element("details", {}, element("summary", {}, title),
    element("pre", { class: "box", tabindex: 0, "aria-label": title }, text));
}
