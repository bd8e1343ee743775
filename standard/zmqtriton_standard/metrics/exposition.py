"""The broker's statistics as Prometheus text 0.0.4, under Triton's names.

Each family is a row of the table; nothing else knows the names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from zmqtriton_standard.metrics import latencies
from zmqtriton_standard.metrics.machine import Machine
from zmqtriton_standard.metrics.model_metrics import Family, Series, family, text_of

#: Content type that Triton sends; Prometheus reads one without a version as 0.0.4.
CONTENT_TYPE = "text/plain; charset=utf-8"

#: Reasons of failures. Each has a series from the start, so that a sum over them never misses one.
FAILURE_REASONS = ("REJECTED", "CANCELED", "BACKEND", "OTHER")

ModelStat = dict[str, Any]
#: Returns the configuration of a model's version.
ConfigOf = Callable[[str, int], Mapping[str, Any]]


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
_LOAD = Family(
    "nv_model_load_duration_secs",
    "gauge",
    "Model load time in seconds",
    lambda stat: float(stat["zmqtriton"]["load_s"]),
)
_CACHE = (
    ("num_hits", "Number of cache hits per model", "cache_hit", False),
    ("hit_duration", "Total cache hit duration per model, in microseconds", "cache_hit", True),
    ("num_misses", "Number of cache misses per model", "cache_miss", False),
    (
        "miss_duration",
        "Total cache miss (insert+lookup) duration per model, in microseconds",
        "cache_miss",
        True,
    ),
)
#: Families that only models with a response cache have.
_CACHE_FAMILIES = tuple(
    Family(
        f"nv_cache_{name}_per_model",
        "counter",
        text,
        _microseconds(key) if is_duration else _count(key),
        is_latency=True,
    )
    for name, text, key, is_duration in _CACHE
)
_FAILURE = "nv_inference_request_failure"
_FAILURE_HELP = "Number of failed inference requests, all batch sizes"


def render(
    model_stats: list[ModelStat],
    *,
    has_latencies: bool = True,
    config_of: ConfigOf = lambda name, version: {},
) -> str:
    """Return the text; a family without series is left out, as by Triton.

    Labels come from the models' configurations, which also say which of them have a cache.
    """
    all_series = [
        Series(stat, config_of(stat["name"], int(stat["version"]))) for stat in model_stats
    ]
    *counters, pending = _FAMILIES
    cached = [series for series in all_series if series.is_cached]
    shown = [
        *((each, all_series) for each in counters),
        *((each, cached) for each in _CACHE_FAMILIES),
        (pending, all_series),
        (_LOAD, [series for series in all_series if "load_s" in series.own]),
    ]
    lines = [*_family(_SUCCESS, all_series), *_failures(all_series)]
    for each, of in shown:
        if has_latencies or not each.is_latency:
            lines += _family(each, of)
    lines += [*latencies.first_responses(all_series), *latencies.summaries(all_series)]
    return text_of(lines)


def render_machine(machine: Machine | None, cache: Mapping[str, Any]) -> str:
    """Return Triton's metrics of the machine and, if there is one, of the cache."""
    # nothing here is pinned
    gauges: list[tuple[str, str, float]] = [
        (
            "pinned_memory_pool_total_bytes",
            "Pinned memory pool total memory size, in bytes",
            0,
        ),
        ("pinned_memory_pool_used_bytes", "Pinned memory pool used memory size, in bytes", 0),
    ]
    if machine is not None:
        gauges += [
            ("cpu_utilization", "CPU utilization rate [0.0 - 1.0]", machine.utilization),
            ("cpu_memory_total_bytes", "CPU total memory (RAM), in bytes", machine.memory_total),
            ("cpu_memory_used_bytes", "CPU used memory (RAM), in bytes", machine.memory_used),
        ]
    if cache:
        gauges += _cache_gauges(cache)
    families = (family(f"nv_{name}", text, "gauge", [({}, value)]) for name, text, value in gauges)
    return "".join(f"{line}\n" for lines in families for line in lines)


def _cache_gauges(cache: Mapping[str, Any]) -> list[tuple[str, str, float]]:
    hits, misses, lookup_us = cache["hits"], cache["misses"], cache["lookup_ns"] // 1000
    looked_up = "Total cache lookup duration (hit and miss), in microseconds"
    inserted, insertion_us = "Total cache insertion duration", cache["insertion_ns"] // 1000
    return [
        ("cache_util", "Cache utilization [0.0 - 1.0]", cache["utilization"]),
        ("cache_num_entries", "Number of responses stored in response cache", cache["entries"]),
        ("cache_num_hits", "Number of cache hits in response cache", hits),
        ("cache_num_misses", "Number of cache misses in response cache", misses),
        ("cache_num_lookups", "Number of cache lookups in response cache", hits + misses),
        (
            "cache_num_evictions",
            "Number of cache evictions in response cache",
            cache["evictions"],
        ),
        ("cache_lookup_duration", looked_up, lookup_us),
        ("cache_insertion_duration", f"{inserted}, in microseconds", insertion_us),
    ]


def _family(each: Family, all_series: list[Series]) -> Iterator[str]:
    return each.lines((series.labels, each.value(series.stat)) for series in all_series)


def _failures(all_series: list[Series]) -> Iterator[str]:
    samples = (
        ({**series.labels, "reason": reason}, int(series.own.get("failures", {}).get(reason, 0)))
        for series in all_series
        for reason in FAILURE_REASONS
    )
    return family(_FAILURE, _FAILURE_HELP, "counter", samples, is_optional=True)
