// The page at /: asks the public API again and again, and keeps the document in step with it.

import { Refused, accessForm, ask, askJson, element, setText } from "./api.js";
import { Samples, ratesOf, short } from "./rates.js";
import { Trial, chatExample, instancesOf, modelPath } from "./try.js";

const byId = (id) => document.getElementById(id);
const PAUSE_MS = 1000;
/** A model list that takes long to make is asked for less often. */
const SHARE = 10;
const LATE_MS = 15000;
const HISTORY = 90;
const FILTER_FROM = 9;

const rows = new Map();
const history = { rate: [], failures: [], waiting: [], latency: [] };
const configs = new Map();
let lastHeard = null;
/** The server has OpenAI's API. */
let hasOpenAi = false;
/** The form that is shown: {key, kind, source, form}. */
let trial = null;
let waker = () => {};

const access = accessForm(byId("access"), () => {
  configs.clear();
  trial = null;
  waker();
});

// ------------------------------------------------------------------ asking

/** {value} or {refused}; only silence is thrown. */
async function attempt(promise) {
  try {
    return { value: await promise };
  } catch (error) {
    if (error instanceof Refused) return { refused: error };
    throw error;
  }
}

async function look() {
  const signal = AbortSignal.timeout(LATE_MS);
  const [server, ready, index, statistics] = await Promise.all([
    attempt(askJson("GET", "/v2", { signal })),
    attempt(ask("GET", "/v2/health/ready", { signal })),
    attempt(askJson("POST", "/v2/repository/index", { body: "{}", signal })),
    attempt(askJson("GET", "/v2/models/stats", { signal })),
  ]);
  const restricted = [server, ready, index, statistics].find((a) => a.refused?.isOfAccess);
  if (restricted) access.show(restricted.refused);
  else access.hide();

  if (server.refused?.status >= 500) throw server.refused; // it is about to end
  showServer(server.value, ready);
  const counts = statistics.value?.model_stats ?? [];
  showModels(index.value ?? counts, index.refused);
  showRates(counts, statistics.value !== undefined);
  await showTrial();
}

async function keepLooking() {
  for (;;) {
    const began = performance.now();
    try {
      await look();
      lastHeard = new Date();
      byId("alarm").hidden = true;
      document.body.classList.remove("stale");
    } catch (error) {
      console.debug(error);
      showSilence();
    }
    const pause = Math.max(PAUSE_MS, SHARE * (performance.now() - began));
    await new Promise((resolve) => {
      waker = resolve;
      setTimeout(resolve, Math.min(pause, LATE_MS));
    });
    while (document.hidden) await new Promise((resolve) => (waker = resolve));
  }
}

// ------------------------------------------------------------------ the server

function showServer(server, ready) {
  if (server) {
    setText(byId("server"), server.name);
    // server.version is that of the protocol
    hasOpenAi = server.extensions.includes("openai");
    const [, own = ""] = server.extensions.join(" ").match(/zmqtriton\(([^)]*)\)/) ?? [];
    setText(byId("version"), `zmqtriton ${own}`);
    document.title = server.name;
  }
  const [kind, text] = ready.value ? ["good", "ready"]
    : ready.refused.isOfAccess ? ["unknown", "restricted"] : ["bad", "not ready"];
  byId("ready").dataset.kind = kind;
  setText(byId("ready"), text);
}

function showSilence() {
  const heard = lastHeard ? ` It was last heard at ${lastHeard.toLocaleTimeString()}.` : "";
  setText(byId("alarm"), `The server does not answer.${heard} This page goes on trying.`);
  byId("alarm").hidden = false;
  byId("ready").dataset.kind = "bad";
  setText(byId("ready"), "gone");
  document.body.classList.add("stale");
}

// ------------------------------------------------------------------ the models

function kindOf(state, reason, stateless) {
  if (state === "READY") return "good";
  if (state === undefined) return stateless === "unknown" ? "unknown" : "off";
  if (state !== "UNAVAILABLE" || /restarting/.test(reason)) return "busy";
  return reason === "unloaded" ? "off" : "bad";
}

const keyOf = ({ name, version }) => `${encodeURIComponent(name)}/${encodeURIComponent(version ?? "")}`;

/** A long name goes on in the next line between its words. */
function breakable(name) {
  const parts = name.split(/(?<=[_.-])/);
  return parts.flatMap((part, number) => number ? [element("wbr"), part] : [part]);
}

