"""The load of a model or of the server, as clients and balancers get it.

Computed from the broker's answer alone. As headers of a response the load has the forms of ORCA
(Open Request Cost Aggregation).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

#: The header that asks, and the one that answers; over gRPC "bin" answers with the third.
FORMAT = "endpoint-load-metrics-format"
METRICS = "endpoint-load-metrics"
BINARY_METRICS = "endpoint-load-metrics-bin"

#: The figures under names of their own.
_NAMED = ("queued", "executing", "unanswered", "limit", "mean_queue_ms", "mean_compute_ms")

_FIXED64, _LENGTH = 1, 2
#: Numbers of fields in xds.data.orca.v3.OrcaLoadReport, and of entries in a map.
_NAMED_METRICS, _APPLICATION_UTILIZATION = 8, 9
_KEY, _VALUE = 1, 2
#: An entry of the broker's answer: one version of a model.
Entry = Mapping[str, Any]
#: Added up over the versions.
SUMS = (
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
    total = {key: sum(entry[key] for entry in entries) for key in SUMS}
    limits = [entry["limit"] for entry in entries]
    # without a limit for one of them there is none for all
    return _describe(total, sum(limits) if all(limits) else 0)


def of_server(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the load of the server, and the load of each version in it."""
    entries: list[Entry] = answer["loads"]
    # what an ensemble asks for is counted at its members
    own = [entry for entry in entries if not entry["is_ensemble"]]
    total = {key: sum(entry[key] for entry in own) for key in SUMS}
    total["unanswered"] = answer["unanswered"]
    document = _describe(total, answer["limit"])
    document["utilization"] = round(utilization(answer), 3)
    document["models"] = [
        {"name": entry["name"], "version": str(entry["version"]), **of_model([entry])}
        for entry in entries
    ]
    return document


def utilization(answer: Mapping[str, Any]) -> float:
    """Return the used share of the server: of its fullest model, or of its limit of requests.

    Requests to the fullest model would wait, even if the others are idle.
    """
    shares = [_share(entry) for entry in answer["loads"] if not entry["is_ensemble"]]
    if answer["limit"]:
        shares.append(min(1.0, answer["unanswered"] / answer["limit"]))
    return max(shares, default=0.0)


def _share(entry: Entry) -> float:
    """Return the busy share of the batches that can execute at once; 1 if none can."""
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
    document["utilization"] = round(_share(total), 3)
    if total["requests"]:
        for stage in ("queue", "compute"):
            document[f"mean_{stage}_ms"] = round(total[f"{stage}_ns"] / total["requests"] / 1e6, 3)
    return document


def write(form: str, load: Mapping[str, Any]) -> str:
    """Return the value of the header for a model's load; "" for an unknown form."""
    utilization, named = load["utilization"], _named(load)
    if form == "json":
        document = {"application_utilization": utilization, "named_metrics": named}
        return f"JSON {json.dumps(document)}"
    if form == "text":
        pairs = [f"named_metrics.{name}={value:g}" for name, value in named.items()]
        return "TEXT " + ", ".join([f"application_utilization={utilization:g}", *pairs])
    return ""


def write_binary(load: Mapping[str, Any]) -> bytes:
    """Return the message that clients of gRPC read."""
    report = b""
    for name, value in _named(load).items():
        key = name.encode()
        entry = _tag(_KEY, _LENGTH) + bytes([len(key)]) + key
        entry += _tag(_VALUE, _FIXED64) + struct.pack("<d", value)
        report += _tag(_NAMED_METRICS, _LENGTH) + bytes([len(entry)]) + entry
    return (
        report + _tag(_APPLICATION_UTILIZATION, _FIXED64) + struct.pack("<d", load["utilization"])
    )


def _named(load: Mapping[str, Any]) -> dict[str, float]:
    named = {name: load[name] for name in _NAMED if name in load}
    instances = load["instances"]
    return {**named, "instances_ready": instances["ready"], "instances": instances["all"]}


def _tag(field: int, kind: int) -> bytes:
    return bytes([field << 3 | kind])
