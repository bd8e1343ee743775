"""Metric families and metrics of a model: what may be made, and when they are gone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stub.fakes import FakeLink
from zmqtriton_stub import instance
from zmqtriton_stub.api.errors import TritonModelException
from zmqtriton_stub.api.metrics import Metric, MetricFamily

COUNTER, GAUGE, HISTOGRAM = MetricFamily.COUNTER, MetricFamily.GAUGE, MetricFamily.HISTOGRAM


@pytest.fixture
def measures(monkeypatch: pytest.MonkeyPatch) -> Any:
    current = FakeLink().instance
    monkeypatch.setattr(instance, "current", current)
    return current.measures


def test_what_nobody_holds_is_dropped(measures: Any) -> None:
    family, kept = MetricFamily("f", "about", COUNTER), MetricFamily("g", "about", GAUGE)
    metric, other = family.Metric({"a": "b"}), kept.Metric()
    assert family._life is not None
    assert metric._measured is not None
    of_family, of_metric = family._life.number, metric._measured.number

    del metric, family

    dropped = [row for _, verb, row in measures.changes if verb == "drop"]
    assert [["drop", of_metric], ["drop", of_family]] == dropped
    other.value()  # sums up what has happened
    assert measures.find(of_metric) is None


def test_a_metric_of_a_family_that_is_gone_cannot_be_changed(measures: Any) -> None:
    family = MetricFamily("f", "about", COUNTER)
    metric = family.Metric()
    metric.increment(1)

    del family

    with pytest.raises(TritonModelException):
        metric.increment(1)


def test_a_family_that_was_never_made_is_let_go_in_silence(measures: Any) -> None:
    with pytest.raises(TritonModelException, match="Invalid metric name"):
        MetricFamily("not a name", "about", COUNTER)

    family = MetricFamily.__new__(MetricFamily)
    family.__del__()


@pytest.mark.parametrize(
    ("kind", "arguments", "text"),
    [
        (COUNTER, {"labels": ["a"]}, "Labels must be a dictionary"),
        (COUNTER, {"buckets": 1}, "Buckets must be a list"),
        (COUNTER, {"buckets": [1.0]}, "Unexpected buckets found"),
        (HISTOGRAM, {}, "Missing required buckets"),
        (HISTOGRAM, {"buckets": [2.0, 1.0]}, "Bucket Boundaries must be strictly sorted"),
        (GAUGE, {"labels": {"a": 1}}, "attempt to access JSON non-string as string"),
    ],
)
def test_what_makes_no_metric_is_refused(
    measures: Any, kind: Any, arguments: dict[str, Any], text: str
) -> None:
    family = MetricFamily("f", "about", kind)

    with pytest.raises(TritonModelException, match=text):
        family.Metric(**arguments)


def test_metrics_are_made_by_families(measures: Any) -> None:
    with pytest.raises(TypeError, match="No constructor defined"):
        Metric()
