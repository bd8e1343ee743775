"""The answer to AskStatistics, made of what the generations have counted."""

from __future__ import annotations

import json
from typing import Any

from zmqtriton.broker.generations import Generations
from zmqtriton.broker.measures import Measures
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InvalidArgument


class Traffic:
    """Bytes on the broker's sockets, so far."""

    def __init__(self) -> None:
        self.received_bytes = 0
        self.sent_bytes = 0


def report(
    message: wire.AskStatistics,
    generations: Generations,
    own: dict[str, Any],
    wall_offset_ns: int,
    measures: Measures | None = None,
) -> wire.Statistics:
    """The counters, with those that belong to no model, or Triton's error for what is unknown.
    What models measure goes to who makes a page of it."""
    chosen = generations.choose(message.model, message.version)
    if message.model and not chosen:
        text = f"Request for unknown model: '{message.model}' is not found"
        return wire.Statistics(message.id, InvalidArgument.number, text, "")
    entries = [g.statistics.as_dict(g.model, g.version, g.pending, wall_offset_ns) for g in chosen]
    for generation, entry in zip(chosen, entries, strict=True):
        entry["zmqtriton"]["unanswered"] = generation.unanswered
    document: dict[str, Any] = {"model_stats": entries, "zmqtriton": own}
    if measures is not None:
        document["measures"] = measures.page()
    return wire.Statistics(message.id, 0, "", json.dumps(document))
