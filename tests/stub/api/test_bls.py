"""Messages of exec and async_exec, and what they make of the answers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.stub.fakes import LOAD, FakeLink, fp32
from zmqtriton_floor import wire
from zmqtriton_floor.errors import BY_CODE, DeadlineExceeded, LimitExceeded, ZmqTritonError
from zmqtriton_floor.signature import Signature
from zmqtriton_stub import instance
from zmqtriton_stub.api import bls, pb_utils
from zmqtriton_stub.api.bls import ResponseIterator
from zmqtriton_stub.api.inference import InferenceRequest, MemoryType, PreferredMemory
from zmqtriton_stub.broker.bls_call import BlsCall
from zmqtriton_stub.instance import Instance
from zmqtriton_stub.memory import gpu

Replies = list[tuple[wire.Reply, bytes]]


def _reply(*outputs: wire.Tensor, flags: int = wire.FINAL) -> tuple[wire.Reply, bytes]:
    body = wire.encode_body(wire.ResponseBody({"a": 1.5}, list(outputs)))
    return wire.Reply(1, 0, "", flags), body


_EMPTY = (wire.Reply(1, 0, "", wire.FINAL), b"")


class FakeWaits:
    """Records that event loops begin and end to read."""

    def __init__(self, did: list[str]) -> None:
        self.main_thread = threading.main_thread().ident
        self._did = did
        self.futures: dict[Any, BlsCall] = {}

    def watch(self, loop: Any) -> None:
        self._did.append("watch")

    def unwatch(self, loop: Any) -> None:
        self._did.append("unwatch")


class FakeAsker:
    """Answers each question with the replies of the test; without any, not at all."""

    def __init__(self) -> None:
        self.replies: Replies = [_reply()]
        self.requests: list[tuple[wire.Request, wire.RequestBody]] = []
        self.did: list[str] = []
        self.waits = FakeWaits(self.did)

    def opened(self, row: wire.Reply) -> None:
        """Nobody else has to know."""

    def ask(
        self, row: wire.Request, body: bytes, blocks: Any, notify: Any = None, held: Any = ()
    ) -> BlsCall:
        self.requests.append((row, wire.decode_request(body)))
        question = BlsCall(row, body, blocks, notify)
        for reply in self.replies:
            question.answer(*reply)
        return question

    def refused(
        self, error: ZmqTritonError, notify: Callable[[BlsCall], None] | None = None
    ) -> BlsCall:
        question = BlsCall(wire.Request(0, 0, "", -1, 0, 0, 0, 0, 0, 0, 0), b"", [], notify)
        question.refuse(error)
        return question

    def wait(self, question: BlsCall) -> Any:
        return question.inbox.get_nowait()

    def cancel(self, question: BlsCall) -> None:
        self.did.append("cancel")

    def drop(self, question: BlsCall) -> None:
        self.did.append("drop")


@pytest.fixture
def asker(monkeypatch: pytest.MonkeyPatch) -> FakeAsker:
    fake = FakeAsker()
    current: Any = Instance(LOAD, lambda message: None)
    current.asker = fake
    monkeypatch.setattr(instance, "current", current)
    return fake


def _request(**arguments: Any) -> InferenceRequest:
    inputs = [pb_utils.Tensor("A", np.zeros((3, 2), np.float32))]
    usual = {"inputs": inputs, "requested_output_names": [], "model_name": "m"}
    return InferenceRequest(**{**usual, **arguments})


def test_a_plain_request_asks_for_one_response_of_the_highest_version(asker: FakeAsker) -> None:
    _request().exec()

    [(row, body)] = asker.requests
    assert (0, "m", -1, wire.ONE_RESPONSE | wire.CALLER_BLOCKS, 0) == (
        row.generation,
        row.model,
        row.version,
        row.flags,
        row.timeout_us,
    )
    assert [fp32("A", bytes(24), [3, 2])] == body.inputs


def test_all_that_a_request_says_is_sent(asker: FakeAsker) -> None:
    _request(
        request_id=b"id",
        correlation_id="c",
        requested_output_names=[b"OUT"],
        model_name=b"other",
        model_version=np.int64(2),
        flags=3,
        timeout=7,
        parameters={"p": True},
    ).exec(decoupled=True)

    [(row, body)] = asker.requests
    assert ("other", 2, 3, 7, "c") == (
        row.model,
        row.version,
        row.flags,
        row.timeout_us,
        row.correlation,
    )
    assert ("id", {"p": True}, ["OUT"]) == body[:3]


def test_flags_that_are_not_a_sequence_s_stay_here(asker: FakeAsker) -> None:
    _request(flags=0xFF).exec(decoupled=True)

    assert wire.SEQUENCE_START | wire.SEQUENCE_END == asker.requests[0][0].flags


def test_the_batch_is_described_as_a_frontend_would(asker: FakeAsker) -> None:
    config = {
        "name": "m",
        "max_batch_size": 8,
        "dynamic_batching": {},
        "input": [{"name": "A", "data_type": "TYPE_FP32", "dims": [-1]}],
    }

    _request().exec()

    [(row, body)] = asker.requests
    admission = Signature(config).check(body)
    assert (admission.batch_size, admission.batch_key) == (row.batch_size, row.batch_key)


@pytest.mark.parametrize("shape", [(), (0,)])
def test_inputs_without_a_first_dimension_or_without_elements(
    asker: FakeAsker, shape: tuple[int, ...]
) -> None:
    response = _request(inputs=[pb_utils.Tensor("A", np.zeros(shape, np.float32))]).exec()

    assert not response.has_error()
    assert 0 == asker.requests[0][0].batch_size


def test_a_response_has_outputs_and_parameters(asker: FakeAsker) -> None:
    asker.replies = [_reply(fp32("OUT"))]

    response = _request().exec()

    assert ["OUT"] == [tensor.name() for tensor in response.output_tensors()]
    assert '{"a":1.5}' == response.parameters()


def test_a_deadline_that_has_passed_is_a_cancellation(asker: FakeAsker) -> None:
    """Models know Triton's codes alone."""
    asker.replies = [(wire.Reply(1, DeadlineExceeded.number, "why", wire.FINAL), b"")]

    error = _request().exec().error()

    assert error is not None
    assert ("CANCELLED", "why") == (error.code().name, error.message())


