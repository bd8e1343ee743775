from __future__ import annotations

from typing import Any

import pytest

from zmqtriton_floor import metrics
from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_floor.metrics import COUNTER, HISTOGRAM


@pytest.mark.parametrize("name", ["a", "_", "vllm:requests_total", "nv_trt_llm_request_metrics"])
def test_names_of_prometheus_are_taken(name: str) -> None:
    metrics.check_family(name, "", COUNTER)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("1a", "", COUNTER), "Invalid metric name"),
        (("ä", "", COUNTER), "Invalid metric name"),
        (("a\n", "", COUNTER), "Invalid metric name"),
        (("a" * 257, "", COUNTER), "Invalid metric name"),
        (("zmqtriton_x", "", COUNTER), "one of the server's own"),
        (("a", "x" * 1025, COUNTER), "a description may have 1024 characters"),
        (("a", "", True), "Invalid metric kind"),
    ],
)
def test_a_family_that_cannot_be_is_refused(arguments: Any, text: str) -> None:
    with pytest.raises(ZmqTritonError, match=text):
        metrics.check_family(*arguments)


@pytest.mark.parametrize(
    ("kind", "labels", "buckets", "text"),
    [
        (COUNTER, {"a b": ""}, [], "Invalid label name"),
        (COUNTER, {3: ""}, [], "Invalid label name"),
        (HISTOGRAM, {"le": ""}, [], "Invalid label name"),
        (COUNTER, {"a": 3}, [], "attempt to access JSON non-string as string"),
        (COUNTER, {"a": "x" * 4096}, [], "64 labels of 4096 characters"),
        (COUNTER, {f"a{n}": "" for n in range(65)}, [], "64 labels of 4096 characters"),
        (HISTOGRAM, {}, [2.0, 1.0], "Bucket Boundaries must be strictly sorted"),
        (HISTOGRAM, {}, [float("nan")], "Bucket Boundaries must be strictly sorted"),
        (HISTOGRAM, {}, [*range(257)], "a histogram may have 256 buckets"),
    ],
)
def test_a_metric_that_cannot_be_is_refused(
    kind: int, labels: Any, buckets: list[float], text: str
) -> None:
    with pytest.raises(ZmqTritonError, match=text):
        metrics.check_metric(kind, labels, buckets)


def test_only_a_histogram_has_le_for_itself() -> None:
    metrics.check_metric(COUNTER, {"le": "x"}, [])


# ------------------------------------------------------------------- configuration


@pytest.mark.row("--metrics-config")
@pytest.mark.parametrize(
    ("config", "has"),
    [
        ([], True),
        ([("summary_latencies", "true")], True),
        ([("counter_latencies", "false")], False),
        ([("counter_latencies", "false"), ("counter_latencies", "true")], True),
    ],
)
def test_latency_counters_are_an_option(config: list[tuple[str, str]], has: bool) -> None:
    assert has is metrics.config_of(config).has_counters


def test_histograms_and_summaries_are_asked_for() -> None:
    settings = [("histogram_latencies", "true"), ("summary_latencies", "1")]

    config = metrics.config_of(settings)

    assert (config.has_histograms, config.has_summaries) == (True, True)
    assert not any(metrics.config_of([])[1:3])


@pytest.mark.row("--metrics-config")
@pytest.mark.parametrize(
    ("text", "quantiles"),
    [
        ("0.9:0.01,0.5:0.05", [0.5, 0.9]),
        ("0.25", [0.25]),
        ("x:0.1,0.5:0.05,7:0.1,,nan", [0.5]),
        ("", [0.5, 0.9, 0.95, 0.99, 0.999]),
    ],
)
def test_quantiles_are_those_that_make_sense_or_tritons(text: str, quantiles: list[float]) -> None:
    config = metrics.config_of([("summary_quantiles", text)])

    assert tuple(quantiles) == config.quantiles
