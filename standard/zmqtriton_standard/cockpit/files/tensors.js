// Between what people type and what the protocol wants: examples, shapes, elements, and back.
// Numbers stay the text that was typed, since JavaScript would round large integers.

const MAX_SHOWN = 2000;
const LONG = 256;
const TEXT = "a few words of text";
const NOT_FINITE = /-?\b(NaN|Infinity)\b/g;

export const BINARY_ONLY = ["FP16", "BF16"];

export const count = (shape) => shape.reduce((product, dim) => product * dim, 1);
export const write = (shape) => `[${shape.join(", ")}]`;

// Inputs that are JSON, by the parameter that names them: the name without it, and an example.
const JSON_INPUTS = {
  openai_messages_input: ["messages", [{ role: "user", content: TEXT }]],
  openai_sampling_parameters_input: ["sampling_parameters", { max_tokens: 16 }],
  openai_tools_input: ["tools", []],
  openai_tool_choice_input: ["tool_choice", "auto"],
  openai_response_format_input: ["response_format", { type: "text" }],
};

/** The JSON that a model reads in an input of this name; nothing of another text. */
function jsonExample(name, parameters) {
  const found = Object.entries(JSON_INPUTS).find(([parameter, [usual]]) =>
    name === (parameters?.[parameter]?.string_value || usual));
  return found && JSON.stringify(found[1][1]);
}

/** What the field of an input holds at first; `parameters` are those of the model. */
export function example({ name, datatype, shape }, parameters) {
  const elements = count(shape.map((dim) => (dim < 0 ? 1 : dim)));
  const json = datatype === "BYTES" && elements === 1 && jsonExample(name, parameters);
  if (json) return json;
  if (datatype === "BYTES") return Array(Math.min(elements, LONG)).fill(TEXT).join("\n");
  if (elements > LONG) return datatype === "BOOL" ? "false" : "0";
  const list = [...Array(elements).keys()];
  return `[${list.map((n) => (datatype === "BOOL" ? n % 2 === 1 : n)).join(", ")}]`;
}

/** {elements, shape}: the JSON of a flat list, and the shape; throws what to tell the person. */
export function read(text, { datatype, shape }, typedShape = "") {
  const wanted = typedShape.trim() ? readShape(typedShape) : shape;
  return datatype === "BYTES" ? readText(text, wanted) : readNumbers(text, wanted, datatype);
}

function readShape(text) {
  const numbers = text.replace(/^\s*\[|\]\s*$/g, "").split(",").filter((part) => part.trim());
  const shape = numbers.map(Number);
  if (!shape.every((dim) => Number.isInteger(dim) && dim >= 0)) {
    throw new Error("A shape is a list of whole numbers, like [1, 16].");
  }
  return shape;
}

function readText(text, shape) {
  const isOne = !shape.includes(-1) && count(shape) === 1;
  const lines = isOne ? [text] : text.split("\n");
  return { elements: JSON.stringify(lines), shape: fit(shape, lines.length) };
}

function readNumbers(text, shape, datatype) {
  let parsed;
  try {
    parsed = JSON.parse(text.replace(NOT_FINITE, "0"));
  } catch {
    const form = datatype === "BOOL" ? "[true, false]" : "[1, 2, 3]";
    throw new Error(`This is no JSON array, like ${form}, and no single value.`);
  }
  if (!Array.isArray(parsed)) {
    const whole = shape.map((dim) => (dim < 0 ? 1 : dim));
    return { elements: `[${Array(count(whole)).fill(text.trim()).join(",")}]`, shape: whole };
  }
  const nested = nesting(parsed);
  const fits = nested.length === shape.length && nested.length > 1;
  const elements = `[${text.replace(/[[\]]/g, " ").trim()}]`;
  return { elements, shape: fits ? nested : fit(shape, parsed.flat(Infinity).length) };
}

function nesting(value) {
  return Array.isArray(value) ? [value.length, ...(value.length ? nesting(value[0]) : [])] : [];
}

/** The innermost free dimension takes what the fixed ones leave; the others are 1. */
function fit(shape, elements) {
  const fixed = count(shape.filter((dim) => dim >= 0));
  const last = shape.lastIndexOf(-1);
  const rest = fixed && elements % fixed === 0 ? elements / fixed : 1;
  return shape.map((dim, index) => (dim >= 0 ? dim : index === last ? rest : 1));
}

/** An output's data for people: strings as they are, numbers in the rows of their shape. */
export function show({ datatype, shape, data }) {
  if (!Array.isArray(data)) return "(not part of the JSON)";
  const shown = data.slice(0, MAX_SHOWN);
  const more = data.length > shown.length ? `\n… and ${data.length - shown.length} more` : "";
  if (datatype === "BYTES") return shown.join("\n") + more;
  const width = shape.at(-1) || 1;
  const rows = [];
  for (let at = 0; at < shown.length; at += width) {
    rows.push(`[${shown.slice(at, at + width).join(", ")}]`);
  }
  return (rows.join("\n") || "[]") + more;
}
