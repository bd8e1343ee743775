"""Spans of OpenTelemetry around the work of inference callables.

The user installs OpenTelemetry: without a tracer this module does not import it.
"""

from __future__ import annotations

import importlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

_INSTALL = "pip install opentelemetry-api opentelemetry-sdk opentelemetry-exporter-otlp"

_tracer: Any = None


def set_telemetry_tracer(tracer: Any) -> None:
    """Set the tracer of the whole process. Raises ValueError if there is one already."""
    global _tracer
    if _tracer is not None:
        raise ValueError("Telemetry tracer is already set")
    _tracer = tracer


def get_telemetry_tracer() -> Any:
    """Return the tracer, or None."""
    return _tracer


def start_span_from_remote(span_dict: Mapping[str, str], name: str) -> Any:
    """Return a new span below the one in these headers, or None without a tracer."""
    if _tracer is None:
        return None
    propagation = importlib.import_module("opentelemetry.trace.propagation.tracecontext")
    context = propagation.TraceContextTextMapPropagator().extract(dict(span_dict))
    return _tracer.start_span(name, context=context)


def start_span_from_span(span: Any, name: str) -> Any:
    """Return a new span below this one, which the caller ends."""
    trace = importlib.import_module("opentelemetry.trace")
    return _tracer.start_span(name, context=trace.set_span_in_context(span))


def end_span(span: Any, error: str | None = None) -> None:
    """End a span, if there is one, as successful or with this error."""
    if span is None:
        return
    trace = importlib.import_module("opentelemetry.trace")
    code = trace.StatusCode.OK if error is None else trace.StatusCode.ERROR
    span.set_status(trace.Status(code, error))
    span.end()


@contextmanager
def traced_span(request: Any, span_name: str, **options: Any) -> Generator[None, None, None]:
    """Record the block as a span of the request's trace, if it has one."""
    if request.span is None:
        yield
        return
    trace = importlib.import_module("opentelemetry.trace")
    with (
        trace.use_span(request.span, end_on_exit=False, record_exception=False),
        _tracer.start_as_current_span(span_name, **options),
    ):
        yield


def build_proxy_tracer_from_triton_config(trace_config: Sequence[str]) -> Any:
    """Return a tracer that sends to the destination in the server's trace settings.

    Raises ImportError without OpenTelemetry, ValueError for settings of another mode.
    """
    try:
        trace = importlib.import_module("opentelemetry.trace")
        sdk = importlib.import_module("opentelemetry.sdk.trace")
        export = importlib.import_module("opentelemetry.sdk.trace.export")
        resources = importlib.import_module("opentelemetry.sdk.resources")
        otlp = importlib.import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    except ImportError:
        text = f"OpenTelemetry is not installed. Please install it using '{_INSTALL}'."
        raise ImportError(text) from None
    url, attributes = parse_trace_config(trace_config)
    provider = sdk.TracerProvider(
        resource=resources.Resource(attributes=attributes),
        active_span_processor=export.BatchSpanProcessor(otlp.OTLPSpanExporter(endpoint=url)),
    )
    trace.set_tracer_provider(provider)
    return trace.get_tracer("zmqtriton.pytriton.proxy.telemetry")


def parse_trace_config(trace_config: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Return the URL and the resource attributes in the server's trace settings."""
    if not any("mode=opentelemetry" in setting for setting in trace_config):
        raise ValueError("Only opentelemetry mode is supported")
    url, attributes = None, {}
    for setting in trace_config:
        key, _, value = setting.partition("=")
        if key == "opentelemetry,url" and url is None:
            url = value
        elif key == "opentelemetry,resource":
            attributes.update(_attributes(value))
    if url is None:
        raise ValueError("opentelemetry,url is required")
    return url, attributes


def _attributes(text: str) -> dict[str, str]:
    attributes = {}
    for part in text.split(","):
        key, _, value = part.partition("=")
        attributes[key] = value
    return attributes
