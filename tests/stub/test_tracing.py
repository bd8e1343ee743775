"""The stub's reports about traced requests, with the test in the place of the tracing process."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.stub.fakes import FakeLink, body, fp32
from zmqtriton_floor import wire
from zmqtriton_stub.api.inference import InferenceRequest, received
from zmqtriton_stub.execution.responses import Pending
from zmqtriton_stub.tracing import MAX_ELEMENTS, Tracing

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
FP16, BF16, INT64, BOOL, BYTES = 10, 14, 9, 1, 13


class Sender:
    def __init__(self) -> None:
        self.spans: list[tuple[str, dict[str, Any]]] = []

    def send(self, trace: str, details: dict[str, Any]) -> None:
        self.spans.append((trace, json.loads(json.dumps(details))))


@pytest.fixture
def sender() -> Sender:
    return Sender()


def tracing(sender: Sender, *, has_contexts: bool = False) -> Tracing:
    tracing = Tracing("", has_contexts=has_contexts)
    tracing._sender = sender  # type: ignore[assignment]
    return tracing


def pending(flags: int = 0, trace: str = TRACE) -> Pending:
    pending = FakeLink().add_request(body())
    pending.work = pending.work._replace(flags=flags, trace=trace)
    return pending


def request(pending: Pending, *inputs: wire.Tensor) -> InferenceRequest:
    return received(pending, "r1", {}, list(inputs))


def data_of(sender: Sender, tensor: wire.Tensor) -> str:
    tracing(sender).answered(pending(wire.TRACE_TENSORS), [tensor])
    [(_, details)] = sender.spans
    data: str = details["tensors"][0]["data"]
    return data


def test_the_beginning_of_traced_requests_is_reported_and_of_no_others(sender: Sender) -> None:
    traced, other = pending(), pending(trace="")

    tracing(sender).begun([request(traced), request(other)])

    assert [(TRACE, {"request_id": "r1"})] == sender.spans


def test_inputs_are_reported_where_tensors_are_asked_for(sender: Sender) -> None:
    tracing(sender).begun([request(pending(wire.TRACE_TENSORS), fp32("A"))])

    [(_, details)] = sender.spans
    assert {
        "activity": "TENSOR_QUEUE_INPUT",
        "name": "A",
        "data": "1",
        "shape": "1",
        "dtype": "FP32",
    } == details["tensors"][0]


def test_outputs_are_reported_where_tensors_are_asked_for(sender: Sender) -> None:
    tensor = fp32("B", np.array([[1.5, -2.0]], np.float32).tobytes(), [1, 2])

    for flags in (0, wire.TRACE_TENSORS):
        tracing(sender).answered(pending(flags), [tensor])

    [(trace, details)] = sender.spans
    assert TRACE == trace
    assert [("TENSOR_BACKEND_OUTPUT", "B", "1.5,-2", "1,2", "FP32")] == [
        tuple(row[key] for key in ("activity", "name", "data", "shape", "dtype"))
        for row in details["tensors"]
    ]


def test_the_end_of_a_batch_is_reported_for_each_traced_request(sender: Sender) -> None:
    tracing(sender).executed([pending(), pending(trace="")], [("COMPUTE_END", 3)])

    assert [(TRACE, {"marks": [["COMPUTE_END", 3]]})] == sender.spans


@pytest.mark.parametrize(
    ("datatype", "array", "shown"),
    [
        (INT64, np.array([1, -2], np.int64), "1,-2"),
        (BOOL, np.array([True, False]), "1,0"),
        (FP16, np.array([0.5], np.float16), "0.5"),
        (BF16, np.array([7], np.uint16), ""),
    ],
)
def test_elements_are_shown_as_numbers(
    sender: Sender, datatype: int, array: Any, shown: str
) -> None:
    tensor = wire.Tensor("A", datatype, [len(array)], array.tobytes())

    assert shown == data_of(sender, tensor)


def test_what_is_elsewhere_is_not_shown(sender: Sender) -> None:
    elsewhere: Any = wire.Reference(1, 1, 1, 0, 4)

    assert "" == data_of(sender, wire.Tensor("A", 11, [1], elsewhere))


def test_so_many_elements_are_shown_and_no_more(sender: Sender) -> None:
    numbers = np.arange(MAX_ELEMENTS + 1, dtype=np.int64)
    tensor = wire.Tensor("A", INT64, [len(numbers)], numbers.tobytes())

    shown = data_of(sender, tensor).split(",")

    assert [str(i) for i in range(MAX_ELEMENTS)] == shown


def packed(*strings: bytes) -> wire.Tensor:
    data = b"".join(len(text).to_bytes(4, "little") + text for text in strings)
    return wire.Tensor("A", BYTES, [len(strings)], data)


@pytest.mark.parametrize(
    ("strings", "shown"),
    [
        ([], ""),
        ([b"a", b"", "é".encode()], "a,,é"),
        ([b"\xff!"], "\\xff!"),
        ([b"x"] * (MAX_ELEMENTS + 1), ",".join("x" * MAX_ELEMENTS)),
        ([b"a" * 16_384, b"b"], "a" * 16_384),
        ([b"a" * 16_380, b"bcdefg", b"h"], "a" * 16_380 + ",bcde"),
    ],
)
def test_strings_are_shown_up_to_a_length(sender: Sender, strings: list[bytes], shown: str) -> None:
    assert shown == data_of(sender, packed(*strings))


@pytest.mark.parametrize("missing", [1, 2, 5])
def test_of_a_string_that_is_cut_off_there_is_what_there_is(sender: Sender, missing: int) -> None:
    tensor = packed(b"abc", b"de")
    tensor = tensor._replace(data=tensor.data[:-missing])

    assert {1: "abc,d", 2: "abc,", 5: "abc"}[missing] == data_of(sender, tensor)


@pytest.mark.parametrize(
    ("has_contexts", "trace", "context"),
    [
        (False, TRACE, ""),
        (True, TRACE, json.dumps({"traceparent": TRACE}, separators=(",", ":"))),
        (
            True,
            f"{TRACE} a=b",
            json.dumps({"traceparent": TRACE, "tracestate": "a=b"}, separators=(",", ":")),
        ),
    ],
)
def test_models_learn_the_context_in_opentelemetry_s_mode(
    sender: Sender, has_contexts: bool, trace: str, context: str
) -> None:
    work = pending(wire.TRACE_TENSORS | wire.SEQUENCE_START, trace).work

    outcome = tracing(sender, has_contexts=has_contexts).context_of(work)

    assert (trace, wire.TRACE_TENSORS, context) == outcome
