"""Spans in OpenTelemetry's protocol, named and nested as Triton's are. Does no I/O.

A client's request is `InferRequest`. Below it is a span named like the model; below that are
`compute` and the requests that the model made.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from zmqtriton.sdk.process import spans as span_rows
from zmqtriton.sdk.wire import __version__
from zmqtriton_protos import message
from zmqtriton_standard.tracing.gathering import RequestSpan

_Span, _Request, _Response = map(
    message, ("otlp.Span", "otlp.ExportRequest", "otlp.ExportResponse")
)
#: Triton marks all its spans as a server's.
_SERVER = 2
_ERROR = 2
_SCOPE = "triton-server"
_COMPUTE = "COMPUTE_"
#: The limit for an error text.
_MAX_CHARACTERS = 4096


class SpanConverter:
    """Converts traces, and numbers the spans of models over all traces, as Triton does."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def convert(self, root: RequestSpan, offset_ns: int) -> list[Any]:
        """Convert a trace to spans; inner spans come first, as they end first.

        The offset leads from the clock of the marks to the wall clock. Raises TypeError or
        ValueError for values that cannot be sent.
        """
        spans = [_span(root, "InferRequest", root.parent, root.marks, offset_ns)]
        spans[0].end_time_unix_nano = offset_ns + max(
            ns for span in (root, *root.children) for ns in span.marks.values()
        )
        above = [(child, root, 0) for child in root.children]
        while above:
            span, parent, parents_number = above.pop()
            number = next(self._numbers)
            spans += self._model_spans(span, parent, (number, parents_number), offset_ns)
            below = sorted(span.children, key=lambda child: child.start_ns, reverse=True)
            above += [(child, span, number) for child in below]
        spans.reverse()
        return sorted(spans, key=lambda made: made.end_time_unix_nano)

    def _model_spans(
        self, span: RequestSpan, parent: RequestSpan, numbers: tuple[int, int], offset_ns: int
    ) -> list[Any]:
        computing = {n: ns for n, ns in span.marks.items() if n.startswith(_COMPUTE)}
        if not computing:
            # who executes nothing, such as an ensemble, is not told its request's id
            span.request_id = span.request_id or parent.request_id
        rest = {name: ns for name, ns in span.marks.items() if name not in computing}
        made = _span(span, span.model, parent.id, rest or computing, offset_ns)
        for key, value in (
            ("triton.model_name", span.model),
            ("triton.model_version", span.version),
            ("triton.trace_id", numbers[0]),
            ("triton.trace_parent_id", numbers[1]),
        ):
            add_attribute(made.attributes, key, value)
        if span.request_id:
            add_attribute(made.attributes, "triton.request_id", span.request_id)
        if not computing:
            return [made]
        own = RequestSpan(span_rows.among(span.trace_context))
        return [made, _span(own, "compute", span.id, computing, offset_ns)]


def encode(spans: Iterable[Any], resource: Mapping[str, str]) -> bytes:
    """Encode the spans as one OTLP message, with the attributes of the server."""
    request = _Request()
    of_resource = request.resource_spans.add()
    of_scope = of_resource.scope_spans.add()
    name_source(of_resource, of_scope, resource, _SCOPE)
    of_scope.spans.extend(spans)
    data: bytes = request.SerializeToString()
    return data


def parse_rejected(answer: bytes) -> tuple[int, str]:
    """Return the number of spans or points that the collector rejected, and its reason."""
    try:
        partial_success = _Response.FromString(answer).partial_success
    except Exception:  # noqa: BLE001 - protobuf's own class moves between its versions
        return 0, ""  # some answer in plain text, whatever it was sent
    return partial_success.rejected_spans, partial_success.error_message


def _span(
    span: RequestSpan, name: str, parent: str, marks: Mapping[str, int], offset_ns: int
) -> Any:
    traceparent, tracestate = span_rows.parts(span.trace_context)
    made = _Span(
        trace_id=bytes.fromhex(traceparent[3:35]),
        span_id=bytes.fromhex(span.id),
        trace_state=tracestate,
        parent_span_id=bytes.fromhex(parent),
        name=name,
        kind=_SERVER,
        start_time_unix_nano=offset_ns + min(marks.values()),
        end_time_unix_nano=offset_ns + max(marks.values()),
    )
    for mark, ns in sorted(marks.items(), key=lambda mark: mark[1]):
        made.events.add(name=mark, time_unix_nano=offset_ns + ns)
    if span.error:
        made.status.code, made.status.message = _ERROR, span.error[:_MAX_CHARACTERS]
    return made


def name_source(of_resource: Any, of_scope: Any, resource: Mapping[str, str], scope: str) -> None:
    """Name the server and its part in a message of spans, metrics or log lines."""
    for key, value in resource.items():
        add_attribute(of_resource.resource.attributes, key, value)
    of_scope.scope.name = scope
    of_scope.scope.version = __version__


def add_attribute(attributes: Any, key: str, value: str | int) -> None:
    made = attributes.add(key=key)
    if isinstance(value, str):
        made.value.string_value = value
    else:
        made.value.int_value = value
