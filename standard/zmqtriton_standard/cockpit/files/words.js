// Numbers and states as a glance takes them in. Knows nothing of the document.

/** What stands where something is not known, or not there. */
export const NOTHING = "–";
const MINUTE = 60, HOUR = 3600, DAY = 86400;
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];
/** Reasons of models that the next request loads, where no status says so. */
const ASLEEP = "not loaded: ";

const isNothing = (value) => value === null || value === undefined;

/** The sum of those numbers that are known; null if none is. */
export function sum(numbers) {
  const known = numbers.filter(Number.isFinite);
  return known.length ? known.reduce((total, number) => total + number) : null;
}

/** Rows of which no two are of one process, of whose threads several may be instances. */
export function apart(rows) {
  const seen = new Set();
  return rows.filter(({ pid }) => !pid || (!seen.has(pid) && seen.add(pid)));
}

/** As many digits as say something. */
export function short(number) {
  if (isNothing(number)) return NOTHING;
  if (number >= 100) return Math.round(number).toLocaleString("en");
  return String(Number(number.toFixed(number >= 10 ? 1 : number >= 0.1 ? 2 : 3)));
}

export function bytes(number) {
  if (isNothing(number)) return NOTHING;
  const step = Math.min(number < 1 ? 0 : Math.floor(Math.log2(number) / 10), UNITS.length - 1);
  const value = number / 1024 ** step;
  return `${Number(value.toFixed(value >= 100 ? 0 : 1))} ${UNITS[step]}`;
}

export const percent = (number) =>
  (isNothing(number) ? NOTHING : `${Number(number.toFixed(number >= 10 ? 0 : 1))} %`);

/** An age: two units of it at most, without those of a second that nobody needs. */
export function duration(seconds) {
  if (isNothing(seconds)) return NOTHING;
  const whole = Math.floor(seconds);
  if (whole < MINUTE) return `${whole} s`;
  if (whole < HOUR) return `${Math.floor(whole / MINUTE)} min`;
  if (whole < DAY) return `${Math.floor(whole / HOUR)} h ${Math.floor((whole % HOUR) / MINUTE)} min`;
  return `${Math.floor(whole / DAY)} d ${Math.floor((whole % DAY) / HOUR)} h`;
}

const pad = (number) => String(number).padStart(2, "0");

/** The time of day, of seconds since 1970, in 24 hours everywhere. */
export function timeOfDay(seconds, hasSeconds = true) {
  const date = new Date(seconds * 1000);
  const time = `${pad(date.getHours())}:${pad(date.getMinutes())}`;
  return hasSeconds ? `${time}:${pad(date.getSeconds())}` : time;
}

/** The state of a model: the word for it, and how good that is. */
export function stateOf({ state, reason = "", is_asleep: isAsleep = reason.startsWith(ASLEEP) }) {
  if (state === "READY") return { word: state, kind: "good" };
  if (isAsleep) return { word: "ASLEEP", kind: "off" };
  if (state === undefined) return { word: "unknown", kind: "unknown" };
  if (!state) return { word: "not loaded", kind: "off" };
  if (state !== "UNAVAILABLE" || /restarting/.test(reason)) return { word: state, kind: "busy" };
  return { word: state, kind: reason === "unloaded" ? "off" : "bad" };
}

/** A text with what shows no letter of its own, or turns others around, as escapes. */
export function visible(text) {
  return text.replace(/[\p{Cf}\p{Zl}\p{Zp}]/gu, (hidden) => `\\u{${hidden.codePointAt(0).toString(16)}}`);
}
