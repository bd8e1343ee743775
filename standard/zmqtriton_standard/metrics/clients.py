"""Clients as Prometheus text: their connections, responses, and the memory held for them.

The supervisor adds the counters of all processes up, so that none falls when one is replaced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from zmqtriton_standard.metrics.model_metrics import family, text_of

_CONNECTIONS = "connections"
#: Not the counter's name without its `_total`, which OpenMetrics has for the same family.
_OPEN = "open_connections"
#: Families of metrics by the frontends' counter: name, help, and labels of role and value.
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
    """Return the text; `own_refusals` has the refusals of the metrics page itself."""
    counters = [
        *status.get("clients", ()),
        *(
            {"role": "metrics", "counter": "access_refusals", "label": reason, "count": count}
            for reason, count in own_refusals.items()
        ),
    ]
    return text_of(
        [
            *_memory(status["processes"]),
            *_connections(status["processes"]),
            *_counters(counters),
        ]
    )


def _memory(processes: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for name, kind, key, text in _MEMORY:
        sums: Counter[tuple[str, str]] = Counter()
        for process in processes:
            for what in ("requests", "answers") if "client_memory" in process else ():
                sums[process["role"], what] += process["client_memory"][f"{what}_{key}"]
        samples = (({"role": role, "kind": what}, size) for (role, what), size in sums.items())
        yield from family(f"zmqtriton_{name}", text, kind, samples)


def _connections(processes: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    sums: Counter[str] = Counter()
    for process in processes:
        if _CONNECTIONS in process:
            sums[process["role"]] += process[_CONNECTIONS]
    samples = (({"role": role}, count) for role, count in sums.items())
    yield from family(f"zmqtriton_{_OPEN}", "Open connections of clients", "gauge", samples)


def _counters(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for counter, (name, text, of_role, of_value) in _COUNTERS.items():
        sums: Counter[tuple[tuple[str, str], ...]] = Counter()
        for row in rows:
            if row["counter"] == counter:
                pairs = (of_role, row["role"]), (of_value, row["label"])
                sums[tuple(pair for pair in pairs if pair[0])] += row["count"]
        samples = ((dict(labels), count) for labels, count in sums.items())
        yield from family(f"zmqtriton_{name}", text, "counter", samples, is_optional=True)
