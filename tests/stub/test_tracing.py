"""Lines that a stub writes: output of models, the log of requests, and traces."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TextIO

import numpy as np
import pytest

from tests.stub.fakes import FakeLink, body, fp32
from zmqtriton_floor import wire
from zmqtriton_floor.logs import LogOptions
from zmqtriton_stub import instance, request_log
from zmqtriton_stub.api import callers
from zmqtriton_stub.api.inference import InferenceRequest, received
from zmqtriton_stub.execution.responses import OpenRequest
from zmqtriton_stub.process import AttributedOutput, attribute
from zmqtriton_stub.tracing import MAX_ELEMENTS, StubTracing

# ----------------------------------------------------------------------------- tracing
# The stub's reports about traced requests, with the test in the place of the tracing process.


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


def tracing(sender: Sender, *, has_contexts: bool = False) -> StubTracing:
    tracing = StubTracing("", has_contexts=has_contexts)
    tracing.sender = sender  # type: ignore[assignment]
    return tracing


def pending(flags: int = 0, trace: str = TRACE) -> OpenRequest:
    pending = FakeLink().add_request(body())
    pending.work = pending.work._replace(flags=flags, trace=trace)
    return pending


def request(pending: OpenRequest, *inputs: wire.Tensor) -> InferenceRequest:
    return received(pending, "r1", {}, list(inputs))


def data_of(sender: Sender, tensor: wire.Tensor) -> str:
    tracing(sender).answered(pending(wire.TRACE_TENSORS), [tensor])
    [(_, details)] = sender.spans
    return details["tensors"][0]["data"]


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
    assert shown == data_of(sender, wire.Tensor("A", datatype, [len(array)], array.tobytes()))


def test_what_is_elsewhere_is_not_shown(sender: Sender) -> None:
    elsewhere: Any = wire.Reference(1, 1, 1, 0, 4)

    assert "" == data_of(sender, wire.Tensor("A", 11, [1], elsewhere))


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


# ------------------------------------------------------------------------------ output
# The output of a model, which is to be like any other one but for the ids of requests.


@contextmanager
def serving(*ids: str) -> Iterator[None]:
    requests: Any = [SimpleNamespace(request_id=one, work=SimpleNamespace(flags=0)) for one in ids]
    token = callers.served.set(requests)
    yield
    callers.served.reset(token)


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[TextIO]:
    with (tmp_path / "output").open("w", encoding="utf-8") as stream:
        yield stream


def test_each_line_begins_with_the_ids_and_once(stream: TextIO, tmp_path: Path) -> None:
    with AttributedOutput(stream) as output:  # type: ignore[arg-type]
        output.write("of nobody, ")
        with serving("a", "b"):
            output.write("yet.\nfirst\n\nsecond")
            output.write(" goes on\n")

    lines = (tmp_path / "output").read_text("utf-8").splitlines()
    about = "[request ids: a, b] "
    assert ["of nobody, yet.", f"{about}first", "", f"{about}second goes on"] == lines


@pytest.mark.parametrize("value", [5, b"bytes", None])
def test_what_is_no_text_is_refused_in_pythons_words(stream: TextIO, value: Any) -> None:
    with pytest.raises(TypeError) as of_stream:
        stream.write(value)

    output = AttributedOutput(stream)  # type: ignore[arg-type]
    with output, serving("a"), pytest.raises(TypeError) as of_output:
        output.write(value)

    assert str(of_stream.value) == str(of_output.value)


def test_it_has_the_name_of_its_stream(stream: TextIO) -> None:
    with AttributedOutput(stream) as output:  # type: ignore[arg-type]
        assert (stream.name, stream.mode) == (output.name, output.mode)


def test_a_stream_is_attributed_once(stream: TextIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", stream)

    attribute()
    first = sys.stdout
    attribute()

    assert isinstance(first, AttributedOutput)
    assert first is sys.stdout


# ------------------------------------------------------------------------- request log
# The life of requests in a verbose log, in Triton's words.


class Request:
    def __init__(self, own_id: str) -> None:
        self._id = own_id

    def request_id(self) -> str:
        return self._id


def logged(link: FakeLink) -> list[str]:
    return [said.text for said in link.sent_to_supervisor]


@pytest.fixture(autouse=True)
def _verbose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance, "log_options", LogOptions(verbose=1))


def test_a_batch_is_logged_when_it_begins_and_when_it_is_released() -> None:
    link = FakeLink()
    batch: Any = [Request("a"), Request("")]

    request_log.released(link.instance, request_log.begun(link.instance, batch))

    state = "Setting state from"
    assert [
        f"[request id: a] {state} PENDING to EXECUTING",
        f"[request id: <id_unknown>] {state} PENDING to EXECUTING",
        "model m, instance m_0_0, executing 2 requests",
        f"[request id: a] {state} EXECUTING to RELEASED",
        f"[request id: <id_unknown>] {state} EXECUTING to RELEASED",
        "TRITONBACKEND_ModelInstanceExecute: model instance name m_0_0 released 2 requests",
    ] == logged(link)
    assert {"V"} == {said.level for said in link.sent_to_supervisor}


def test_a_batch_of_which_nothing_is_left_is_not_logged() -> None:
    link = FakeLink()

    assert () == request_log.begun(link.instance, [])

    assert [] == logged(link)


def test_each_output_is_logged_with_its_type_and_shape() -> None:
    link = FakeLink()

    request_log.answered(link.instance, [fp32("A"), fp32("B")._replace(shape=[2, 3])])

    text = "add response output: output:"
    assert [f"{text} A, type: FP32, shape: [1]", f"{text} B, type: FP32, shape: [2,3]"] == (
        logged(link)
    )
