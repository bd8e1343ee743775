// The page at /docs: /openapi.json as something to read, one line per operation, more when opened.

import { Refused, accessForm, askJson, element, setText } from "./api.js";
import { curl } from "./try.js";

const byId = (id) => document.getElementById(id);
const RETRY_MS = 2000;
const access = accessForm(byId("access"), load);

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
  setText(byId("version"), `zmqtriton ${description.info.version}`);
  document.title = `${description.info.title} API`;
  byId("operations").replaceChildren(...sections(description));
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
        if (operation.tags.includes(name)) {
          section.append(line(method, path, operation, description.components.schemas));
        }
      }
    }
    yield section;
  }
}

function line(method, path, operation, schemas) {
  const details = element("details", {}, element("summary", {},
    element("span", { class: "verb" }, method.toUpperCase()), " ",
    element("code", {}, path), " ", element("span", { class: "muted" }, operation.summary)));
  // Made when it is looked at: examples of hundreds of models are long.
  details.addEventListener("toggle", () => {
    if (details.children.length === 1) details.append(...parts(path, operation, schemas));
  });
  return details;
}

function* parts(path, operation, schemas) {
  const request = operation.requestBody?.content["application/json"];
  if (request) {
    yield* part("Request", outline(request.schema, schemas));
    for (const [model, { value }] of Object.entries(request.examples ?? {})) {
      yield element("h3", {}, `Example: ${model}`);
      yield element("pre", { class: "box" }, JSON.stringify(value));
      if (!path.includes("{version}")) {
        yield curl(path.replace("{model}", encodeURIComponent(model)), JSON.stringify(value));
      }
    }
  }
  for (const [status, { description, content }] of Object.entries(operation.responses)) {
    const [[media, { schema }] = ["", {}]] = Object.entries(content ?? {});
    const title = status === "default" ? "Any other status" : status;
    yield* part(`${title}: ${description} ${media}`.trim(), schema?.$ref ? outline(schema, schemas) : "");
  }
}

function* part(title, text) {
  yield element("h3", {}, title);
  if (text) yield element("pre", { class: "box" }, text);
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

load();
