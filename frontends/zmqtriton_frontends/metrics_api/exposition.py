"""The broker's statistics as Prometheus text 0.0.4, under Triton's names.

A family that is to appear is a row of the table; nothing else knows the names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from zmqtriton_frontends.metrics_api.measures import escape

#: As Triton sends it; Prometheus takes no version for 0.0.4.
CONTENT_TYPE = "text/plain; charset=utf-8"

#: All are there from the start, so that a sum over reasons never misses one.
FAILURE_REASONS = ("REJECTED", "CANCELED", "BACKEND", "OTHER")

ModelStat = dict[str, Any]


class Family(NamedTuple):
    name: str
    kind: str
    help: str
    value: Callable[[ModelStat], int]
    #: Left out where the operator turned latency counters off.
    is_latency: bool = False


def _count(key: str) -> Callable[[ModelStat], int]:
    return lambda stat: int(stat["inference_stats"][key]["count"])


def _microseconds(*keys: str) -> Callable[[ModelStat], int]:
    return lambda stat: sum(int(stat["inference_stats"][key]["ns"]) for key in keys) // 1000


def _latency(name: str, what: str, cached: str, key: str) -> Family:
    return Family(
        f"nv_inference_{name}_duration_us",
        "counter",
        f"Cumulative {what} in microseconds ({cached} cached requests)",
        _microseconds(key),
        is_latency=True,
    )


_SUCCESS = Family(
    "nv_inference_request_success",
    "counter",
    "Number of successful inference requests, all batch sizes",
    _count("success"),
)
_FAMILIES = (
    Family(
        "nv_inference_count",
        "counter",
        "Number of inferences performed (does not include cached requests)",
        lambda stat: int(stat["inference_count"]),
    ),
    Family(
        "nv_inference_exec_count",
        "counter",
        "Number of model executions performed (does not include cached requests)",
        lambda stat: int(stat["execution_count"]),
    ),
    _latency("request", "inference request duration", "includes", "success"),
    _latency("queue", "inference queuing duration", "includes", "queue"),
    _latency("compute_input", "compute input duration", "does not include", "compute_input"),
    _latency("compute_infer", "compute inference duration", "does not include", "compute_infer"),
    _latency(
        "compute_output", "inference compute output duration", "does not include", "compute_output"
    ),
    Family(
        "nv_inference_pending_request_count",
        "gauge",
        "Instantaneous number of pending requests awaiting execution per-model.",
        lambda stat: int(stat.get("zmqtriton", {}).get("pending", 0)),
    ),
)
_FAILURE = "nv_inference_request_failure"
_FAILURE_HELP = "Number of failed inference requests, all batch sizes"


def render(model_stats: list[ModelStat], *, has_latencies: bool = True) -> str:
    """The text; a model without series has none in any family."""
    lines = [*_family(_SUCCESS, model_stats), *_failures(model_stats)]
    for family in _FAMILIES:
        if has_latencies or not family.is_latency:
            lines += _family(family, model_stats)
    return "\n".join(lines) + "\n"


def render_own(broker: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    """What belongs to no model: messages between our own processes, and memory that they share."""
    malformed = {"broker": broker["malformed"], "supervisor": status["malformed"]}
    traffic = {"in": broker["received_bytes"], "out": broker["sent_bytes"]}
    shared: dict[str, int] = {}
    for process in status["processes"]:
        role = process["role"]
        shared[role] = shared.get(role, 0) + process["segment_bytes"]
    lines = [
        *_own(
            "malformed_messages_total", "Number of internal messages that made no sense", "counter"
        ),
        *_values("malformed_messages_total", "place", malformed),
        *_own("broker_bytes_total", "Bytes on the sockets of the broker", "counter"),
        *_values("broker_bytes_total", "direction", traffic),
        *_own("leased_blocks", "Blocks of shared memory that processes hold of others", "gauge"),
        f"zmqtriton_leased_blocks {broker['leases']}",
        *_own("shared_memory_bytes", "Shared memory for tensors, by who owns it", "gauge"),
        *_values("shared_memory_bytes", "role", shared),
        *_resources(broker.get("resources", [])),
    ]
    return "\n".join(lines) + "\n"


def _resources(resources: list[dict[str, Any]]) -> Iterator[str]:
    """Of the rate limiter; nothing where it has none."""
    families = (
        ("resource_count", "How much of a resource there is", "count"),
        ("resource_in_use", "How much of a resource executions hold", "in_use"),
    )
    for name, text, key in families if resources else ():
        yield from _own(name, text, "gauge")
        for entry in resources:
            device = "" if entry["device"] is None else str(entry["device"])
            labels = _labels(resource=entry["resource"], device=device)
            yield f"zmqtriton_{name}{labels} {entry[key]}"


def _own(name: str, text: str, kind: str) -> list[str]:
    return [f"# HELP zmqtriton_{name} {text}", f"# TYPE zmqtriton_{name} {kind}"]


def _values(name: str, label: str, values: Mapping[str, int]) -> Iterator[str]:
    for key, value in values.items():
        yield f"zmqtriton_{name}{_labels(**{label: key})} {value}"


def _family(family: Family, model_stats: list[ModelStat]) -> Iterator[str]:
    yield f"# HELP {family.name} {family.help}"
    yield f"# TYPE {family.name} {family.kind}"
    for stat in model_stats:
        labels = _labels(model=stat["name"], version=stat["version"])
        yield f"{family.name}{labels} {family.value(stat)}"


def _failures(model_stats: list[ModelStat]) -> Iterator[str]:
    yield f"# HELP {_FAILURE} {_FAILURE_HELP}"
    yield f"# TYPE {_FAILURE} counter"
    for stat in model_stats:
        failures = stat.get("zmqtriton", {}).get("failures", {})
        for reason in FAILURE_REASONS:
            labels = _labels(model=stat["name"], reason=reason, version=stat["version"])
            yield f"{_FAILURE}{labels} {int(failures.get(reason, 0))}"


def _labels(**labels: str) -> str:
    return "{" + ",".join(f'{key}="{escape(value)}"' for key, value in labels.items()) + "}"
