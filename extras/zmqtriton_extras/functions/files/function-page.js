// The page of one function, at its own path: the form that calls it, with an example, and its schemas.

import { askJson, element, setText } from "./api.js";
import { neat } from "./docs-code.js";
import { fold } from "./events.js";
import { Form } from "./function.js";

const STREAM = "text/event-stream";
const FILES = { image: "a picture", audio: "a sound", application: "a file" };
const byId = (id) => document.getElementById(id);
const name = decodeURIComponent(location.pathname.slice(1));

/** A word for people for the values of a schema. */
function wordOf(schema) {
  if (schema.contentEncoding) return FILES[(schema.contentMediaType ?? "application/").split("/")[0]];
  if (schema.enum) return `one of ${schema.enum.map((each) => JSON.stringify(each)).join(", ")}`;
  if (schema.type === "array" && schema.items?.type === "object") return "a table";
  return { array: "a list", object: "an object", string: "a text" }[schema.type] ?? schema.type ?? "JSON";
}

async function load() {
  const operation = await askJson("GET", location.pathname);
  const body = operation.requestBody.content["application/json"];
  const [[media, { schema: output }]] = Object.entries(operation.responses[200].content);
  const isStream = media === STREAM;
  const about = [operation.summary, operation.description].filter(Boolean).join("\n\n");
  const schema = { about, is_stream: isStream, input: body.schema, output };
  const form = new Form(name, schema, () => {}, body.examples?.[name].value);
  byId("call").append(form.element);
  const outputs = Object.entries(output.properties);
  byId("answers").querySelector("ul").replaceChildren(...outputs.map(([each, of]) =>
    element("li", {}, element("span", { class: "mono" }, each), `: ${wordOf(of)}`, isStream ? ", a stream of them" : "")));
  byId("schemas").replaceChildren(fold("Schema of the arguments", neat(body.schema)), fold("Schema of the answer", neat(output)));
  byId("answers").hidden = byId("schemas").hidden = false;
}

setText(byId("name"), name);
document.title = name;
load().catch((error) => {
  setText(byId("alarm"), error.message);
  byId("alarm").hidden = false;
});
