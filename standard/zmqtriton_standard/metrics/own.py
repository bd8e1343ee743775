"""Metrics under our own names, which Triton lacks: `zmqtriton_…`.

The busy share of models' instances, the shared resources of processes, restarts. docs/metrics.md
describes the use of each metric.
"""

from __future__ import annotations

import functools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from zmqtriton.sdk.frontend import not_after_s
from zmqtriton_standard.metrics.machine import MachineLoad
from zmqtriton_standard.metrics.model_metrics import Series, family, text_of
from zmqtriton_standard.metrics.processes import Key, ModelUse, Use

#: Instances in these states end for good.
_LEAVING = frozenset({"DRAINING", "STOPPING", "STOPPED"})


class Busyness:
    """Shares of time between two readings at least an interval apart."""

    def __init__(self, interval_s: float, now_s: Callable[[], float] = time.monotonic) -> None:
        self._interval_s = interval_s
        self._now_s = now_s
        self._at_s = now_s()
        self._before: dict[tuple[str, str], int] = {}
        self._ratios: dict[tuple[str, str], float] = {}

    def look(self, all_series: list[Series]) -> None:
        """Compute the shares; within the interval the last ones are kept."""
        elapsed_s = self._now_s() - self._at_s
        if elapsed_s < self._interval_s:
            return
        self._at_s += elapsed_s
        self._ratios.clear()
        before, self._before = self._before, {}
        for series in all_series:
            key, instances = _key(series), series.own.get("instances", 0)
            busy_ns = self._before[key] = series.own.get("busy_ns", 0)
            if instances:
                busy_s = max(0, busy_ns - before.get(key, 0)) / 1e9
                self._ratios[key] = min(1.0, busy_s / elapsed_s / instances)

    def of(self, series: Series) -> float:
        return self._ratios.get(_key(series), 0.0)


def _key(series: Series) -> tuple[str, str]:
    return series.stat["name"], series.stat["version"]


_Samples = Iterable[tuple[Mapping[str, str], float]]
#: Metrics of models with `BATCH_LIKE`, with the broker's names.
_PADDING = (
    ("batch_elements_total", "real", "Number of elements of the input that BATCH_LIKE measures"),
    ("batch_padded_elements_total", "padded", "Number of them with padding to the longest"),
    (
        "batch_padded_elements_in_order_total",
        "otherwise",
        "Number of them with padding if batches had been formed in the order of arrival",
    ),
)
_Families = list[tuple[str, str, str, list[Series], Callable[[Series], float]]]


def render_models(
    all_series: list[Series], status: Mapping[str, Any], busyness: Busyness, use: ModelUse
) -> str:
    """Return the text for models; ensembles have executions, but no instances."""
    families = [
        *_request_families(all_series),
        *_instance_families(all_series, status["processes"], busyness),
        *_use_families(all_series, status["processes"], use.look(status["processes"])),
    ]
    lines: list[str] = []
    for name, kind, text, of, value in families:
        lines += _family(name, text, kind, ((series.labels, value(series)) for series in of))
    lines += _executions(all_series, status["processes"])
    return text_of(lines)


