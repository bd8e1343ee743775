// A few numbers about all models together.

import { setText } from "./api.js";
import { bytes, percent, short, sum } from "./words.js";

export class Tiles {
  constructor(section) {
    this.values = Object.fromEntries(
      [...section.querySelectorAll("strong")].map((strong) => [strong.id, strong]));
  }

  show({ models, processes = [] }) {
    const say = (tile, format, rows, figure) =>
      setText(this.values[tile], format(sum(rows.map((row) => row[figure]))));
    say("rate", short, models, "requests_per_s");
    say("failures", short, models, "failures_per_s");
    say("waiting", short, models, "pending");
    say("cpu", percent, processes, "cpu_percent");
    say("memory", bytes, processes, "memory_bytes");
  }
}
