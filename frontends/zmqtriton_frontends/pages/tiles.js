// A few numbers about all models together.

import { setText } from "./api.js";
import { totalsOf } from "./history.js";
import { bytes, percent, short } from "./words.js";

export class Tiles {
  constructor(section) {
    this.values = Object.fromEntries(
      [...section.querySelectorAll("strong")].map((strong) => [strong.id, strong]));
  }

  showStatus({ models }) {
    const known = models.filter(({ pending }) => pending !== undefined);
    setText(this.values.waiting, short(known.length ? sum(known.map(({ pending }) => pending)) : null));
  }

  showHistory(recent) {
    const totals = recent ? totalsOf(recent) : {};
    const last = (name) => totals[name]?.at(-1);
    setText(this.values.rate, short(last("requests_per_s")));
    setText(this.values.failures, short(last("failures_per_s")));
    setText(this.values.cpu, percent(last("cpu_percent")));
    setText(this.values.memory, bytes(last("memory_bytes")));
  }
}

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
