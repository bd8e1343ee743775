"""Metrics of the program itself, beside those of its server."""

from __future__ import annotations

import pytest

from zmqtriton_extras.tritonserver.api import (
    InvalidArgumentError,
    Metric,
    MetricFamily,
    MetricKind,
    UnsupportedError,
)
from zmqtriton_extras.tritonserver.metrics import page


def test_counters_and_gauges_are_on_the_page() -> None:
    sent = MetricFamily(MetricKind.COUNTER, "sent_total", "Messages sent")
    depth = MetricFamily(MetricKind.GAUGE, "depth", "Of the queue")
    counters = [Metric(sent, {"topic": "a"}), Metric(sent, {"topic": "b"})]
    gauge = Metric(depth)

    counters[0].increment(2)
    counters[0].increment(0.5)
    gauge.set_value(4)
    gauge.increment(-1)

    assert (counters[0].value, counters[1].value, gauge.value) == (2.5, 0.0, 3.0)
    assert (counters[0].kind, gauge.kind) == (MetricKind.COUNTER, MetricKind.GAUGE)
    assert page().splitlines() == [
        "# HELP depth Of the queue",
        "# TYPE depth gauge",
        "depth 3",
        "# HELP sent_total Messages sent",
        "# TYPE sent_total counter",
        'sent_total{topic="a"} 2.5',
        'sent_total{topic="b"} 0',
    ]


def test_metrics_with_the_same_labels_are_one_and_go_with_the_last() -> None:
    family = MetricFamily(MetricKind.COUNTER, "shared_total", "Shared")
    first = Metric(family, {"a": "1", "b": "2"})
    second = Metric(MetricFamily(MetricKind.COUNTER, "shared_total", ""), {"b": "2", "a": "1"})

    first.increment(1)
    second.increment(1)
    assert first.value == 2

    del first
    assert "shared_total" in page()
    del second
    assert page() == ""


def test_changes_that_a_kind_does_not_allow_are_refused() -> None:
    counter = Metric(MetricFamily(MetricKind.COUNTER, "up_total", "Up"))

    with pytest.raises(InvalidArgumentError, match="monotonically"):
        counter.increment(-1)
    with pytest.raises(UnsupportedError, match="COUNTER does not support Set"):
        counter.set_value(1)
    with pytest.raises(InvalidArgumentError, match="different type"):
        MetricFamily(MetricKind.GAUGE, "up_total", "Up")
    assert counter.value == 0
