"""Histograms and summaries of latencies, and of loops' turns, as Prometheus text.

The broker keeps them; Triton's only if `--metrics-config` asks for them. A version without them in
the broker's answer has no series here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any

from zmqtriton.sdk.process import BOUNDS_S
from zmqtriton.sdk.wire import metrics
from zmqtriton_standard.metrics.model_metrics import (
    Series,
    family,
    head,
    histogram,
    labels_text,
    number,
    text_of,
)

_FIRST_RESPONSE = "nv_inference_first_response_histogram_ms"
_FIRST_RESPONSE_HELP = "Duration from request to first response in milliseconds"

_REQUEST = "zmqtriton_request_duration_seconds"
_REQUEST_HELP = "Time from arrival to the last answer of successful requests"

_INCLUDED, _EXCLUDED = "(includes cached requests)", "(does not include cached requests)"
_IN_US = "in microseconds"
#: The broker's name, the family, and Triton's help text.
_SUMMARIES = (
    (
        "request",
        "nv_inference_request_summary_us",
        f"Summary of inference request duration {_IN_US} {_INCLUDED}",
    ),
    (
        "queue",
        "nv_inference_queue_summary_us",
        f"Summary of inference queuing duration {_IN_US} {_INCLUDED}",
    ),
    (
        "compute_input",
        "nv_inference_compute_input_summary_us",
        f"Cumulative compute input duration {_IN_US} {_EXCLUDED}",
    ),
    (
        "compute_infer",
        "nv_inference_compute_infer_summary_us",
        f"Cumulative compute inference duration {_IN_US} {_EXCLUDED}",
    ),
    (
        "compute_output",
        "nv_inference_compute_output_summary_us",
        f"Cumulative inference compute output duration {_IN_US} {_EXCLUDED}",
    ),
    (
        "cache_hit",
        "nv_cache_hit_summary_per_model",
        "Summary of cache hit counts/durations per model, in microseconds.",
    ),
    (
        "cache_miss",
        "nv_cache_miss_summary_per_model",
        "Summary of cache miss counts/durations per model, in microseconds.",
    ),
)
_LONGEST = "zmqtriton_loop_turn_seconds_max"
_ALL = "zmqtriton_loop_turn_seconds"


def first_responses(all_series: list[Series]) -> Iterator[str]:
    """Return the lines; none if no version is timed."""
    timed = [series for series in all_series if "first_response" in series.own]
    if timed:
        yield from head(_FIRST_RESPONSE, _FIRST_RESPONSE_HELP, "histogram")
    for series in timed:
        yield from histogram(
            _FIRST_RESPONSE, {"labels": series.labels, **series.own["first_response"]}
        )


def render_request_times(all_series: list[Series]) -> str:
    """Return the text for the versions that have answered a request."""
    timed = [series for series in all_series if any(series.own.get("times", ()))]
    lines = head(_REQUEST, _REQUEST_HELP, "histogram") if timed else []
    for series in timed:
        sum_s = int(series.stat["inference_stats"]["success"]["ns"]) / 1e9
        of = {"buckets": metrics.REQUEST_BOUNDS_S, "counts": series.own["times"], "value": sum_s}
        lines += histogram(_REQUEST, {"labels": series.labels, **of})
    return text_of(lines)


def summaries(all_series: list[Series]) -> Iterator[str]:
    """Return the lines; a family without a series is left out."""
    for key, name, text in _SUMMARIES:
        summed = [series for series in all_series if key in series.own.get("summaries", {})]
        if summed:
            yield from head(name, text, "summary")
        for series in summed:
            yield from _summary(name, series, series.own["summaries"][key])


def _summary(name: str, series: Series, of: dict[str, Any]) -> Iterator[str]:
    yield f"{name}_count{labels_text(**series.labels)} {of['count']}"
    yield f"{name}_sum{labels_text(**series.labels)} {of['sum']}"
    own = labels_text(**series.labels)[:-1]
    for quantile, value in of["quantiles"]:
        text = number(math.nan if value is None else value)
        yield f'{name}{own},quantile="{number(quantile)}"}} {text}'


def render_turns(status: Mapping[str, Any]) -> str:
    return text_of([*_longest(status["processes"]), *_all(status.get("turns", ()))])


def _longest(processes: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Return the lines for the longest turn of each role; 0 if no turn was long."""
    longest: dict[str, float] = {}
    for process in processes:
        if "longest_turn" in process:
            turn, role = process["longest_turn"], process["role"]
            took_s = sum(turn[name] for name in ("cpu_s", "stood_s", "locked_s")) if turn else 0.0
            longest[role] = max(longest.get(role, 0.0), took_s)
    text = "Longest turn of a process's loop in the last minutes, without waits for a processor"
    samples = (({"process": role}, round(took_s, 3)) for role, took_s in longest.items())
    yield from family(_LONGEST, text, "gauge", samples)


def _all(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    yield from head(_ALL, "Turns that took 10 ms or longer", "histogram")
    bounds = [*map(str, BOUNDS_S), "+Inf"]
    for row in rows:
        role, sums = row["role"], [*accumulate(row["counts"])]
        for bound, count in zip(bounds, sums, strict=True):
            yield f"{_ALL}_bucket{labels_text(process=role, le=bound)} {count}"
        yield f"{_ALL}_sum{labels_text(process=role)} {number(row['sum_s'])}"
        yield f"{_ALL}_count{labels_text(process=role)} {sums[-1]}"