_OURS = (DeadlineExceeded.code, LimitExceeded.code)


def test_a_limit_that_is_reached_is_unavailable(asker: FakeAsker) -> None:
    asker.replies = [(wire.Reply(1, LimitExceeded.number, "why", wire.FINAL), b"")]

    error = _request().exec().error()

    assert error is not None
    assert ("UNAVAILABLE", "why") == (error.code().name, error.message())


@pytest.mark.parametrize("code", [code for code in BY_CODE if code not in _OURS])
@pytest.mark.row("A56")
def test_errors_keep_their_codes(asker: FakeAsker, code: str) -> None:
    asker.replies = [(wire.Reply(1, BY_CODE[code].number, "why", wire.FINAL), b"")]

    error = _request().exec().error()

    assert error is not None
    assert (code, "why") == (error.code().name, error.message())


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ((wire.Reply(1, 99, "new", wire.FINAL), b""), "new"),
        (_EMPTY, "Unexpected empty response."),
        ((wire.Reply(1, 0, "", wire.FINAL), b"x"), "body is not a response"),
    ],
)
def test_what_is_no_response_is_an_internal_error(
    asker: FakeAsker, reply: tuple[wire.Reply, bytes], text: str
) -> None:
    asker.replies = [reply]

    error = _request().exec().error()

    assert error is not None
    assert (pb_utils.TritonError.INTERNAL, text) == (error.code(), error.message())


