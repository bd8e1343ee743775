// What the server has measured: samples in columns, of a model or of the server.

import { askJson } from "./api.js";

/** The times, and a column for each name: of one model, or of the server for null. */
export async function askSamples(model, seconds, signal) {
  const ofModel = model ? `&model=${encodeURIComponent(model.name)}` : "";
  const answer = await askJson("GET", `/v2/zmqtriton/history?seconds=${seconds}${ofModel}`, { signal });
  const columns = model ? answer.models[`${model.name}:${model.version}`] ?? {} : answer.server;
  return { times: answer.times, columns };
}
