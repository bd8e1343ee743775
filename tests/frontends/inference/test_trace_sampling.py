"""Notes on requests: traces, times and open sequences."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from tests.frontends.fake_gateway import prepared, version_info
from zmqtriton_floor import spans, wire
from zmqtriton_floor.errors import InternalError
from zmqtriton_floor.settings.codec import encode
from zmqtriton_floor.settings.tracing import Sampling, TracingSettings
from zmqtriton_floor.wire import SEQUENCE_END, SEQUENCE_START, StageTimes
from zmqtriton_frontends.entrance.entrance import followed as following
from zmqtriton_frontends.gateway.streams import StreamItem
from zmqtriton_frontends.inference.admission import CheckedRequest, SchedulingOptions
from zmqtriton_frontends.inference.open_sequences import OpenSequences
from zmqtriton_frontends.inference.request_trace import Trace
from zmqtriton_frontends.inference.stage_times import Stages, is_wish
from zmqtriton_frontends.inference.trace_sampling import Parent, Traces, parent_in

# ---------------------------------------------------------------------- trace sampling
# Which requests a frontend traces, and below what.


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
    return all_followed(1, parent, mode, **said)[0]


def all_followed(count: int, parent: Parent | None, mode: str, **said: Any) -> list[CheckedRequest]:
    traces = Traces()
    choice = Sampling("", ("TENSORS",), 0, 0, 0, "all")
    traces.change(encode(TracingSettings(mode, (choice._replace(**said),))))
    checked = prepared(version_info("m", input=[], output=[]))
    return [traces.follow(checked, parent, ("HTTP_RECV", 1)) for _ in range(count)]


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


def test_so_many_requests_are_traced_and_no_more() -> None:
    requests = all_followed(3, None, "triton", rate=1, max_traces=2)

    assert [True, True, False] == [request.observer is not None for request in requests]


class _Told(spans.SpanSender):
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


# ------------------------------------------------------------------------- stage times
# The header that tells a client the stages of its request.


def parts(written: str) -> dict[str, float]:
    pairs = (part.split(";dur=") for part in written.split(", "))
    return {name: float(value) for name, value in pairs}


def test_all_stages_are_told_in_milliseconds() -> None:
    stages = Stages(time.monotonic_ns() - 20_000_000)
    stages.take(StageTimes(7, 1_500_000, 20_000, 12_000_000, 3_000))

    times = parts(stages.write())

    assert 20 <= times.pop("total") < 600_000
    assert {"queue": 1.5, "compute_input": 0.02, "compute": 12.0, "compute_output": 0.003} == times


def test_a_stage_that_is_not_known_by_itself_is_left_out() -> None:
    stages = Stages(0)
    stages.take(StageTimes(7, 1_000_000, 0, 2_000_000, 0))

    assert ["queue", "compute", "total"] == list(parts(stages.write()))


def test_without_word_of_the_broker_there_is_the_total() -> None:
    assert ["total"] == list(parts(Stages(0).write()))


@pytest.mark.parametrize(
    ("value", "asks"),
    [
        *((value, True) for value in ("1", "true", " yes ")),
        *((value, False) for value in (None, "", "0", "False", "no")),
    ],
)
def test_who_asks(value: str | None, asks: bool) -> None:
    assert asks is is_wish(value)


# ---------------------------------------------------------------------- open sequences
# Which sequences of one client are open, from what it asks.


def request(correlation: int | str, flags: int = 0, **batching: Any) -> CheckedRequest:
    model = version_info("m", input=[], output=[], **(batching or {"sequence_batching": {}}))
    return prepared(model, SchedulingOptions(flags, correlation=correlation))


@pytest.mark.row("E78")
def test_a_sequence_is_open_from_its_first_request_to_its_last() -> None:
    ends: list[bool] = []
    sequences = OpenSequences(lambda: ends.append(bool(sequences)))
    assert not sequences

    for each in (request(1, SEQUENCE_START), request("two", SEQUENCE_START), request(1)):
        sequences.note(each)
        assert sequences
    sequences.note(request("two", SEQUENCE_END))
    assert (True, []) == (bool(sequences), ends)
    sequences.note(request(1, SEQUENCE_END))

    assert (False, [False]) == (bool(sequences), ends)


def test_requests_of_no_sequence_open_none() -> None:
    sequences = OpenSequences()

    sequences.note(request(0))
    sequences.note(request(7, SEQUENCE_START, dynamic_batching={}))
    sequences.note(request(8, SEQUENCE_START | SEQUENCE_END))

    assert not sequences
