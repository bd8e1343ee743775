"""Spans of OpenTelemetry, made of traces; read with OpenTelemetry's own classes."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as service
from opentelemetry.proto.metrics.v1 import metrics_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

import zmqtriton_protos
from zmqtriton_standard.tracing import otlp
from zmqtriton_standard.tracing.gathering import RequestSpan

_TRACE = "0af7651916cd43dd8448eb211c80319c"
_COMPUTE = {"COMPUTE_START": 30, "COMPUTE_END": 40}


def span(number: int, state: str = "", **said: Any) -> RequestSpan:
    return RequestSpan(f"00-{_TRACE}-{number:016x}-01{state}", **said)


def trace() -> RequestSpan:
    """A model that asks another one."""
    inner = span(3, model="b", version=4, marks={"REQUEST_START": 32, "REQUEST_END": 36})
    inner.marks |= {"COMPUTE_START": 33, "COMPUTE_END": 35}
    marks = {"REQUEST_START": 20, "QUEUE_START": 21, "REQUEST_END": 50, **_COMPUTE}
    model = span(2, model="a", version=1, request_id="r", marks=marks, children=[inner])
    around = {"HTTP_RECV_START": 10, "HTTP_SEND_END": 45}
    return span(1, model="a", request_id="r", marks=around, children=[model])


def received(spans_received: list[Any]) -> list[trace_pb2.Span]:
    message = service.ExportTraceServiceRequest.FromString(
        otlp.encode(spans_received, {"key": "value"})
    )
    ((of_resource,), (of_scope,)) = message.resource_spans, message.resource_spans[0].scope_spans
    assert ["key"] == [a.key for a in of_resource.resource.attributes]
    assert "triton-server" == of_scope.scope.name
    return list(of_scope.spans)


def attributes(made: trace_pb2.Span) -> dict[str, Any]:
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in made.attributes}


@pytest.mark.row("I21")
def test_a_trace_is_nested_and_numbered_as_in_triton() -> None:
    spans = otlp.SpanConverter()
    spans.convert(trace(), 0)

    spans_received = received(spans.convert(trace(), 1000))

    names = ["compute", "b", "compute", "a", "InferRequest"]
    assert names == [made.name for made in spans_received]
    below, b, compute, a, top = spans_received
    above = {made.span_id: made for made in spans_received}
    assert ["b", "a", "a", "", "InferRequest"] == [
        above[made.parent_span_id].name if made.parent_span_id in above else ""
        for made in (below, compute, b, top, a)
    ]
    assert {(bytes.fromhex(_TRACE), trace_pb2.Span.SPAN_KIND_SERVER)} == {
        (made.trace_id, made.kind) for made in spans_received
    }
    assert (1010, 1050) == (top.start_time_unix_nano, top.end_time_unix_nano)
    assert (1020, 1050) == (a.start_time_unix_nano, a.end_time_unix_nano)
    assert (1030, 1040) == (compute.start_time_unix_nano, compute.end_time_unix_nano)
    assert [("REQUEST_START", 1020), ("QUEUE_START", 1021), ("REQUEST_END", 1050)] == [
        (event.name, event.time_unix_nano) for event in a.events
    ]
    assert {
        "triton.model_name": "b",
        "triton.model_version": 4,
        "triton.trace_id": 4,
        "triton.trace_parent_id": 3,
    } == attributes(b)
    assert ("r", 0) == (
        attributes(a)["triton.request_id"],
        attributes(a)["triton.trace_parent_id"],
    )
    assert ({}, {}) == (attributes(top), attributes(compute))


def test_a_clients_span_is_above_and_its_state_on_all_of_the_trace() -> None:
    root = trace()
    root.parent = "b7ad6b7169203331"
    for each in (root, *root.children):
        each.trace_context += " congo=t61"

    spans_received = received(otlp.SpanConverter().convert(root, 0))

    by_name = {made.name: made for made in spans_received}
    assert "b7ad6b7169203331" == by_name["InferRequest"].parent_span_id.hex()
    assert {"congo=t61"} == {by_name[name].trace_state for name in ("InferRequest", "a", "compute")}


def test_an_error_is_the_status_of_whatever_has_failed() -> None:
    root = trace()
    (model,) = root.children
    model.error, model.children[0].error = "below", "no" * 9000

    spans_received = received(otlp.SpanConverter().convert(root, 0))

    failed = {made.name: made.status for made in spans_received if made.HasField("status")}
    assert {"a": "below", "b": "no" * 2048} == {n: status.message for n, status in failed.items()}
    assert trace_pb2.Status.STATUS_CODE_ERROR == failed["a"].code


def test_an_ensemble_has_no_compute_and_the_id_of_its_request() -> None:
    root = trace()
    (ensemble,) = root.children
    ensemble.request_id = ""
    ensemble.marks = {"REQUEST_START": 20, "REQUEST_END": 50}

    spans_received = received(otlp.SpanConverter().convert(root, 0))

    assert ["compute", "b", "a", "InferRequest"] == [made.name for made in spans_received]
    assert "r" == attributes(spans_received[2])["triton.request_id"]


def test_a_request_that_reached_no_model_is_one_span() -> None:
    root = trace()
    root.children = []

    assert ["InferRequest"] == [
        made.name for made in received(otlp.SpanConverter().convert(root, 0))
    ]


@pytest.mark.parametrize("marks", [{"COMPUTE_START": "x"}, {"COMPUTE_START": -5000}, {}])
def test_what_is_no_time_cannot_be_sent(marks: dict[str, Any]) -> None:
    root = trace()
    root.children[0].marks = marks
    root.marks = marks or root.marks

    with pytest.raises((TypeError, ValueError)):
        otlp.SpanConverter().convert(root, 0)


def test_a_collector_may_refuse_a_part() -> None:
    answer = service.ExportTraceServiceResponse()
    assert (0, "") == otlp.parse_rejected(answer.SerializeToString())
    answer.partial_success.rejected_spans = 3
    answer.partial_success.error_message = "full"

    assert (3, "full") == otlp.parse_rejected(answer.SerializeToString())
    assert (0, "") == otlp.parse_rejected(b"<html>")


_THEIRS: dict[str, Any] = {
    "Span": trace_pb2.Span,
    "Event": trace_pb2.Span.Event,
    "Status": trace_pb2.Status,
    "ScopeSpans": trace_pb2.ScopeSpans,
    "ResourceSpans": trace_pb2.ResourceSpans,
    "ExportRequest": service.ExportTraceServiceRequest,
    "ExportResponse": service.ExportTraceServiceResponse,
    "PartialSuccess": service.ExportTracePartialSuccess,
    "NumberPoint": metrics_pb2.NumberDataPoint,
    "HistogramPoint": metrics_pb2.HistogramDataPoint,
    "SummaryPoint": metrics_pb2.SummaryDataPoint,
    "Quantile": metrics_pb2.SummaryDataPoint.ValueAtQuantile,
    "Gauge": metrics_pb2.Gauge,
    "Sum": metrics_pb2.Sum,
    "Histogram": metrics_pb2.Histogram,
    "Summary": metrics_pb2.Summary,
    "Metric": metrics_pb2.Metric,
    "ScopeMetrics": metrics_pb2.ScopeMetrics,
    "ResourceMetrics": metrics_pb2.ResourceMetrics,
    "ExportMetricsRequest": metrics_service_pb2.ExportMetricsServiceRequest,
}


@pytest.mark.parametrize("name", _THEIRS)
def test_every_field_has_the_number_that_it_has_in_the_protocol(name: str) -> None:
    ours = zmqtriton_protos.message(f"otlp.{name}").DESCRIPTOR.fields_by_name
    theirs = _THEIRS[name].DESCRIPTOR.fields_by_name

    assert {field: theirs[field].number for field in ours} == {
        field: described.number for field, described in ours.items()
    }
