"""Lines of the log as a collector gets them, and what becomes of them if it fails."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.receivers.logs_collector import LogsCollector
from zmqtriton.otlp_destination import Destination
from zmqtriton_extras.otlp_logs import process as module
from zmqtriton_extras.otlp_logs.options import LOGS
from zmqtriton_extras.otlp_logs.process import LogsExporter
from zmqtriton_extras.otlp_metrics.pusher import PAUSE_S

pytestmark = pytest.mark.slow

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def line(number: int, text: str = "said", **fields: Any) -> dict[str, Any]:
    """Return a line as the supervisor keeps it."""
    usual = {"time_s": 1.5, "level": "I", "pid": 7, "file": "a.py", "line": 3, "model": ""}
    return {"number": number, "text": text, **usual, "instance": "", "version": 0, "traces": ""} | (
        fields
    )


@pytest.fixture
def collector() -> Iterator[LogsCollector]:
    with LogsCollector() as collector:
        yield collector


@pytest.fixture
def exporter(collector: LogsCollector) -> LogsExporter:
    variables = {"OTEL_RESOURCE_ATTRIBUTES": "zone=z"}
    return LogsExporter(
        Destination.read([("url", collector.url)], variables, *LOGS), jitter=lambda: 0.0
    )


def test_a_line_is_a_record_with_severity_place_and_time(
    collector: LogsCollector, exporter: LogsExporter
) -> None:
    levels = [line(n, level=level) for n, level in enumerate("VIWE", start=1)]

    assert 0.0 == exporter.export(levels, 30)

    assert [("DEBUG", 5), ("INFO", 9), ("WARN", 13), ("ERROR", 17)] == [
        (record.severity, record.severity_number) for record in collector.records
    ]
    record = collector.records[0]
    assert ("said", 1_500_000_000, "", "") == (
        record.text,
        record.time_ns,
        record.trace_id,
        record.span_id,
    )
    assert {
        "process.pid": 7,
        "code.file.path": "a.py",
        "code.line.number": 3,
    } == record.attributes
    assert {"service.name": "triton-inference-server", "zone": "z"} == collector.resources[0]
    assert ({"accepted": 4}, 4) == (+exporter.lines, exporter.after)


def test_a_model_s_line_has_its_model_and_its_trace(
    collector: LogsCollector, exporter: LogsExporter
) -> None:
    traces = [f"00-{TRACE}-{SPAN}-01", f"00-{TRACE[::-1]}-{SPAN}-01"]
    of_model: dict[str, Any] = {"model": "m", "version": 2, "instance": "m_0_0"}

    exporter.export([line(n, **of_model, traces=" ".join(traces[:n])) for n in (1, 2)], 30)

    one, two = collector.records
    assert (TRACE, SPAN, TRACE, "") == (one.trace_id, one.span_id, two.trace_id, two.span_id)
    expected = {"triton.model_name": "m", "triton.model_version": 2, "zmqtriton.instance": "m_0_0"}
    assert {"process.pid": 7, **expected} == one.attributes
    assert " ".join(traces) == two.attributes["zmqtriton.traceparents"]


def test_lines_wait_for_a_collector_that_comes_back(
    collector: LogsCollector,
    exporter: LogsExporter,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(module, "_MAX_LINES", 2)
    lines = [line(n, str(n)) for n in range(1, 6)]
    collector.status = 503

    pauses = [exporter.export(lines, 30) for _ in range(2)]
    before = exporter.after
    collector.status = 200
    exporter.export(lines, 30)

    assert ([PAUSE_S, 2 * PAUSE_S], 0) == (pauses, before)
    assert ["1", "2", "3", "4", "5"] == [record.text for record in collector.records]
    assert ({"accepted": 5}, 5) == (+exporter.lines, exporter.after)
    assert [
        f"logs cannot be pushed to {collector.url}: it answered 503",
        f"logs are pushed to {collector.url} again",
    ] == caplog.messages


def test_what_will_never_be_taken_is_dropped_and_what_is_refused_is_counted(
    collector: LogsCollector, exporter: LogsExporter
) -> None:
    collector.status = 400
    assert 0.0 == exporter.export([line(1), line(2)], 30)
    collector.status, collector.rejected = 200, 1

    assert 0.0 == exporter.export([line(3), line(4), line(5)], 30)

    assert {"dropped": 2, "refused": 1, "accepted": 2} == exporter.lines
    assert 5 == exporter.after
