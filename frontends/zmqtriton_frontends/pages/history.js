// What the server has measured: samples in columns, of all models or of one.

import { askJson } from "./api.js";

const PATH = "/v2/zmqtriton/history";
/** The last samples: what the tiles and the table show. */
const RECENT_S = 15;

const url = (seconds, name) =>
  `${PATH}?seconds=${seconds}${name ? `&model=${encodeURIComponent(name)}` : ""}`;
const keyOf = ({ name, version }) => `${name}:${version}`;

export const askRecent = (signal) => askJson("GET", url(RECENT_S), { signal });

/** The times, and a column for each name: of one model, or of the server for null. */
export async function askSamples(model, seconds, signal) {
  const answer = await askJson("GET", url(seconds, model?.name), { signal });
  const columns = model ? answer.models[keyOf(model)] ?? {} : totalsOf(answer);
  return { times: answer.times, columns, leftOut: answer.models_left_out };
}

/** Requests per second of a model in the last sample; null where that is not known. */
export function rateOf(recent, model) {
  if (!recent) return null;
  const { models, models_left_out: leftOut } = recent;
  // Who had no requests lately is not named.
  const columns = models[keyOf(model)];
  return columns ? columns.requests_per_s.at(-1) : leftOut ? null : 0;
}

/** Columns of the server: its own, and sums over its models. */
export function totalsOf({ times, server, models }) {
  const all = Object.values(models);
  const sum = (name) => times.map((_, at) =>
    all.reduce((total, columns) => total + (columns[name][at] ?? 0), 0));
  return {
    ...server,
    requests_per_s: sum("requests_per_s"),
    failures_per_s: sum("failures_per_s"),
    pending: sum("pending"),
  };
}
