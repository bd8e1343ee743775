"""The answer to AskStatistics, made of what the generations have counted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from zmqtriton_floor import wire
from zmqtriton_floor.errors import InvalidArgument

if TYPE_CHECKING:
    from zmqtriton.broker.core import Core
    from zmqtriton.broker.scheduling.generation import Generation


class Traffic:
    """Bytes on the broker's sockets, so far."""

    def __init__(self) -> None:
        self.received_bytes = 0
        self.sent_bytes = 0


def report(
    core: Core, serial: int, message: wire.AskStatistics, wall_offset_ns: int, now_ns: int = 0
) -> wire.Statistics:
    """The counters, with those that belong to no model, or Triton's error for what is unknown.
    What models measure goes to who makes a page of it."""
    chosen = core.generations.choose(message.model, message.version)
    if message.model and not chosen:
        text = f"Request for unknown model: '{message.model}' is not found"
        return wire.Statistics(message.id, InvalidArgument.number, text, "")
    entries = [g.statistics.as_dict(g.model, g.version, g.waiting, wall_offset_ns) for g in chosen]
    for generation, entry in zip(chosen, entries, strict=True):
        sequences, last_ns = generation.sequences, generation.statistics.last_arrival_ns
        entry["zmqtriton"]["sequences"] = 0 if sequences is None else sequences.count
        entry["zmqtriton"]["last_arrival_ns"] = last_ns
        entry["zmqtriton"] |= _occupancy(generation, now_ns)
    own: dict[str, Any] = {
        "malformed": core.malformed + core.blocks.forged,
        "leases": core.blocks.leases.count,
    }
    own |= vars(core.traffic) | core.caching.report() | {"resources": core.rates.report()}
    own |= {"refused": core.limits.refused, "unanswered": core.limits.unanswered}
    document: dict[str, Any] = {"model_stats": entries, "zmqtriton": own}
    peer = core.peers.get(serial)
    if peer is not None and peer.role == "metrics":
        document["measures"] = core.measures.page()
    return wire.Statistics(message.id, 0, "", json.dumps(document))


def _occupancy(generation: Generation, now_ns: int) -> dict[str, int]:
    present = [one for one in generation.instances.values() if one.has_arrived]
    return {
        "unanswered": generation.unanswered,
        "instances": len(present),
        "busy_ns": generation.busy_ns + sum(one.busy_ns(now_ns) for one in present),
    }
