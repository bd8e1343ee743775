"""Histograms and summaries of latencies as Prometheus text.

The broker keeps them; Triton's if `--metrics-config` asks for them. A version for which it has none
has no series here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from zmqtriton_addons.metrics.model_metrics import head, histogram, number
from zmqtriton_addons.metrics.series import Series, labels_text
from zmqtriton_floor.metrics import REQUEST_BOUNDS_S

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


def first_responses(all_series: list[Series]) -> Iterator[str]:
    """Return the lines; none if no version is timed."""
    timed = [series for series in all_series if "first_response" in series.own]
    if timed:
        yield from head(_FIRST_RESPONSE, _FIRST_RESPONSE_HELP, "histogram")
    for series in timed:
        of = series.own["first_response"]
        yield from histogram(_FIRST_RESPONSE, {"labels": series.labels, **of})


def render_request_times(all_series: list[Series]) -> str:
    """Return the text for the versions that have answered a request."""
    return "".join(f"{line}\n" for line in _request_times(all_series))


def _request_times(all_series: list[Series]) -> Iterator[str]:
    timed = [series for series in all_series if any(series.own.get("times", ()))]
    if timed:
        yield from head(_REQUEST, _REQUEST_HELP, "histogram")
    for series in timed:
        sum_s = int(series.stat["inference_stats"]["success"]["ns"]) / 1e9
        of = {"buckets": REQUEST_BOUNDS_S, "counts": series.own["times"], "value": sum_s}
        yield from histogram(_REQUEST, {"labels": series.labels, **of})


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
