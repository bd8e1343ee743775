// The page at /: asks the server again and again, and keeps the document in step with it.

import { accessForm, setText } from "./api.js";
import { Detail } from "./detail.js";
import { ModelTable, keyOf } from "./models.js";
import { Poll } from "./polling.js";
import { look } from "./sources.js";
import { Tiles } from "./tiles.js";

const STATUS_MS = 2000;
const byId = (id) => document.getElementById(id);

/** What the server answered last. */
let found = null;
let lastHeard = null;
/** What is shown where no address says more: the only model, or "" for the server. Decided once, so
 * that nobody is taken elsewhere when a model comes or goes. */
let home = null;
let chosenKey = "";
/** The part that was looked at last, so that it is the same for the next model. */
let part = "overview";
/** Refusals of parts of the page, by what they would have shown. */
const withheld = new Map();

const access = accessForm(byId("access"), () => {
  detail.trials.forget();
  detail.logs.retry();
  statusPoll.hurry();
  detail.plots.hurry();
});
const table = new ModelTable(byId("list"));
const tiles = new Tiles(byId("tiles"), (figure) => table.sortBy(figure));
const detail = new Detail(byId("detail"), {
  onAction: () => statusPoll.hurry(),
  onRefusal: (refused) => access.show(refused, true),
  onRelease: () => access.release(),
  say: withhold,
});
const statusPoll = new Poll(STATUS_MS, keepStatus);

// ------------------------------------------------------------------ asking

async function keepStatus(signal) {
  try {
    found = await look(signal, chosenKey.split("/")[0]);
    lastHeard = new Date();
    byId("alarm").hidden = true;
    document.body.classList.remove("stale");
  } catch (error) {
    return showSilence(error);
  }
  showAccess();
  showServer();
  table.show(found);
  tiles.show(found);
  await showChosen();
}

// ------------------------------------------------------------------ the server

function showServer() {
  const { name, version, ready, machine = [] } = found;
  if (name) {
    setText(byId("server"), name);
    document.title = name;
  }
  if (version) setText(byId("version"), `zmqtriton ${version}`);
  byId("ready").dataset.kind = ready.kind;
  setText(byId("ready"), ready.word);
  setText(byId("machine"), machine.join("; "));
  byId("machine").hidden = !machine.length;
}

function showSilence(error) {
  console.debug(error);
  const heard = lastHeard ? ` It was last heard at ${lastHeard.toLocaleTimeString()}.` : "";
  setText(byId("alarm"), `The server does not answer.${heard} This page goes on trying.`);
  byId("alarm").hidden = false;
  byId("ready").dataset.kind = "bad";
  setText(byId("ready"), "gone");
  document.body.classList.add("stale");
}

// ------------------------------------------------------------------ what may not be seen

function showAccess() {
  if (found.closed) access.show(found.closed);
  else access.hide();
  withhold("status", found.withheld);
}

/** One line for all that is refused, with the server's words once. */
function withhold(what, refused) {
  if (refused) withheld.set(what, refused);
  else withheld.delete(what);
  const things = ["status", "history", "logs"].filter((thing) => withheld.has(thing));
  const words = new Set([...withheld.values()].map(({ message }) => message));
  setText(byId("withheld-text"), `Not shown: ${things.join(", ")}. ${[...words].join(" ")}`);
  byId("use-key").hidden = !keyed();
  byId("withheld").hidden = !things.length || !byId("access").hidden;
}

/** A refusal that a key or a token would help. */
const keyed = () => [...withheld.values()].find(({ isOfAccess }) => isOfAccess);

byId("use-key").addEventListener("click", () => {
  access.show(keyed(), true);
  byId("withheld").hidden = true;
  byId("access").elements.value.focus();
});

// ------------------------------------------------------------------ what is chosen

/** The key and the part that the address has: "#NAME/VERSION/PART", or "#/PART" for the server. */
function addressed() {
  const [name, version, chosenPart] = location.hash.slice(1).split("/");
  // "#models" is a place on the page.
  if (version === undefined) return { key: name ? chosenKey : home ?? "", part };
  if (!name) return { key: "", part: version || "overview" };
  return { key: `${name}/${version}`, part: chosenPart || part };
}

/** A model that the address names and the server does not; null if nothing can have that name. */
function unlisted(key) {
  try {
    const [name, version] = key.split("/").map(decodeURIComponent);
    return { name, version, reason: found.unlisted ? "" : "The server has no model of this name now." };
  } catch {
    return null;
  }
}

async function showChosen() {
  if (!found.unlisted) home ??= table.keys.length === 1 ? table.keys[0] : "";
  ({ key: chosenKey, part } = addressed());
  const model = chosenKey ? table.get(chosenKey) ?? unlisted(chosenKey) : null;
  table.choose(model ? keyOf(model) : "");
  detail.choose(model, part, found);
  await detail.show(model, found).catch(showSilence);
}

addEventListener("hashchange", async () => {
  if (!found) return;
  await showChosen();
  if (!location.hash.includes("/")) return;
  byId("detail-title").focus({ preventScroll: true });
  byId("detail").scrollIntoView({ block: "nearest" });
});

statusPoll.run();
