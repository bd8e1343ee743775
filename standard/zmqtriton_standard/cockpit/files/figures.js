// The metrics that a model reports of itself: what they are now, and since the last look.

import { askJson, element, setText } from "./api.js";
import { keyOf as keyOfModel } from "./models.js";
import { attempt, modelPath } from "./sources.js";
import { NOTHING, short } from "./words.js";

/** What makes a figure another one; the version is that of the page. */
const keyOf = ({ name, labels: { version, ...labels } }) =>
  `${name} ${Object.entries(labels).map((label) => label.join(" ")).join(", ")}`.trim();

function textOf({ kind, value, count }, before, seconds) {
  if (kind === "gauge") return short(value);
  const all = kind === "histogram" ? count : value;
  const grown = before ? all - (before.count ?? before.value) : 0;
  const rate = before ? `, ${short(grown / seconds)} per second` : "";
  if (kind === "counter") return `${short(value)} in all${rate}`;
  const mean = grown > 0 ? (value - before.value) / grown : value / count;
  return count ? `${short(mean)} on average${rate}` : NOTHING;
}

export class Figures {
  #key = "";
  #before = new Map();
  #atMs = 0;

  constructor(section) {
    this.section = section;
    this.body = section.querySelector("tbody");
  }

  /** Ask for those of this model; null for none. */
  async show(model) {
    const key = model ? keyOfModel(model) : "";
    if (key !== this.#key) {
      this.#key = key;
      this.#before.clear();
      this.section.hidden = true;
    }
    if (!model) return;
    const { value } = await attempt(askJson("GET", `${modelPath(model.name)}/figures`));
    const isOfVersion = ({ labels: { version = model.version } }) => version === model.version;
    if (key === this.#key) this.#draw((value?.figures ?? []).filter(isOfVersion));
  }

  #draw(figures) {
    const nowMs = performance.now();
    const seconds = (nowMs - this.#atMs) / 1000;
    while (this.body.children.length > figures.length) this.body.lastChild.remove();
    figures.forEach((figure, at) => {
      const key = keyOf(figure);
      if (!this.body.children[at]) {
        this.body.append(element("tr", {}, element("th", { scope: "row", class: "mono" }), element("td"), element("td")));
      }
      const [name, text, description] = this.body.children[at].children;
      setText(name, key);
      setText(text, textOf(figure, this.#before.get(key), seconds));
      setText(description, figure.description);
    });
    this.#before = new Map(figures.map((figure) => [keyOf(figure), figure]));
    this.#atMs = nowMs;
    this.section.hidden = !figures.length;
  }
}
