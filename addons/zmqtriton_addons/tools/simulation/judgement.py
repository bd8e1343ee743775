"""Judges the rows of a simulation: which settings cannot take the load, and which is the best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zmqtriton_addons.tools.simulation.run import SimulationResult

#: In overload the instances never rest, and the queue grows as long as requests come. It is empty
#: again some time after the last one: this share of the time in which they came.
_BUSY = 0.98
_LATE_SHARE = 0.05


def is_overloaded(outcome: SimulationResult, busy: float) -> bool:
    """True if requests of an open load come faster than they can be answered."""
    late_ns = outcome.end_ns - outcome.last_arrival_ns
    return busy >= _BUSY and late_ns > _LATE_SHARE * outcome.last_arrival_ns


def best_row(rows: Sequence[dict[str, Any]], *, is_open_load: bool) -> int | None:
    """Return the index of the best row that is not overloaded; None if all are.

    Under an open load the rate is given, and latency decides; clients that wait for their answers
    decide by the rate themselves.
    """
    able = [index for index, row in enumerate(rows) if not row["overload"]]

    def cost(index: int) -> tuple[float, ...]:
        row = rows[index]
        # of two that are equal, the one that needs fewer instances
        tail = row["p99_ms"], row["p50_ms"], -row["busy"]
        return tail if is_open_load else (-row["inferences_per_s"], *tail)

    return min(able, key=cost, default=None)


def verdict(rows: Sequence[dict[str, Any]], *, is_open_load: bool) -> str:
    """Return the sentence below the table; "" if there is nothing to compare or to warn of."""
    best = next((row["setting"] for row in rows if row["best"]), "")
    if not best:
        which = "this setting" if len(rows) == 1 else "each of these settings"
        return f"Overload with {which}: requests come faster than they are answered.\n"
    if len(rows) == 1:
        return ""
    measure = "lowest p99" if is_open_load else "highest rate"
    return f"Best: {best} ({measure} without overload)\n"
