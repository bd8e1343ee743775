// The request of a form as code, for Python alone and for OpenAI's client.

import { accessHeaders } from "./api.js";

/** What OpenAI's client has arguments for; it sends any other as a part of the body. */
const NAMED = ["max_tokens", "temperature", "top_p", "seed", "stop", "tools", "tool_choice", "response_format"];
const WORDS = { true: "True", false: "False", null: "None" };

/** A JSON text for Python, with the digits that were typed. */
const pythonOf = (text) => text.replace(/"(?:[^"\\]|\\.)*"|\b(?:true|false|null)\b/g, (word) => WORDS[word] ?? word);

/** A value of a field: a text, or what its JSON is. */
function literal(value, { type }) {
  if (type !== "string") {
    try {
      JSON.parse(value);
      return pythonOf(value);
    } catch {
      // The server will say what is wrong.
    }
  }
  return JSON.stringify(value);
}

const content = (file) => `base64.b64encode(open(${JSON.stringify(file.name)}, "rb").read()).decode()`;

/** The name and the code of each argument that will be sent. */
function argumentsOf(form) {
  return form.fields.filter((field) => field.values().length).map(({ name, schema, ...field }) => {
    const values = form.fields.find((each) => each.name === name).values();
    if (!(values[0] instanceof File)) return [name, literal(values[0], schema)];
    const files = values.map(content).join(", ");
    return [name, schema.type === "array" ? `[${files}]` : files];
  });
}

export function inPython(form) {
  const rows = argumentsOf(form);
  const hasFiles = rows.some(([, code]) => code.includes("base64."));
  const headers = [["Content-Type", "application/json"], ...accessHeaders().map((line) => line.split(": "))];
  const pairs = headers.map((row) => row.map((text) => JSON.stringify(text)).join(": ")).join(", ");
  return [
    ...(hasFiles ? ["import base64"] : []), "import json", "import urllib.request", "",
    "document = {", ...rows.map(([name, code]) => `    ${JSON.stringify(name)}: ${code},`), "}",
    `url, headers = ${JSON.stringify(`${location.origin}/${form.name}`)}, {${pairs}}`,
    "request = urllib.request.Request(url, json.dumps(document).encode(), headers)",
    "with urllib.request.urlopen(request) as response:",
    ...(form.schema.is_stream ? ["    for line in response:", '        print(line.decode(), end="")']
      : ["    print(response.read().decode())"]),
  ].join("\n");
}

export function withOpenAi(form) {
  const { kind, input } = form.schema.openai;
  const key = accessHeaders().length ? "…" : "none";
  const head = ["from openai import OpenAI", "", `client = OpenAI(base_url="${location.origin}/v1", api_key="${key}")`];
  const rows = new Map(argumentsOf(form));
  const first = rows.get(input) ?? '""';
  rows.delete(input);
  const model = `model=${JSON.stringify(form.name)}`;
  if (kind === "audio") {
    const [file] = form.fields.find(({ name }) => name === input).values();
    return [...head, `with open(${JSON.stringify(file?.name ?? "speech.wav")}, "rb") as file:`,
      `    answer = client.audio.transcriptions.create(${model}, file=file)`, "print(answer.text)"].join("\n");
  }
  const isChat = kind === "messages";
  const [create, asked, said, part] = isChat
    ? ["chat.completions", "messages", "message.content", "delta.content"] : ["completions", "prompt", "text", "text"];
  const own = [...rows].filter(([each]) => NAMED.includes(each)).map(([each, code]) => `    ${each}=${code},`);
  const more = [...rows].filter(([each]) => !NAMED.includes(each)).map(([each, code]) => `${JSON.stringify(each)}: ${code}`);
  if (more.length) own.push(`    extra_body={${more.join(", ")}},`);
  const { is_stream: isStream } = form.schema;
  return [...head, `answer = client.${create}.create(`, `    ${model},`, `    ${asked}=${first},`, ...own,
    ...(isStream ? ["    stream=True,", ")", "for piece in answer:", `    print(piece.choices[0].${part} or "", end="")`]
      : [")", `print(answer.choices[0].${said})`])].join("\n");
}
