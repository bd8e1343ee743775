"""Which requests a frontend traces, and below what."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from zmqtriton_floor import spans, wire
from zmqtriton_floor.errors import InternalError
from zmqtriton_floor.settings.codec import encode
from zmqtriton_floor.settings.tracing import Sampling, Tracing
from zmqtriton_frontends.gateway.streams import StreamItem
from zmqtriton_frontends.inference.admission import CheckedRequest, Options, prepare
from zmqtriton_frontends.inference.catalogue import Catalogue
from zmqtriton_frontends.inference.request_trace import Trace
from zmqtriton_frontends.inference.request_trace import followed as following
from zmqtriton_frontends.inference.trace_sampling import (
    Parent,
    Traces,
    parent_in,
)

_GIVEN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({b"tracestate": "a=b"}, None),
        ({b"traceparent": _GIVEN}, Parent(_GIVEN)),
        ({b"traceparent": _GIVEN, b"tracestate": "a=b"}, Parent(_GIVEN, "a=b")),
    ],
)
def test_a_clients_span_is_read_from_headers(
    headers: dict[bytes, str], expected: Parent | None
) -> None:
    assert expected == parent_in(headers.get)


def followed(parent: Parent | None, mode: str = "opentelemetry", **said: Any) -> CheckedRequest:
    catalogue = Catalogue()
    config = json.dumps({"name": "m", "max_batch_size": 0, "input": [], "output": []})
    catalogue.update(wire.VersionInfo(1, "m", 1, "READY", None, 1, config, b""))
    checked = prepare(catalogue, catalogue.find("m"), wire.RequestBody("", {}, [], []), Options())
    traces = Traces()
    choice = Sampling("", ("TENSORS",), 0, 0, 0, "all")
    traces.change(encode(Tracing(mode, (choice._replace(**said),))))
    return traces.follow(checked, parent, ("HTTP_RECV", 1))


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("congo=t61, rojo=00f", "congo=t61, rojo=00f"),
        (" a@b=c ", "a@b=c"),
        ("", ""),
        ("no value", ""),
        ("a=b\x7f", ""),
        (",".join(["a=" + "b" * 200] * 4), ""),
    ],
)
def test_a_request_with_a_context_is_traced_below_it_with_a_state_that_is_right(
    state: str, expected: str
) -> None:
    trace = followed(Parent(_GIVEN, state)).observer

    assert trace is not None
    name, kept = spans.parts(trace.context)
    assert (_GIVEN[:36], expected) == (name[:36], kept)
    assert spans.span_of(_GIVEN) != spans.span_of(name)


def test_no_tensors_are_asked_for_where_they_could_not_be_sent() -> None:
    assert wire.TRACE_TENSORS == followed(None, "triton", rate=1, max_traces=-1).options.flags
    assert 0 == followed(None, rate=1, max_traces=-1).options.flags


@pytest.mark.parametrize(
    "traceparent", ["", "x", _GIVEN.upper(), _GIVEN.replace("b7ad6b7169203331", "0" * 16)]
)
def test_a_context_that_is_none_has_no_effect(traceparent: str) -> None:
    assert followed(Parent(traceparent)).observer is None


def test_a_context_has_no_effect_in_tritons_mode_or_where_tracing_is_off() -> None:
    assert followed(Parent(_GIVEN), "triton").observer is None
    assert followed(Parent(_GIVEN), levels=[]).observer is None


class _Told(spans.Sender):
    def __init__(self) -> None:
        super().__init__("")
        self.all: list[dict[str, Any]] = []

    def send(self, trace: str, span: dict[str, Any]) -> None:
        self.all.append(span)


def test_an_error_amid_a_stream_is_that_of_its_trace() -> None:
    async def stream() -> AsyncGenerator[StreamItem, None]:
        yield StreamItem(None, None, False)
        yield StreamItem(None, InternalError("no more"), True)

    async def read() -> None:
        async for _ in following(stream(), Trace(sender, spans.new(), {"marks": []}), "GRPC_SEND"):
            pass

    sender = _Told()
    asyncio.run(read())

    (span,) = sender.all
    names = ["INFER_RESPONSE_COMPLETE", "GRPC_SEND_START", "GRPC_SEND_END"]
    assert ("no more", names) == (span["error"], [name for name, _ in span["marks"]])
