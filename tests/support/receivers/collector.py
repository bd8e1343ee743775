"""A collector of OpenTelemetry for a test: a thread that takes spans over OTLP/HTTP.

    with Collector() as collector:
        Server(directory, options=[f"--trace-config=opentelemetry,url={collector.url}"])
        collector.below(trace_id)

It reads messages with OpenTelemetry's own classes, of which the server knows nothing.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as service

from tests.support.receivers.post_receiver import PostReceiver
from tests.support.waiting import eventually


class ReceivedSpan(NamedTuple):
    """One span as it was received."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    trace_state: str
    kind: int
    attributes: dict[str, Any]
    #: Names with times, in the order in which they stand.
    events: list[tuple[str, int]]
    begun_ns: int
    ended_ns: int
    error: str
    resource: dict[str, Any]
    #: In lower case.
    headers: Mapping[str, str]

    @property
    def event_names(self) -> list[str]:
        return [name for name, _ in self.events]


class Collector(PostReceiver):
    def __init__(self) -> None:
        super().__init__("/v1/traces")
        #: How many spans its answers refuse.
        self.rejected = 0
        self._received: list[ReceivedSpan] = []
        #: Messages that have come, whatever was answered.
        self.messages = 0

    def spans(self) -> list[ReceivedSpan]:
        return list(self._received)

    def find(self, is_it: Callable[[ReceivedSpan], bool], what: str) -> ReceivedSpan:
        """The first such span, when it is there."""
        return eventually(lambda: next(filter(is_it, self.spans()), None), 30, what)

    def request_spans(self, request_id: str) -> tuple[ReceivedSpan, ReceivedSpan]:
        """`InferRequest` and the span of its model."""
        named = "triton.request_id", request_id
        model = self.find(
            lambda s: named in s.attributes.items() and self.parent_of(s) is not None,
            f"the spans of {request_id}",
        )
        top = self.parent_of(model)
        assert top is not None
        return top, model

    def parent_of(self, model: ReceivedSpan) -> ReceivedSpan | None:
        """Return what is directly above a model's span that a client has asked."""
        return next(
            (s for s in self.spans() if s.span_id == model.parent_id and not s.attributes), None
        )

    def children_of(self, above: ReceivedSpan) -> list[ReceivedSpan]:
        """In the order of their begins."""
        spans = [
            s for s in self.spans() if (s.trace_id, s.parent_id) == (above.trace_id, above.span_id)
        ]
        return sorted(spans, key=lambda span: span.begun_ns)

    def take(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        self.messages += 1
        form = headers["content-type"]
        if path != "/v1/traces" or form not in ("application/x-protobuf", "application/json"):
            return 404, b""
        if self.status != 200:
            return self.status, b""
        read = service.ExportTraceServiceRequest.FromString
        message = read(body) if form == "application/x-protobuf" else _parse_json(body)
        for of_resource in message.resource_spans:
            resource = _attributes_of(of_resource.resource.attributes)
            for of_scope in of_resource.scope_spans:
                self._received += [
                    _received_span(span, resource, headers) for span in of_scope.spans
                ]
        answer = service.ExportTraceServiceResponse()
        if self.rejected:
            answer.partial_success.rejected_spans = self.rejected
            answer.partial_success.error_message = "no more room"
        return 200, answer.SerializeToString()


def _parse_json(body: bytes) -> Any:
    """As real Triton sends it; ids are in hexadecimal there, unlike bytes elsewhere in JSON."""
    document = json.loads(body)
    for of_resource in document["resourceSpans"]:
        for of_scope in of_resource["scopeSpans"]:
            for span in of_scope["spans"]:
                for key in {"traceId", "spanId", "parentSpanId"} & span.keys():
                    span[key] = base64.b64encode(bytes.fromhex(span[key])).decode()
    return json_format.ParseDict(document, service.ExportTraceServiceRequest())


def _received_span(span: Any, resource: dict[str, Any], headers: Mapping[str, str]) -> ReceivedSpan:
    return ReceivedSpan(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        trace_state=span.trace_state,
        kind=span.kind,
        attributes=_attributes_of(span.attributes),
        events=[(event.name, event.time_unix_nano) for event in span.events],
        begun_ns=span.start_time_unix_nano,
        ended_ns=span.end_time_unix_nano,
        error=span.status.message if span.status.code == span.status.STATUS_CODE_ERROR else "",
        resource=resource,
        headers=headers,
    )


def _attributes_of(attributes: Any) -> dict[str, Any]:
    return {a.key: getattr(a.value, str(a.value.WhichOneof("value"))) for a in attributes}