function newRow(model) {
  const cell = (className = "") => element("td", { class: className });
  const link = element("a", { href: `#${keyOf(model)}` }, ...breakable(model.name));
  const row = {
    model, link,
    version: element("span", { class: "muted" }),
    state: element("span", { class: "state" }),
    instances: cell("wide"), requests: cell("number mid"), rate: cell("number"),
    failed: cell("number"), queue: cell("number wide"), compute: cell("number wide"),
    text: element("pre"),
    samples: new Samples(),
  };
  const name = element("th", { scope: "row" }, link, " ", row.version);
  row.line = element("tr", {}, name, element("td", {}, row.state), row.instances, row.requests,
    row.rate, row.failed, row.queue, row.compute);
  row.reason = element("tr", { class: "reason", hidden: true },
    element("td", { colspan: 8 }, row.text));
  return row;
}

function showModels(models, refused) {
  const known = new Set(models.map(keyOf));
  for (const [key, row] of rows) {
    if (known.has(key)) continue;
    row.line.remove();
    row.reason.remove();
    rows.delete(key);
  }
  // Without the index the counts tell which models there are, and not how they are.
  const stateless = refused ? "unknown" : "not loaded";
  const kinds = { good: 0, busy: 0, bad: 0, off: 0, unknown: 0 };
  let previous = null;
  for (const model of models) {
    const key = keyOf(model);
    if (!rows.has(key)) rows.set(key, newRow(model));
    const row = rows.get(key);
    row.model = model;
    row.kind = kindOf(model.state, model.reason ?? "", stateless);
    kinds[row.kind] += 1;
    showModel(row, stateless);
    const place = previous ? previous.nextSibling : byId("rows").firstChild;
    if (place !== row.line) byId("rows").insertBefore(row.line, place);
    row.line.after(row.reason);
    previous = row.reason;
  }
  byId("models").hidden = byId("try").hidden = !models.length;
  byId("filter-box").hidden = models.length < FILTER_FROM;
  setText(byId("summary"), summaryOf(kinds));
  showEmpty(models.length, refused);
  applyFilter();
}

function showModel(row, stateless) {
  const { state, reason, version } = row.model;
  setText(row.version, version ? `v${version}` : "");
  setText(row.state, state ?? stateless);
  row.state.dataset.kind = row.kind;
  row.text.dataset.kind = row.kind;
  setText(row.text, reason ?? "");
  if (row.kind === "good" || row.kind === "unknown") learnConfig(row);
  else configs.delete(keyOf(row.model));
}

/** Asked for once per time that a model is ready; null where it may not be read. */
function learnConfig(row) {
  const key = keyOf(row.model);
  if (!configs.has(key)) {
    const { name, version } = row.model;
    const promise = askJson("GET", `${modelPath(name, version)}/config`).catch(() => null);
    configs.set(key, promise);
    promise.then((config) => {
      setText(row.instances, config ? instancesOf(config) || config.platform : "–");
    });
  }
  return configs.get(key);
}

const WORDS = { good: "ready", busy: "changing", bad: "failed", off: "not loaded" };

function summaryOf(kinds) {
  const parts = Object.entries(WORDS).map(([kind, word]) => [kinds[kind], word]);
  return parts.filter(([number]) => number).map(([number, word]) => `${number} ${word}`).join(" · ");
}

function showEmpty(number, refused) {
  const empty = byId("empty");
  empty.hidden = number > 0;
  const why = refused ? "refused" : "none";
  if (empty.hidden || empty.dataset.why === why) return;
  empty.dataset.why = why;
  empty.replaceChildren(...(refused
    ? [element("p", {}, "Which models there are may not be read: "), element("pre", {}, refused.message)]
    : [element("p", {}, "This server has no models yet."),
      element("p", { class: "muted" }, "Put one into the model repository, as NAME/1/model.py with a " +
        "config.pbtxt beside the 1, and start the server anew. In the mode explicit, load it:"),
      element("pre", { class: "box" }, `curl -X POST ${location.origin}/v2/repository/models/NAME/load`)]));
}

function applyFilter() {
  const wanted = byId("filter-box").hidden ? "" : byId("filter").value.toLowerCase();
  for (const row of rows.values()) {
    const told = [row.model.name, row.model.state ?? "", WORDS[row.kind] ?? ""];
    const isShown = told.some((text) => text.toLowerCase().includes(wanted));
    row.line.hidden = !isShown;
    row.reason.hidden = !isShown || !row.model.reason;
  }
}