@pytest.mark.parametrize(
    "arguments",
    [
        {"correlation_id": "c" * 2000},
        {"model_name": "m" * 2000},
        {"parameters": {"p": 1 << 70}},
        {"request_id": "\ud800"},
    ],
)
def test_what_cannot_be_sent_is_a_response_with_an_error(
    asker: FakeAsker, arguments: dict[str, Any]
) -> None:
    error = _request(**arguments).exec().error()

    assert error is not None
    assert pb_utils.TritonError.INVALID_ARG == error.code()
    assert [] == asker.requests


@pytest.mark.parametrize(
    "arguments",
    [{"model_name": 7}, {"inputs": [np.zeros(1)]}, {"flags": "x"}, {"requested_output_names": [1]}],
)
def test_arguments_of_wrong_types_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        _request(**arguments)


def test_outside_of_execute_a_model_may_not_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance, "current", Instance(LOAD, lambda message: None))

    with pytest.raises(pb_utils.TritonModelException, match="only supported during the 'execute'"):
        _request().exec()


def test_an_iterator_gives_what_comes_and_an_empty_response_for_a_bare_end(
    asker: FakeAsker,
) -> None:
    asker.replies = [_reply(fp32("OUT"), flags=0), _EMPTY]

    responses = list(_request().exec(decoupled=True))

    assert [1, 0] == [len(response.output_tensors()) for response in responses]
    assert not any(response.has_error() for response in responses)


def test_an_iterator_that_was_left_half_way_goes_on_there(asker: FakeAsker) -> None:
    asker.replies = [_reply(fp32("A"), flags=0), _reply(fp32("B"))]
    iterator = _request().exec(decoupled=True)

    names = []
    for _ in range(2):
        for response in iterator:
            names.append(response.output_tensors()[0].name())
            break

    assert ["A", "B"] == names


# ----------------------------------------------------------------- asyncio


def test_an_awaited_response(asker: FakeAsker) -> None:
    asker.replies = [_reply(fp32("OUT"))]

    async def ask() -> Any:
        return await _request().async_exec()

    assert ["OUT"] == [tensor.name() for tensor in asyncio.run(ask()).output_tensors()]


def test_an_awaited_stream_is_an_iterator(asker: FakeAsker) -> None:
    asker.replies = [_reply(flags=0), _EMPTY]

    async def ask() -> Any:
        return await _request().async_exec(decoupled=True)

    iterator = asyncio.run(ask())
    assert isinstance(iterator, ResponseIterator)
    assert 2 == len(list(iterator))


def test_awaiting_what_cannot_be_sent(asker: FakeAsker) -> None:
    async def ask() -> Any:
        return await _request(correlation_id="c" * 2000).async_exec()

    assert asyncio.run(ask()).has_error()


def test_who_stops_waiting_cancels(asker: FakeAsker) -> None:
    asker.replies = []

    async def ask() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(_request().async_exec(), 0.01)

    asyncio.run(ask())

    assert ["watch", "unwatch", "cancel", "drop"] == asker.did


@pytest.mark.row("A57")
def test_without_an_event_loop_nothing_is_sent(asker: FakeAsker) -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        _request().async_exec()

    assert [] == asker.requests


@pytest.mark.parametrize("is_usable", [True, False])
@pytest.mark.parametrize(
    ("preferred", "takes"),
    [
        (None, "as the model"),
        (PreferredMemory(MemoryType.DEFAULT), "as the model"),
        (PreferredMemory(MemoryType.TRITONSERVER_MEMORY_CPU), "never"),
        (PreferredMemory(MemoryType.TRITONSERVER_MEMORY_GPU), "where there is one"),
    ],
)
def test_outputs_stay_on_a_gpu_where_that_is_preferred_and_there_is_one(
    monkeypatch: pytest.MonkeyPatch, preferred: Any, takes: str, is_usable: bool
) -> None:
    monkeypatch.setattr(gpu, "is_usable", lambda: is_usable)
    for takes_gpu in (True, False):
        current = FakeLink().instance
        current.takes_gpu = takes_gpu
        monkeypatch.setattr(instance, "current", current)

        expected = {"as the model": takes_gpu, "never": False, "where there is one": is_usable}
        assert expected[takes] == bls._takes_gpu(preferred)
