"""Spans of OpenTelemetry around the work of callables."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.needs import skip_missing
from zmqtriton_extras.pytriton.decorators import batch
from zmqtriton_extras.pytriton.proxy import telemetry
from zmqtriton_extras.pytriton.proxy.types import Request

REMOTE = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[Any]]]:
    """Set a tracer, and return what gives the spans that have ended."""
    try:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    except ImportError:
        skip_missing("opentelemetry-sdk")
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(telemetry, "_tracer", None)
    telemetry.set_telemetry_tracer(provider.get_tracer("test"))
    yield lambda: list(exporter.get_finished_spans())
    provider.shutdown()


@pytest.mark.row("J06")
def test_work_is_a_span_below_the_requests(spans: Any) -> None:
    request = Request({}, span=telemetry.start_span_from_remote(REMOTE, "request"))

    with request.traced_span("work"):
        pass
    telemetry.end_span(request.span)

    work, outer = spans()
    assert ("work", "request") == (work.name, outer.name)
    assert work.parent.span_id == outer.context.span_id
    assert 0xB7AD6B7169203331 == outer.parent.span_id
    assert outer.status.is_ok


@pytest.mark.row("J06")
def test_a_batch_is_a_span_of_each_of_its_requests(spans: Any) -> None:
    requests = [
        Request({"a": np.ones(1)}, span=telemetry.start_span_from_remote(REMOTE, "request"))
        for _ in range(2)
    ]

    batch(lambda a: {"a": a})([*requests, Request({"a": np.ones(1)})])

    assert ["pytriton-batch-decorator-span"] * 2 == [span.name for span in spans()]
    assert [r.span.get_span_context().span_id for r in requests] == [
        span.parent.span_id for span in spans()
    ]


def test_a_span_ends_with_the_error_of_its_request(spans: Any) -> None:
    telemetry.end_span(telemetry.start_span_from_remote(REMOTE, "request"), "it failed")

    (span,) = spans()
    assert "it failed" == span.status.description


def test_a_process_has_one_tracer(spans: Any) -> None:
    assert telemetry.get_telemetry_tracer() is not None
    with pytest.raises(ValueError, match=r"^Telemetry tracer is already set$"):
        telemetry.set_telemetry_tracer(object())


def test_without_a_tracer_there_are_no_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "_tracer", None)

    assert telemetry.start_span_from_remote(REMOTE, "request") is None
    telemetry.end_span(None)


def test_the_servers_trace_settings_say_where_spans_go() -> None:
    url, attributes = telemetry.parse_trace_config(
        [
            "mode=opentelemetry",
            "opentelemetry,url=http://collector:4318/v1/traces",
            "opentelemetry,resource=service.name=models",
            "opentelemetry,resource=a=b,c=d",
        ]
    )

    assert "http://collector:4318/v1/traces" == url
    assert {"service.name": "models", "a": "b", "c": "d"} == attributes


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (["mode=triton"], "Only opentelemetry mode is supported"),
        (["mode=opentelemetry"], "opentelemetry,url is required"),
    ],
)
def test_other_trace_settings_are_refused(settings: list[str], text: str) -> None:
    with pytest.raises(ValueError, match=f"^{text}$"):
        telemetry.parse_trace_config(settings)


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)

    with pytest.raises(ImportError, match=r"pip install opentelemetry-api opentelemetry-sdk op"):
        telemetry.build_proxy_tracer_from_triton_config(["mode=opentelemetry"])