// ------------------------------------------------------------------ rates

function showRates(counts, isKnown) {
  const now = performance.now();
  const changes = [];
  for (const counted of counts) {
    const row = rows.get(keyOf(counted));
    if (!row) continue;
    row.samples.add(now, counted.inference_stats);
    const change = row.samples.change;
    if (change) changes.push(change);
    const rates = change && ratesOf([change]);
    const { success, failed } = row.samples.counts;
    setText(row.requests, (success + failed).toLocaleString("en"));
    setText(row.failed, failed.toLocaleString("en"));
    setText(row.rate, short(rates?.rate));
    setText(row.queue, short(rates?.queue));
    setText(row.compute, short(rates?.compute));
  }
  const rates = ratesOf(changes);
  for (const [name, values] of Object.entries(history)) {
    setText(byId(name), isKnown && rates ? short(rates[name]) : "–");
    values.push(rates?.[name] ?? 0);
    if (values.length > HISTORY) values.shift();
    draw(byId(`${name}-line`), values);
  }
}

const SVG = "http://www.w3.org/2000/svg";

function draw(svg, values) {
  if (!svg.firstChild) {
    svg.setAttribute("viewBox", `0 0 ${HISTORY - 1} 100`);
    svg.setAttribute("preserveAspectRatio", "none");
    svg.append(document.createElementNS(SVG, "polyline"));
  }
  const highest = Math.max(...values);
  const points = values.map((value, index) =>
    `${HISTORY - values.length + index},${98 - (highest ? (value / highest) * 88 : 0)}`);
  svg.firstChild.setAttribute("points", highest ? points.join(" ") : "");
}

// ------------------------------------------------------------------ the form

function chosen() {
  const key = location.hash.slice(1);
  if (rows.has(key)) return rows.get(key);
  if (key.includes("/")) return null;
  const all = [...rows.values()];
  // Not another one by itself, when the first is away for a moment.
  return rows.get(trial?.key) ?? all.find((row) => ["good", "unknown"].includes(row.kind));
}

/** Makes the form when another model is chosen, or when it came back as another; a form that fits
 * stays, with what was typed and answered, while its model is away. */
async function showTrial() {
  const row = chosen();
  for (const each of rows.values()) each.line.classList.toggle("chosen", each === row);
  const key = row ? keyOf(row.model) : "";
  if (trial?.key !== key) {
    trial?.form?.stop();
    trial = { key, kind: "", source: "", form: null };
    access.release();
    setText(byId("try-title"), row ? `Try ${row.model.name}` : "Try a model");
    byId("try-body").replaceChildren(
      row ? "" : element("p", { class: "muted" }, "Choose one that is ready."));
  }
  const isReady = row && ["good", "unknown"].includes(row.kind);
  const why = row?.model.reason || `It is ${row?.state.textContent}.`;
  showNote(row && !isReady ? `It cannot be tried now. ${why}` : "");
  const mine = trial;
  const isNews = mine.kind !== row?.kind;
  mine.kind = row?.kind;
  if (isReady && isNews) await makeForm(row, mine);
}

async function makeForm(row, mine) {
  const { name, version } = row.model;
  const signal = AbortSignal.timeout(LATE_MS);
  const found = await attempt(askJson("GET", modelPath(name, version), { signal }));
  const config = found.value && (await learnConfig(row));
  if (trial !== mine) return;
  if (found.refused) {
    mine.kind = ""; // to be asked for again
    return showNote(`It cannot be tried now. ${found.refused.message}`);
  }
  const source = JSON.stringify([found.value, config]);
  if (source === mine.source) return;
  mine.form?.stop();
  mine.source = source;
  mine.form = new Trial(found.value, config, version, (refused) => access.show(refused, true));
  const chat = hasOpenAi && chatExample(found.value, config);
  byId("try-body").replaceChildren(mine.form.element, ...(chat ? [chat] : []));
}

function showNote(text) {
  setText(byId("try-note"), text);
  byId("try-note").hidden = !text;
}

addEventListener("hashchange", async () => {
  if (!location.hash.includes("/")) return;
  await showTrial().catch(showSilence);
  byId("try-title").focus({ preventScroll: true });
  byId("try").scrollIntoView({ block: "nearest" });
});
byId("filter").addEventListener("input", applyFilter);
document.addEventListener("visibilitychange", () => waker());
keepLooking();
