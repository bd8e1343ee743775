"""The broker's counts, requested for a status, by a shutdown and by features. Does no I/O."""

from __future__ import annotations

import json
from typing import Any

from zmqtriton.supervisor.actions import Send
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.server_processes.introductions import Introductions
from zmqtriton.supervisor.story import Promise
from zmqtriton_floor import wire
from zmqtriton_floor.errors import DeadlineExceeded

#: Seconds for the broker's counts; a status is shown without them if it needs longer.
_WITHIN_S = 2.0
_NOTHING = wire.CallResult(0, 0, "", "{}")
_COMPUTE_STEPS = ("compute_input", "compute_infer", "compute_output")
#: Figures that only some versions of a model have.
_OF_SOME = (
    "pace",
    "trial",
    "unawaited",
    "executing_ns",
    "oldest_execution_ns",
    "usual_execution_ns",
    "last_error",
    "overdue",
    "calls",
    "affinity_hits",
    "affinity_misses",
    "streams",
    "batching",
)

#: `counts`: one entry for each loaded version, None if the broker does not answer. `resources`: the
#: rate limiter's, and who holds them. `unconnected`: the serials of processes that the broker
#: knows and is not connected to. `held`: serials of a holder and of an owner of memory, and the
#: bytes. `in_flight` and `execution_ages_ns`: the requests of each instance
#: that has any, and the age of its oldest execution, by its serial.
CountsReport = dict[str, Any]


class BrokerCounts:
    def __init__(self, plan: Plan, introductions: Introductions) -> None:
        self._plan = plan
        self._introductions = introductions
        #: Durations of the turns of the broker's loop, as of the last answer.
        self.turns: dict[str, Any] = {}

    def request(self, model: str = "") -> Promise[CountsReport]:
        """Ask for the counts of a model, or of all."""
        return self._plan.tell(self._request(model))

    async def _request(self, model: str) -> CountsReport:
        try:
            answer: wire.CallResult = await self._plan.ask(
                lambda ticket: Send(
                    self._introductions.broker_serial, wire.AskStatistics(ticket, model, -1)
                ),
                within_s=_WITHIN_S,
            )
        except DeadlineExceeded:
            answer = _NOTHING
        document = json.loads(answer.result) if not answer.code else {}
        entries, own = document.get("model_stats"), document.get("zmqtriton", {})
        tables = {name: own.get(name, []) for name in ("resources", "unconnected", "held")}
        tables |= {name: own.get(name, {}) for name in ("in_flight", "execution_ages_ns")}
        self.turns = own.get("turns", {})
        return {"counts": entries and [_summary(entry) for entry in entries], **tables}


def _summary(entry: dict[str, Any]) -> dict[str, Any]:
    """Add up the counts; they count requests, except for `executions`."""
    stats, own = entry["inference_stats"], entry["zmqtriton"]
    return {
        "model": entry["name"],
        "version": int(entry["version"]),
        "succeeded": stats["success"]["count"],
        "failed": stats["fail"]["count"],
        "faults": _faults(own.get("failures", {})),
        "failures": own.get("failures", {}),
        "refusals": own.get("refusals", {}),
        "deadlines": own.get("deadlines", 0),
        "success_ns": stats["success"].get("ns", 0),
        "queue_ns": stats.get("queue", {}).get("ns", 0),
        "compute_ns": sum(stats.get(step, {}).get("ns", 0) for step in _COMPUTE_STEPS),
        "executed": stats.get("compute_infer", {}).get("count", 0),
        "inferences": entry.get("inference_count", 0),
        "pending": own["pending"],
        "unanswered": own["unanswered"],
        "sequences": own["sequences"],
        "last_arrival_s": own["last_arrival_ns"] / 1e9,
        "executions": entry["execution_count"],
        "busy_s": own["busy_ns"] / 1e9,
        "direct_responses": own["direct_responses"],
        "brokered_responses": own["brokered_responses"],
        **{name: own[name] for name in _OF_SOME if name in own},
    }


def _faults(failures: dict[str, int]) -> int:
    """Return the failures that neither their clients nor overload caused."""
    return sum(count for why, count in failures.items() if why not in ("CANCELED", "REJECTED"))
