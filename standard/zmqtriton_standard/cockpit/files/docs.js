// The page at /docs: /openapi.json as something to read, to search and to try, one line per operation,
// more when opened.

import { Refused, accessForm, askJson, element, setText } from "./api.js";
import { Operation } from "./docs-operation.js";

const byId = (id) => document.getElementById(id);
const RETRY_MS = 2000;
const access = accessForm(byId("access"), load);
/** {details, text, section} of each operation. */
let lines = [];

async function load() {
  let description;
  try {
    description = await askJson("GET", "/openapi.json");
  } catch (error) {
    return showFailure(error);
  }
  access.hide();
  byId("alarm").hidden = true;
  setText(byId("server"), `${description.info.title} API`);
  setText(byId("version"), `protocol ${description.info.version}`);
  document.title = `${description.info.title} API`;
  // a key that was asked for by an operation is typed while that is open
  if (!lines.length) byId("operations").replaceChildren(...sections(description));
  applySearch();
}

function showFailure(error) {
  if (error instanceof Refused && error.isOfAccess) return access.show(error);
  const text = error instanceof Refused ? error.message : "The server does not answer.";
  setText(byId("alarm"), `${text} This page goes on trying.`);
  byId("alarm").hidden = false;
  setTimeout(load, RETRY_MS);
}

function* sections(description) {
  for (const { name } of description.tags) {
    const section = element("section", { class: "panel", "aria-label": name }, element("h2", {}, name));
    for (const [path, methods] of Object.entries(description.paths)) {
      for (const [method, operation] of Object.entries(methods)) {
        if (!operation.tags.includes(name)) continue;
        const details = line(method, path, operation, description);
        section.append(details);
        lines.push({ details, section, text: `${name} ${method} ${path} ${operation.summary}`.toLowerCase() });
      }
    }
    yield section;
  }
}

function line(method, path, operation, description) {
  const details = element("details", {}, element("summary", {},
    element("span", { class: "verb" }, method.toUpperCase()), " ",
    element("code", {}, path), " ", element("span", { class: "muted" }, operation.summary)));
  // Made when it is looked at: examples of hundreds of models are long.
  details.addEventListener("toggle", () => {
    if (details.children.length > 1) return;
    const made = new Operation(method.toUpperCase(), path, operation, description);
    made.onRefused = (refused) => access.show(refused, true);
    details.append(made.element);
  });
  return details;
}

/** Shows the operations that have all the words. */
function applySearch() {
  const words = byId("search").value.toLowerCase().split(/\s+/);
  const found = lines.filter(({ text }) => words.every((word) => text.includes(word)));
  const sectionsFound = new Set(found.map(({ section }) => section));
  for (const { details, section } of lines) {
    details.hidden = !found.some((each) => each.details === details);
    section.hidden = !sectionsFound.has(section);
  }
  setText(byId("found"), found.length === lines.length ? `${lines.length} operations`
    : `${found.length} of ${lines.length} operations`);
}

byId("search").addEventListener("input", applySearch);
load();
