// A few numbers about all models together. Each leads to the models behind it, the greatest first.

import { setText } from "./api.js";
import { apart, bytes, percent, short, sum } from "./words.js";

export class Tiles {
  /** `sortBy` gets the figure of a tile that somebody has chosen. */
  constructor(section, sortBy) {
    this.section = section;
    section.addEventListener("click", ({ target }) => {
      const sort = target.closest("[data-sort]")?.dataset.sort;
      if (sort) sortBy(sort);
    });
    this.values = Object.fromEntries(
      [...section.querySelectorAll("strong")].map((strong) => [strong.id, strong]));
  }

  show({ models, processes = [] }) {
    const say = (tile, format, rows, figure) =>
      setText(this.values[tile], format(sum(rows.map((row) => row[figure]))));
    say("rate", short, models, "requests_per_s");
    say("failures", short, models, "failures_per_s");
    const fails = models.some((model) => model.failures_per_s > 0);
    this.section.querySelector("[data-sort=failures]").classList.toggle("bad", fails);
    say("waiting", short, models, "pending");
    say("cpu", percent, apart(processes), "cpu_percent");
    say("memory", bytes, apart(processes), "memory_bytes");
  }
}
