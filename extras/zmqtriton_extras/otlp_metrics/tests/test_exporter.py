"""The exporter with a collector that fails in all the ways that collectors have."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator

import pytest

from zmqtriton.otlp_destination import Destination
from zmqtriton_extras.otlp_metrics.options import METRICS
from zmqtriton_extras.otlp_metrics.process import MetricsExporter
from zmqtriton_extras.otlp_metrics.pusher import MAX_PAUSE_S, PAUSE_S
from zmqtriton_extras.otlp_metrics.tests.metrics_collector import MetricsCollector

pytestmark = pytest.mark.slow

PAGE = "# TYPE served_total counter\nserved_total 1\n"


@pytest.fixture
def collector() -> Iterator[MetricsCollector]:
    with MetricsCollector() as collector:
        yield collector


@pytest.fixture(autouse=True)
def _all_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def exporter_to(url: str) -> MetricsExporter:
    variables = {
        "OTEL_EXPORTER_OTLP_METRICS_HEADERS": "api-key=k",
        "OTEL_RESOURCE_ATTRIBUTES": "zone=z",
    }
    return MetricsExporter(
        Destination.read([("url", url)], variables, *METRICS), jitter=lambda: 0.0
    )


def test_a_page_is_one_message_with_headers_and_the_server(collector: MetricsCollector) -> None:
    exporter = exporter_to(collector.url)

    assert 0.0 == exporter.export(PAGE, 5, 30)

    (point,) = collector.points
    assert ("served_total", 1.0, 5) == (point.name, point.raw.as_double, point.raw.time_unix_nano)
    assert "k" == collector.headers[0]["api-key"]
    assert {"service.name": "triton-inference-server", "zone": "z"} == collector.resources[0]
    assert {"accepted": 1} == exporter.pages


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_pauses_of_an_outage_double_and_its_begin_and_end_are_logged_once(
    collector: MetricsCollector, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    exporter = exporter_to(collector.url)
    collector.status = status

    pauses = [exporter.export(PAGE, number, 30) for number in range(1, 8)]
    collector.status = 200
    after = exporter.export(PAGE, 9, 30)

    assert [PAUSE_S, 2, 4, 8, 16, MAX_PAUSE_S, MAX_PAUSE_S] == pauses
    assert 0.0 == after
    assert [9] == [point.raw.time_unix_nano for point in collector.points]
    assert [
        f"metrics cannot be pushed to {collector.url}: it answered {status}",
        f"metrics are pushed to {collector.url} again",
    ] == caplog.messages
    assert {"accepted": 1, "failed": 7} == exporter.pages


@pytest.mark.parametrize(
    ("text", "pause_s"), [("7", 7.0), ("9999", 300.0), ("Fri, 31 Dec 1999 23:59:59 GMT", PAUSE_S)]
)
def test_a_collector_may_ask_for_a_longer_pause(
    collector: MetricsCollector, text: str, pause_s: float
) -> None:
    collector.status = 503
    collector.answer_headers["Retry-After"] = text

    assert pause_s == exporter_to(collector.url).export(PAGE, 1, 30)


def test_what_a_collector_will_never_take_waits_for_the_next_interval(
    collector: MetricsCollector, caplog: pytest.LogCaptureFixture
) -> None:
    collector.status = 400
    exporter = exporter_to(collector.url)

    assert [0.0, 0.0] == [exporter.export(PAGE, 1, 30), exporter.export(PAGE, 2, 30)]

    assert [f"metrics cannot be pushed to {collector.url}: it answered 400"] == caplog.messages


def test_points_that_are_refused_are_counted_and_told_once(
    collector: MetricsCollector, caplog: pytest.LogCaptureFixture
) -> None:
    exporter = exporter_to(collector.url)
    collector.rejected = 5  # more than the message has
    pauses = [exporter.export(PAGE, 1, 30), exporter.export(PAGE, 2, 30)]
    collector.rejected = 0
    exporter.export(PAGE, 3, 30)

    assert [0.0, 0.0] == pauses
    assert ({"partly": 2, "accepted": 1}, 2) == (exporter.pages, exporter.refused_points)
    text = f"{collector.url} does not take 1 points of metrics: no more room"
    assert [text] == caplog.messages


def test_a_collector_that_does_not_answer_is_waited_for_so_long_and_no_longer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        exporter = exporter_to(f"http://127.0.0.1:{silent.getsockname()[1]}/v1/metrics")

        assert PAUSE_S == exporter.export(PAGE, 1, 0.2)

    assert {"failed": 1} == exporter.pages


def test_a_page_that_is_none_is_told_and_the_next_one_pushed(
    collector: MetricsCollector, caplog: pytest.LogCaptureFixture
) -> None:
    exporter = exporter_to(collector.url)

    assert 0.0 == exporter.export("what is this\n", 1, 30)
    assert 0.0 == exporter.export(PAGE, 2, 30)

    assert "a page of metrics could not be exported" == caplog.messages[0]
    assert 1 == len(collector.points)
