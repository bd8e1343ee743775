// What the server tells of itself: its status, and where that may not be seen, what is left of it in
// Triton's own routes.

import { Refused, ask, askJson } from "./api.js";

const STATUS = "/v2/zmqtriton/status";

/** {value} or {refused}; only silence is thrown. */
export async function attempt(promise) {
  try {
    return { value: await promise };
  } catch (error) {
    if (error instanceof Refused) return { refused: error };
    throw error;
  }
}

/** Where the server answers for a model, or for one of its versions. */
export const modelPath = (name, version) =>
  `/v2/models/${encodeURIComponent(name)}${version ? `/versions/${encodeURIComponent(version)}` : ""}`;

/** The server as it is now. What is undefined may not be seen; the first refusal that concerns all of
 * it is `closed`, one of the status alone `withheld`. Of the model of this name, as it stands in
 * an address, the status has all of its memory. */
export async function look(signal, model = "") {
  const [metadata, ready, status] = await Promise.all([
    attempt(askJson("GET", "/v2", { signal })),
    attempt(ask("GET", "/v2/health/ready", { signal })),
    attempt(askJson("GET", `${STATUS}?memory_of=${model}`, { signal })),
  ]);
  if (metadata.refused?.status >= 500) throw metadata.refused; // it is about to end
  const found = status.value ? fromStatus(status.value) : await lookFromOutside(signal);
  const refusals = [metadata, ready, ...(found.refusals ?? [])].map(({ refused }) => refused);
  return {
    ...found,
    ready: readinessOf(ready),
    name: metadata.value?.name,
    version: versionOf(metadata.value),
    hasOpenAi: metadata.value?.extensions.includes("openai") ?? false,
    closed: refusals.find((refused) => refused?.isOfAccess),
    withheld: status.refused,
  };
}

function readinessOf({ value, refused }) {
  if (value) return { word: "ready", kind: "good" };
  return refused.isOfAccess ? { word: "restricted", kind: "unknown" } : { word: "not ready", kind: "bad" };
}

/** `version` of the metadata is that of the protocol. */
function versionOf(metadata) {
  return metadata?.extensions.join(" ").match(/zmqtriton\(([^)]*)\)/)?.[1];
}

function fromStatus({ server, models, processes, environments = [], machine = [], inspected, debugged = [] }) {
  return {
    models: models.map(versioned),
    processes: processes.map((each) => versioned({ ...each, stop: debugged.find(isOf(each)) })),
    environments,
    machine: machine.map(({ text }) => text),
    uptimeS: server.uptime_s,
    nowS: server.started_s + server.uptime_s,
    mayLoad: server.may_load,
    mayRestart: server.may_restart,
    mayProfile: server.may_restart && Boolean(inspected),
    hasInspection: Boolean(inspected),
  };
}

/** True of the debugger in this process. */
const isOf = ({ model, instance }) => (stop) => stop.model === model && stop.instance === instance;

const versioned = (each) => ({ ...each, version: each.version ? String(each.version) : "" });

/** As every client sees it: names, states and reasons. */
async function lookFromOutside(signal) {
  const [index, statistics] = await Promise.all([
    attempt(askJson("POST", "/v2/repository/index", { body: "{}", signal })),
    attempt(askJson("GET", "/v2/models/stats", { signal })),
  ]);
  // Without the index the counts tell which models there are, and not how they are.
  const entries = index.value?.map((entry) => ({ ...entry, state: entry.state ?? "" }))
    ?? statistics.value?.model_stats.map(({ name, version }) => ({ name, version }));
  return { models: entries?.map(versioned) ?? [], refusals: [index, statistics], unlisted: index.refused };
}
