"""The load of a model beside an answer, in the forms of ORCA (Open Request Cost Aggregation).

Balancers such as Envoy read it. Triton's header has the KV cache of TensorRT-LLM's models in it,
which no model here has; the load of any model is ours.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
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


def write(form: str, load: Mapping[str, Any]) -> str:
    """Return the value of the header for a model's load; "" for a form that nobody knows."""
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
    utilization = struct.pack("<d", load["utilization"])
    return report + _tag(_APPLICATION_UTILIZATION, _FIXED64) + utilization


def _named(load: Mapping[str, Any]) -> dict[str, float]:
    named = {name: load[name] for name in _NAMED if name in load}
    instances = load["instances"]
    return {**named, "instances_ready": instances["ready"], "instances": instances["all"]}


def _tag(field: int, kind: int) -> bytes:
    return bytes([field << 3 | kind])
