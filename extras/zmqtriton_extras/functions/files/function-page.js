// The page of one function or model, at its own path: the form that sends a request, with examples, what
// it answers, and the way to its figures.

import { Refused, askJson, element, setText } from "./api.js";
import { CODE, neat } from "./docs-code.js";
import { fold } from "./events.js";
import { Form } from "./function.js";
import { attempt, modelPath } from "./sources.js";

const STREAM = "text/event-stream";
const FILES = { image: "a picture", audio: "a sound", application: "a file" };
/** Parameters of a model that name the input of OpenAI's routes, by its kind. */
const OPENAI = ["messages", "text", "audio"];
const byId = (id) => document.getElementById(id);
const name = decodeURIComponent(location.pathname.slice(1));
const refuse = (error) => say(error.message);

/** A word for people for the values of a schema. */
function wordOf(schema) {
  if (schema.contentEncoding) return FILES[(schema.contentMediaType ?? "application/").split("/")[0]];
  if (schema.enum) return `one of ${schema.enum.map((each) => JSON.stringify(each)).join(", ")}`;
  if (schema.type === "array" && schema.items?.type === "object") return "a table";
  return { array: "a list", object: "an object", string: "a text" }[schema.type] ?? schema.type ?? "JSON";
}

function say(text) {
  setText(byId("alarm"), text);
  byId("alarm").hidden = false;
}

/** What a model is, as far as the client may see it. */
async function lookAt() {
  const [{ value: server }, { value: metadata }, { value: config }] = await Promise.all(
    ["/v2", modelPath(name), `${modelPath(name)}/config`].map((path) => attempt(askJson("GET", path))));
  const version = metadata?.versions?.at(-1);
  if (version) byId("figures").href = `/#${encodeURIComponent(name)}/${encodeURIComponent(version)}/overview`;
  return { metadata, config, hasOpenAi: server?.extensions.includes("openai") ?? false };
}

async function load() {
  const [operation, model] = await Promise.all([
    askJson("GET", location.pathname).catch((error) => {
      if (error instanceof Refused && error.status === 404) return null;
      throw error;
    }),
    lookAt(),
  ]);
  if (operation) showFunction(operation, model);
  else await showModel(model);
  await showChat(model);
}

function showFunction(operation, { config, hasOpenAi }) {
  const body = operation.requestBody.content["application/json"];
  const [[media, { schema: output }]] = Object.entries(operation.responses[200].content);
  const isStream = media === STREAM;
  const about = [operation.summary, operation.description].filter(Boolean).join("\n\n");
  const examples = Object.values(body.examples ?? {}).map(({ value }) => value);
  const named = OPENAI.map((kind) => ({ kind, input: config?.parameters?.[`openai_${kind}_input`]?.string_value }));
  const openai = hasOpenAi && named.find(({ input }) => input);
  byId("call").append(new Form(name, { about, is_stream: isStream, input: body.schema, output, examples, openai }, refuse).element);
  const outputs = Object.entries(output.properties);
  byId("answers").querySelector("ul").replaceChildren(...outputs.map(([each, of]) =>
    element("li", {}, element("span", { class: "mono" }, each), `: ${wordOf(of)}`, isStream ? ", a stream of them" : "")));
  byId("schemas").replaceChildren(fold("Schema of the arguments", neat(body.schema)), fold("Schema of the answer", neat(output)));
  byId("answers").hidden = byId("schemas").hidden = false;
}

/** The form of tensors, for a model that is no function. */
async function showModel({ metadata, config }) {
  if (!metadata) throw new Error(`The model '${name}' cannot be seen now.`);
  const [{ Trial }, { pictureInput, takesPicture }] = await Promise.all([import("./try.js"), import("./picture-input.js")]);
  const codes = (path, body) => ["Python"].map((language) =>
    fold(`The same in ${language}`, CODE[language].write({ method: "POST", path, body })));
  const trial = new Trial(metadata, config, "", refuse, codes);
  for (const field of trial.fields) if (takesPicture(field.input)) pictureInput(field);
  byId("call").append(trial.element);
  byId("schemas").replaceChildren(fold("Metadata", neat(metadata)), ...(config ? [fold("Configuration", neat(config))] : []));
  byId("schemas").hidden = false;
}

async function showChat({ metadata, config, hasOpenAi }) {
  if (!hasOpenAi || !metadata) return;
  const { Chat, isChatModel } = await import("./chat.js");
  if (!isChatModel(metadata, config)) return;
  byId("chat").append(new Chat(name, refuse).element);
  byId("chat").hidden = false;
}

setText(byId("name"), name);
document.title = name;
load().catch(refuse);
