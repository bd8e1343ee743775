// A request to the API as code: for a shell, for Python, and for Python over gRPC.

import { accessHeaders, curlCommand } from "./api.js";

const NUMPY = {
  BOOL: "np.bool_", BYTES: "np.object_", FP32: "np.float32", FP64: "np.float64",
  INT8: "np.int8", INT16: "np.int16", INT32: "np.int32", INT64: "np.int64",
  UINT8: "np.uint8", UINT16: "np.uint16", UINT32: "np.uint32", UINT64: "np.uint64",
};
/** Of a line, before a document gets several. */
const WIDTH = 72;

/** A document over several lines, where it is too long for one. */
export function neat(value, indent = "") {
  const line = JSON.stringify(value);
  const isFlat = Array.isArray(value) && value.every((each) => each === null || typeof each !== "object");
  if (isFlat || indent.length + line.length <= WIDTH || value === null || typeof value !== "object") return line;
  const deeper = `${indent}  `;
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  const parts = Array.isArray(value)
    ? value.map((each) => neat(each, deeper))
    : Object.entries(value).map(([key, each]) => `${JSON.stringify(key)}: ${neat(each, deeper)}`);
  return `${open}\n${parts.map((part) => deeper + part).join(",\n")}\n${indent}${close}`;
}

/** Python reads JSON but for three words, which strings may hold, too. */
function forPython(value) {
  if (Array.isArray(value)) return `[${value.map(forPython).join(", ")}]`;
  if (value === true) return "True";
  if (value === false) return "False";
  return value === null ? "None" : JSON.stringify(value);
}

/** Header to value as a dictionary of Python's. */
function headersOf(more = []) {
  const rows = [...more, ...accessHeaders().map((line) => line.split(": "))];
  return rows.length ? `{${rows.map((row) => row.map((text) => JSON.stringify(text)).join(": ")).join(", ")}}` : "";
}

function python(request) {
  const client = isInference(request)
    ? withClient("http", location.host, location.protocol === "https:", request) : null;
  return client ?? withUrllib(request);
}

function grpc(request) {
  const { port, tls } = request.grpc;
  return withClient("grpc", `${location.hostname}:${port}`, tls, request) ?? "# The body is no inference in JSON.";
}

const isInference = ({ method, path }) => method === "POST" && path.endsWith("/infer");

/** The inference by NVIDIA's client; null if the body is not one. */
function withClient(protocol, host, hasTls, { path, body }) {
  const inputs = inputsOf(body);
  if (!inputs) return null;
  const [, model, , version] = /\/models\/([^/]+)(\/versions\/([^/]+))?/.exec(path);
  const lines = ["import numpy as np", `import tritonclient.${protocol} as triton`, "",
    `client = triton.InferenceServerClient("${host}"${hasTls ? ", ssl=True" : ""})`, "inputs = []"];
  for (const { name, shape, datatype, data } of inputs) {
    lines.push("",
      `values = np.array(${forPython(data.flat(Infinity))}, dtype=${NUMPY[datatype]}).reshape(${forPython(shape)})`,
      `inputs.append(triton.InferInput(${forPython(name)}, ${forPython(shape)}, "${datatype}"))`,
      "inputs[-1].set_data_from_numpy(values)");
  }
  const words = [forPython(decodeURIComponent(model)), "inputs"];
  if (version) words.push(`model_version="${version}"`);
  const headers = headersOf();
  if (headers) words.push(`headers=${protocol === "grpc" ? headers.toLowerCase() : headers}`);
  lines.push("", `answer = client.infer(${words.join(", ")})`, ...(protocol === "http"
      ? ['for output in answer.get_response()["outputs"]:', '    print(output["name"], answer.as_numpy(output["name"]))']
      : ["print(answer.get_response())"]));
  return lines.join("\n");
}

function inputsOf(body) {
  try {
    const { inputs } = JSON.parse(body);
    return inputs.every(({ shape, datatype, data }) => shape && NUMPY[datatype] && Array.isArray(data)) ? inputs : null;
  } catch {
    return null;
  }
}

function withUrllib({ method, path, body }) {
  const words = [forPython(location.origin + path), `method="${method}"`];
  const lines = ["import urllib.request", ""];
  if (body !== undefined) {
    lines.push(`body = r"""${body}"""`);
    words.push("data=body.encode()");
  }
  const headers = headersOf(body === undefined ? [] : [["Content-Type", "application/json"]]);
  if (headers) words.push(`headers=${headers}`);
  lines.push(`request = urllib.request.Request(${words.join(", ")})`,
    "with urllib.request.urlopen(request) as answer:", "    print(answer.status, answer.read().decode())");
  return lines.join("\n");
}

/** The ways to show a request, in the order of their tabs. */
export const CODE = {
  curl: { isFor: () => true, write: ({ method, path, body }) => curlCommand(method, path, body) },
  Python: { isFor: () => true, write: python },
  gRPC: { isFor: (request) => request.grpc && isInference(request), write: grpc },
};
