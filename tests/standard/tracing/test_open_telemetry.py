"""The exporter with a collector that fails in all the ways that collectors have."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.support.receivers.collector import Collector
from tests.support.waiting import eventually
from zmqtriton.otlp_destination import Destination
from zmqtriton_standard.tracing import open_telemetry
from zmqtriton_standard.tracing.gathering import RequestSpan
from zmqtriton_standard.tracing.open_telemetry import OpenTelemetryExporter, SpanBacklog

pytestmark = pytest.mark.slow


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(open_telemetry, "_MAX_PAUSE_S", 0.01)
    caplog.set_level(logging.INFO)


def to(url: str, *, max_waiting: int = 10, max_sent: int = 1, delay_s: float = 0) -> Destination:
    return Destination.read([("url", url)], {"OTEL_EXPORTER_OTLP_HEADERS": "api-key=k"})._replace(
        max_queue_size=max_waiting, max_batch_size=max_sent, export_delay_s=delay_s
    )


def trace(number: int) -> RequestSpan:
    return RequestSpan(f"00-{number:032x}-{1:016x}-01", marks={"HTTP_RECV_START": 1})


def numbers(collector: Collector) -> list[int]:
    return [int(span.trace_id, 16) for span in collector.spans()]


def test_spans_are_sent_in_messages_of_the_wanted_size(collector: Collector) -> None:
    exporter = OpenTelemetryExporter(to(collector.url, max_sent=2, delay_s=3600))
    for number in (1, 2, 3):
        exporter.store(trace(number))
    exporter.close(30)

    assert [1, 2, 3] == numbers(collector)
    assert 2 == collector.messages
    assert {"k"} == {span.headers["api-key"] for span in collector.spans()}


def test_an_outage_is_told_once_with_its_end_and_what_was_lost(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    collector.status = 503
    exporter = OpenTelemetryExporter(to(collector.url, max_waiting=2))
    exporter.store(trace(1))
    eventually(lambda: collector.messages > 2, 30)
    for number in (2, 3, 4):
        exporter.store(trace(number))

    collector.status = 200
    eventually(lambda: numbers(collector)[-1:] == [4] or None, 30)
    exporter.close(30)

    said = [record.getMessage() for record in caplog.records]
    assert f"traces cannot be exported to {collector.url}: it answered 503" == said[0]
    assert 2 == len(said)
    lost = 4 - len(numbers(collector))
    assert f"traces are exported to {collector.url} again; {lost} spans were lost" == said[1]
    assert lost > 0


def test_what_a_collector_will_never_take_is_lost_and_counted(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    collector.status = 400
    exporter = OpenTelemetryExporter(to(collector.url))
    exporter.store(trace(1))
    eventually(lambda: collector.messages or None, 30)
    eventually(lambda: caplog.records or None, 30)
    collector.status = 200
    exporter.store(trace(2))
    exporter.close(30)

    assert [2] == numbers(collector)
    assert caplog.messages[-1].endswith("again; 1 spans were lost")


def test_what_is_refused_of_a_message_is_told(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    collector.rejected = 1
    exporter = OpenTelemetryExporter(to(collector.url))
    exporter.store(trace(1))
    exporter.close(30)

    assert f"{collector.url} did not take 1 spans of traces: no more room" in caplog.messages


def test_the_end_waits_no_longer_than_it_may_for_who_does_not_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        exporter = OpenTelemetryExporter(
            to(f"http://127.0.0.1:{silent.getsockname()[1]}/v1/traces")
        )
        exporter.store(trace(1))
        exporter.store(trace(2))

        exporter.close(0.3)

        assert "2 spans of traces were not exported to" in caplog.messages[-1]
    eventually(lambda: all(t.name != "exporter" for t in threading.enumerate()), 30)


def test_nobody_is_there_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    exporter = OpenTelemetryExporter(to("http://127.0.0.1:1/v1/traces", delay_s=3600, max_sent=10))
    exporter.store(trace(1))
    exporter.close(30)

    assert [
        "traces cannot be exported to http://127.0.0.1:1/v1/traces: Connection refused",
        "1 spans of traces were not exported to http://127.0.0.1:1/v1/traces",
    ] == caplog.messages


# ------------------------------------------------------------------- backlog


_NEVER_S = 3600.0


def test_a_full_message_is_taken_at_once_and_the_rest_waits() -> None:
    backlog = SpanBacklog(10, 2, _NEVER_S)
    backlog.add("abcde")

    assert ["a", "b"] == backlog.take_batch()
    assert ["c", "d"] == backlog.take_batch()
    assert 1 == len(backlog)


def test_what_has_waited_long_enough_is_taken_though_it_is_little() -> None:
    backlog = SpanBacklog(10, 2, 0.0)
    backlog.add("a")

    assert ["a"] == backlog.take_batch()


def test_the_oldest_go_when_there_is_no_more_room() -> None:
    backlog = SpanBacklog(3, 3, _NEVER_S)
    backlog.add("abcde")

    assert ["c", "d", "e"] == backlog.take_batch()
    assert (2, 0) == (backlog.pop_lost_count(), backlog.pop_lost_count())


def test_what_could_not_be_sent_is_the_next_again_as_far_as_there_is_room() -> None:
    backlog = SpanBacklog(4, 2, _NEVER_S)
    backlog.add("abc")
    taken = backlog.take_batch()
    backlog.add("de")

    backlog.requeue(taken, 0.0)

    assert 1 == backlog.pop_lost_count()
    assert ["b", "c"] == backlog.take_batch()


def test_at_the_end_everything_is_taken_whatever_was_to_be_waited_for() -> None:
    backlog = SpanBacklog(10, 2, _NEVER_S)
    backlog.add("abc")
    backlog.requeue(backlog.take_batch(), _NEVER_S)

    backlog.close()

    assert [["a", "b"], ["c"], []] == [backlog.take_batch() for _ in range(3)]


def test_who_waits_hears_of_what_comes() -> None:
    backlog = SpanBacklog(10, 2, _NEVER_S)
    taken: list[list[str]] = []
    thread = threading.Thread(target=lambda: taken.append(backlog.take_batch()))
    thread.start()

    backlog.add("a")
    backlog.add("b")
    thread.join(30)

    assert [["a", "b"]] == taken
