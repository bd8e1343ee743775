"""The load of a model or of the server, as clients and balancers are told.

Made of the broker's answer; asks nobody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

#: An entry of the broker's answer: one version of a model.
Entry = Mapping[str, Any]
_SUMS = (
    "queued",
    "executing",
    "unanswered",
    "ready",
    "instances",
    "slots",
    "busy_slots",
    "requests",
    "queue_ns",
    "compute_ns",
)


def of_model(entries: Sequence[Entry]) -> dict[str, Any]:
    """Return the load of some versions of a model together."""
    total = {key: sum(entry[key] for entry in entries) for key in _SUMS}
    limits = [entry["limit"] for entry in entries]
    # without a limit for one of them there is none for all
    return _describe(total, sum(limits) if all(limits) else 0)


def of_server(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the load of the server, and that of each version in it."""
    entries: list[Entry] = answer["loads"]
    # what an ensemble asks for is counted at its members
    own = [entry for entry in entries if not entry["is_ensemble"]]
    total = {key: sum(entry[key] for entry in own) for key in _SUMS}
    total["unanswered"] = answer["unanswered"]
    document = _describe(total, answer["limit"])
    document["utilization"] = _rounded(utilization(answer))
    document["models"] = [
        {"name": entry["name"], "version": str(entry["version"]), **of_model([entry])}
        for entry in entries
    ]
    return document


def utilization(answer: Mapping[str, Any]) -> float:
    """Return the share of the server that is in use: that of its fullest model, or of its limit.

    Requests to that model would wait, however idle the others are.
    """
    shares = [_share(entry) for entry in answer["loads"] if not entry["is_ensemble"]]
    if answer["limit"]:
        shares.append(min(1.0, answer["unanswered"] / answer["limit"]))
    return max(shares, default=0.0)


def _share(entry: Entry) -> float:
    """Return the share of the batches that could be executed at once; 1 if none can."""
    if not entry["slots"]:
        return 1.0 if entry["instances"] else 0.0
    return float(entry["busy_slots"] / entry["slots"])


def _describe(total: Mapping[str, Any], limit: int) -> dict[str, Any]:
    document: dict[str, Any] = {key: total[key] for key in ("queued", "executing", "unanswered")}
    if limit:
        document["limit"] = limit
    document["instances"] = {
        "ready": total["ready"],
        "all": max(total["ready"], total["instances"]),
    }
    document["utilization"] = _rounded(_share(total))
    if total["requests"]:
        for stage in ("queue", "compute"):
            document[f"mean_{stage}_ms"] = _rounded(total[f"{stage}_ns"] / total["requests"] / 1e6)
    return document


def _rounded(number: float) -> float:
    return round(number, 3)
