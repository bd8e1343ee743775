"""Clients as Prometheus text: their connections, the answers that they got, what they make us hold.

The supervisor adds the counters of all processes up, so that none falls when one is replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from zmqtriton_standard.metrics.model_metrics import head, labels_text

_CONNECTIONS = "connections"
#: Not the counter's name without its `_total`, which OpenMetrics has for the same family.
_OPEN = "open_connections"
#: By the name of the counter: the family, its help, and the labels of role and value.
_COUNTERS = {
    _CONNECTIONS: ("connections_total", "Connections that clients have made", "role", ""),
    "answers": ("http_responses_total", "Answers over HTTP", "", "code"),
    "calls": ("grpc_responses_total", "Calls over gRPC that have ended", "", "code"),
    "access_refusals": (
        "access_refused_total",
        "Requests refused because of their token or key",
        "role",
        "reason",
    ),
}
_MEMORY = (
    (
        "client_memory_bytes",
        "gauge",
        "bytes",
        "Memory for incomplete requests and for answers that clients do not read",
    ),
    (
        "client_memory_refused_total",
        "counter",
        "refused",
        "Number of requests and answers refused because this memory was exhausted",
    ),
)


def render(status: Mapping[str, Any], own_refusals: Mapping[str, int]) -> str:
    """Return the text; `own_refusals` are those of the page of metrics itself."""
    counters = [
        *status.get("clients", ()),
        *(
            {"role": "metrics", "counter": "access_refusals", "label": reason, "count": count}
            for reason, count in own_refusals.items()
        ),
    ]
    lines = [
        *_memory(status["processes"]),
        *_connections(status["processes"]),
        *_counters(counters),
    ]
    return "".join(f"{line}\n" for line in lines)


def _memory(processes: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for name, kind, key, text in _MEMORY:
        yield from head(f"zmqtriton_{name}", text, kind)
        sums: dict[tuple[str, str], int] = {}
        for process in processes:
            for what in ("requests", "answers") if "client_memory" in process else ():
                value = process["client_memory"][f"{what}_{key}"]
                sums[process["role"], what] = sums.get((process["role"], what), 0) + value
        for (role, what), value in sums.items():
            yield f"zmqtriton_{name}{labels_text(role=role, kind=what)} {value}"


def _connections(processes: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    sums: dict[str, int] = {}
    for process in processes:
        if _CONNECTIONS in process:
            sums[process["role"]] = sums.get(process["role"], 0) + process[_CONNECTIONS]
    yield from head(f"zmqtriton_{_OPEN}", "Open connections of clients", "gauge")
    for role, value in sums.items():
        yield f"zmqtriton_{_OPEN}{labels_text(role=role)} {value}"


def _counters(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    by_counter: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_counter.setdefault(row["counter"], []).append(row)
    for counter, (name, text, of_role, of_value) in _COUNTERS.items():
        sums: dict[str, int] = {}
        for row in by_counter.get(counter, ()):
            pairs = {of_role: row["role"], of_value: row["label"]}
            labels = labels_text(**{key: value for key, value in pairs.items() if key})
            sums[labels] = sums.get(labels, 0) + row["count"]
        if sums:
            yield from head(f"zmqtriton_{name}", text, "counter")
        yield from (f"zmqtriton_{name}{labels} {value}" for labels, value in sums.items())