def _executions(all_series: list[Series], processes: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Return the lines that show hanging instances: the age and the usual time of executions."""
    by_version = {_key(series): series for series in all_series}
    yield from _family(
        "oldest_execution_seconds",
        "Time since the oldest execution of an instance began; 0 if it executes nothing",
        "gauge",
        (
            # Prometheus has a label `instance` of its own.
            ({**series.labels, "model_instance": process["instance"]}, process["executing_s"])
            for process in processes
            if process["role"] == "stub"
            and process["pid"]
            and (series := by_version.get((process["model"], str(process["version"]))))
        ),
    )
    yield from _family(
        "usual_execution_seconds",
        "Mean time of the last executions",
        "gauge",
        (
            (series.labels, usual_ns / 1e9)
            for series in all_series
            if (usual_ns := series.own.get("usual_execution_ns", 0))
        ),
    )


def _request_families(all_series: list[Series]) -> _Families:
    alike, choosing = (
        [series for series in all_series if kind in series.own.get("batching", {})]
        for kind in ("padding", "auto")
    )
    return [
        (
            "executing_count",
            "gauge",
            "Number of requests that the model has begun and not answered",
            all_series,
            lambda series: series.own.get("unanswered", 0) - series.own.get("pending", 0),
        ),
        (
            "deadlines_exceeded_total",
            "counter",
            "Number of requests whose deadline has passed before their answer",
            all_series,
            lambda series: series.own.get("deadlines", 0),
        ),
        (
            "execution_deadlines_exceeded_total",
            "counter",
            "Number of them that were being executed when it passed",
            all_series,
            lambda series: series.own.get("overdue", {}).get("count", 0),
        ),
        (
            "affinity_hits_total",
            "counter",
            "Number of requests that went to the instance of their affinity",
            [series for series in all_series if "affinity_hits" in series.own],
            lambda series: series.own["affinity_hits"],
        ),
        (
            "affinity_misses_total",
            "counter",
            "Number of requests that went to another one, which was less busy",
            [series for series in all_series if "affinity_hits" in series.own],
            lambda series: series.own["affinity_misses"],
        ),
        *(
            (name, "counter", text, alike, functools.partial(_padding, kind))
            for name, kind, text in _PADDING
        ),
        (
            "batch_delay_seconds",
            "gauge",
            "Delay of batches that BATCH_DELAY has chosen",
            choosing,
            lambda series: series.own["batching"]["delay_us"] / 1e6,
        ),
        (
            "batch_max_size",
            "gauge",
            "Maximum size of batches that BATCH_DELAY has chosen",
            choosing,
            lambda series: series.own["batching"]["target"],
        ),
    ]


def _padding(kind: str, series: Series) -> float:
    return float(series.own["batching"]["padding"][kind])


def _instance_families(
    all_series: list[Series], processes: Iterable[Mapping[str, Any]], busyness: Busyness
) -> _Families:
    restarts: Counter[Key] = Counter()
    planned: Counter[Key] = Counter()
    for process in processes:
        if process["role"] == "stub":
            key = process["model"], str(process["version"])
            restarts[key] += process["restarts"]
            planned[key] += process["state"] not in _LEAVING
    busyness.look(all_series)
    owners = [series for series in all_series if series.own.get("instances")]
    of_stubs = [series for series in all_series if _key(series) in planned]
    return [
        (
            "instances",
            "gauge",
            "Number of instances that can execute or are executing",
            owners,
            lambda series: series.own["instances"],
        ),
        (
            "instances_wanted",
            "gauge",
            "Number of instances that the model should have, the dead and the starting included",
            of_stubs,
            lambda series: planned[_key(series)],
        ),
        (
            "instance_busy_ratio",
            "gauge",
            "Share of time that instances were executing, in the last interval [0.0 - 1.0]",
            owners,
            busyness.of,
        ),
        (
            "instance_busy_seconds_total",
            "counter",
            "Time that instances were executing, summed over them",
            owners,
            lambda series: series.own.get("busy_ns", 0) / 1e9,
        ),
        (
            "instance_restarts_total",
            "counter",
            "Number of times that a dead instance was started again",
            of_stubs,
            lambda series: restarts[_key(series)],
        ),
    ]


def _use_families(
    known: list[Series], processes: Iterable[Mapping[str, Any]], use: Mapping[Key, Use]
) -> _Families:
    users = [series for series in known if _key(series) in use]
    growth: dict[Key, float] = {}
    for process in processes:
        if growing := process.get("growth"):
            key = process["model"], str(process["version"])
            each = (growing["after"] - growing["before"]) / growing["executions"]
            growth[key] = max(growth.get(key, 0.0), each)
    return [
        (
            "model_memory_bytes",
            "gauge",
            "Memory of the processes of the model; pages that several share count in each",
            users,
            lambda series: use[_key(series)].memory_bytes,
        ),
        (
            "model_growth_bytes",
            "gauge",
            "Memory that each execution adds to an instance of the model, if it grows steadily",
            users,
            lambda series: growth.get(_key(series), 0),
        ),
        (
            "model_cpu_seconds_total",
            "counter",
            "Processor time of the processes of the model",
            users,
            lambda series: round(use[_key(series)].cpu_s, 2),
        ),
    ]


def render_refusals(all_series: list[Series]) -> str:
    """Return the text for requests that were refused because of a limit; "" without any."""
    return text_of(
        _family(
            "model_refused_requests_total",
            "Inferences refused for a limit of the server or of the model",
            "counter",
            (
                ({**series.labels, "reason": reason}, count)
                for series in all_series
                for reason, count in series.own.get("refusals", {}).items()
            ),
            is_optional=True,
        )
    )


def render_load(load: MachineLoad) -> str:
    """Return the metrics of the machine's pressure; "" if the kernel does not measure it."""
    if not load.waited_s:
        return ""
    return text_of(
        [
            *_family(
                "pressure_seconds_total",
                "Time in which a process of the machine waited for a resource",
                "counter",
                _by("resource", load.waited_s),
            ),
            *_family(
                "neighbours_cpu_ratio",
                "Share of the CPU of other programs, where CPU is short [0.0 - 1.0]",
                "gauge",
                [({}, (load.last.neighbours_cpu_percent or 0.0) / 100)],
            ),
        ]
    )


def render_certificates(files: Mapping[str, str]) -> str:
    """Return the text for each service's certificate; "" without a readable one."""
    ends_s = {service: not_after_s(path) for service, path in files.items()}
    finite = {service: each for service, each in ends_s.items() if math.isfinite(each)}
    return text_of(
        _family(
            "certificate_not_after_seconds",
            "When the certificate of a service ends, in seconds since 1970",
            "gauge",
            _by("service", finite),
            is_optional=True,
        )
    )


def render(broker: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    """Return the text for the server: messages between our own processes, and shared memory."""
    return text_of(
        [
            *_server_families(broker, status),
            *_rows(_TOKENS, broker.get("tokens", ()), ["token"]),
            *_rows(_RESOURCES, broker.get("resources", ()), ["resource", "device"]),
            *_rows(_QUOTAS, status.get("quotas", ()), ["model", "quota"]),
            *_on_demand(status.get("on_demand", {})),
            *_canaries(status.get("canaries", {})),
        ]
    )


def _server_families(broker: Mapping[str, Any], status: Mapping[str, Any]) -> Iterator[str]:
    shared = Counter({"ended": status.get("ended_segment_bytes", 0)})
    restarts: Counter[str] = Counter()
    for process in status["processes"]:
        shared[process["role"]] += process["segment_bytes"]
        restarts[process["role"]] += process.get("restarts", 0)
    server = status.get("server", {})
    build = {name: server.get(name, "") for name in ("version", "commit")}
    families: dict[str, tuple[str, _Samples]] = {
        "silent_repositories": (
            "Model repositories that do not answer",
            [({}, len(status.get("silent_places", ())))],
        ),
        "build_info": ("The version of this server", [(build, 1)]),
        "malformed_messages_total": (
            "Number of internal messages that made no sense",
            _by("place", {"broker": broker["malformed"], "supervisor": status["malformed"]}),
        ),
        "log_lines_lost_total": (
            "Lines of the log that could not be written",
            [({}, status.get("log", {}).get("lost_lines", 0))],
        ),
        "broker_bytes_total": (
            "Bytes on the sockets of the broker",
            _by("direction", {"in": broker["received_bytes"], "out": broker["sent_bytes"]}),
        ),
        "leased_blocks": (
            "Blocks of shared memory that processes hold of others",
            [({}, broker["leases"])],
        ),
        "shared_memory_bytes": ("Shared memory for tensors, by who owns it", _by("role", shared)),
        "unanswered_requests": ("Inferences that are under way", [({}, broker["unanswered"])]),
        "refused_requests_total": (
            "Inferences refused because the limit of concurrent requests was reached",
            [({}, broker["refused"])],
        ),
        "process_restarts_total": (
            "Number of times that a dead process was replaced",
            _by("role", restarts),
        ),
    }
    for name, (text, samples) in families.items():
        yield from _family(name, text, "counter" if name.endswith("_total") else "gauge", samples)


def _on_demand(status: Mapping[str, Any]) -> Iterator[str]:
    """Return the text for models that are loaded on demand; "" if there are no such models."""
    if not status:
        return
    families = (
        (
            "on_demand_loads_total",
            "Loads that requests had made",
            "result",
            {"loaded": "loads", "failed": "failures"},
        ),
        (
            "evictions_total",
            "Unloads of models that requests had loaded",
            "reason",
            {"idle": "idle", "memory": "memory"},
        ),
        ("sleeps_total", "Models put to sleep for others", "reason", {"memory": "sleeps"}),
    )
    for name, text, label, keys in families:
        counts = (
            ({"model": row["model"], label: value}, row[key])
            for row in status["models"]
            for value, key in keys.items()
        )
        yield from _family(name, text, "counter", counts)
    yield from _family(
        "on_demand_waiting",
        "Processes that wait for a load for requests",
        "gauge",
        [({}, sum(status["waiting"].values()))],
    )
    if status["budget_bytes"]:
        yield from _family(
            "models_memory_bytes",
            "Memory of the processes of models",
            "gauge",
            [({}, status["used_bytes"])],
        )
    yield from _family(
        "models_gpu_memory_bytes",
        "Memory of models on a GPU",
        "gauge",
        (({"gpu": str(row["gpu"])}, row["used_bytes"]) for row in status["gpus"]),
        is_optional=True,
    )


#: Families of a table: name, key of the figure in each row, and text.
_TOKENS = (
    ("token_requests_total", "requests", "Inferences that clients with a token have asked for"),
    ("token_refused_total", "refused", "Inferences refused for the limits of a token"),
)
_RESOURCES = (
    ("resource_count", "count", "How much of a resource there is"),
    ("resource_in_use", "in_use", "How much of a resource executions hold"),
)
_QUOTAS = (
    ("quota_limit", "limit", "Limit of a quota of the model"),
    ("quota_used", "used", "Use of a quota of the model, in the unit of its limit"),
    ("quota_exceeded_total", "exceeded", "Times that the model exceeded the quota"),
)


def _rows(
    families: Iterable[tuple[str, str, str]],
    rows: Sequence[Mapping[str, Any]],
    labels: Sequence[str],
) -> Iterator[str]:
    """Return the text for the figures of a table, by these columns; "" without rows."""
    for name, key, text in families if rows else ():
        samples = (
            ({n: "" if row[n] is None else str(row[n]) for n in labels}, row[key])
            for row in rows
            if row[key] is not None
        )
        yield from _family(name, text, "counter" if name.endswith("_total") else "gauge", samples)


def _canaries(status: Mapping[str, Any]) -> Iterator[str]:
    """Return the text for canaries; "" if there has been none."""
    if not status.get("models"):
        return
    yield from _family(
        "canary_weight",
        "Percentage of requests that a canary gets",
        "gauge",
        (
            ({"model": row["model"], "version": str(row["canary"])}, row["weight"])
            for row in status["models"]
            if row["phase"] == "RUNNING"
        ),
    )
    yield from _family(
        "canary_ends_total",
        "Canaries that were promoted or aborted",
        "counter",
        (({"model": model, "result": result}, count) for model, result, count in status["ends"]),
    )
    yield from _family(
        "canary_comparisons_total",
        "Requests that were copied to a canary, by result",
        "counter",
        (
            ({"model": model, "version": version, "result": result}, count)
            for model, version, result, count in status["comparisons"]
        ),
    )


def _family(
    name: str, text: str, kind: str, samples: _Samples, *, is_optional: bool = False
) -> Iterator[str]:
    return family(f"zmqtriton_{name}", text, kind, samples, is_optional=is_optional)


def _by(label: str, values: Mapping[str, float]) -> _Samples:
    return (({label: key}, value) for key, value in values.items())
