"""Requests and responses as models see them, and BLS calls."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.stub.fakes import LOAD, FakeLink, body, fp32
from tests.support.refusals import refusal
from zmqtriton_floor import wire
from zmqtriton_floor.errors import BY_CODE, DeadlineExceeded, LimitExceeded, ZmqTritonError
from zmqtriton_stub import instance
from zmqtriton_stub.api import bls, pb_utils
from zmqtriton_stub.api.bls import ResponseIterator
from zmqtriton_stub.api.functions import shared_memory
from zmqtriton_stub.api.inference import InferenceRequest, MemoryType, PreferredMemory, received
from zmqtriton_stub.broker.bls_call import BlsCall
from zmqtriton_stub.instance import StubInstance
from zmqtriton_stub.memory import gpu

# --------------------------------------------------------------------------------------- inference


def _received(link: FakeLink, request: wire.RequestBody) -> pb_utils.InferenceRequest:
    pending = link.add_request(request)
    pending.work = wire.BatchedRequest(1, 3, 5, 1, "sequence", 0, 1500)
    pending.outputs = request.outputs
    return received(pending, request.request_id, request.parameters, request.inputs)


def test_a_received_request_tells_what_the_client_sent() -> None:
    request = _received(FakeLink(), body(fp32("IN"), outputs=["B", "A"]))

    start = pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START
    assert ("r1", "sequence") == (request.request_id(), request.correlation_id())
    assert (start, 1500) == (request.flags(), request.timeout())
    assert json.loads(request.parameters()) == {"a": 1}
    assert request.requested_output_names() == {"A", "B"}
    assert [tensor.name() for tensor in request.inputs()] == ["IN"]
    assert request.trace().get_context() is None
    assert request.trace() is request.trace()


def test_a_request_that_names_no_outputs_wants_all_of_the_configuration() -> None:
    link = FakeLink()
    request = _received(link, body(fp32("IN")))
    assert request.requested_output_names() == set()

    output = {"name": "OUT", "data_type": "TYPE_FP32", "dims": [1]}
    link.instance.configure(json.dumps({"name": "m", "output": [output]}))

    assert request.requested_output_names() == {"OUT"}


def test_inputs_and_outputs_are_found_by_name_and_none_where_absent() -> None:
    request = _received(FakeLink(), body(fp32("IN")))
    response = pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.zeros(1))])

    tensor = pb_utils.get_input_tensor_by_name(request, "IN")
    assert tensor is not None
    assert tensor.as_numpy().tolist() == [1.0]
    assert pb_utils.get_input_tensor_by_name(request, "X") is None
    assert pb_utils.get_output_tensor_by_name(response, "OUT") is not None
    assert pb_utils.get_output_tensor_by_name(response, "X") is None


def test_cancellation_is_read_when_asked_for() -> None:
    link = FakeLink()
    request = _received(link, body())
    assert not request.is_cancelled()

    link.turn_actions.append(lambda: setattr(link.pending[3, 5], "is_cancelled", True))

    assert request.is_cancelled()
    assert request.get_response_sender().is_cancelled()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"correlation_id": 1.5}, "Correlation ID must be integer or string"),
        (
            {"request_id": "7", "requested_output_names": [""]},
            "Requested output name for request with id '7' and model name 'm' should not be empty.",
        ),
        (
            {"inputs": [None]},
            "Input tensor for request with id '' and model name 'm' should not be empty.",
        ),
        (
            {"parameters": {"a": 1.5}},
            "Expect parameters values to have type bool/int/str, found type <class 'float'>",
        ),
        (
            {"parameters": {1: "a"}},
            "Expect parameters keys to have type str, found type <class 'int'>",
        ),
    ],
)
def test_a_wrong_request_to_another_model_is_refused(arguments: dict[str, Any], text: str) -> None:
    assert text == refusal(pb_utils.TritonModelException, _request, **arguments)


def test_the_three_required_arguments_of_a_request_are_required() -> None:
    with pytest.raises(TypeError):
        pb_utils.InferenceRequest(inputs=[], requested_output_names=[])


@pytest.mark.parametrize(
    "arguments",
    [
        {"flags": -1},
        {"flags": 1 << 32},
        {"timeout": -1},
        {"timeout": 1.5},
        {"requested_output_names": "OUT"},
        {"preferred_memory": 1},
        {"trace": "trace"},
        {"unknown": 1},
        {"model_name": 7},
        {"inputs": [np.zeros(1)]},
        {"flags": "x"},
        {"requested_output_names": [1]},
        {"correlation_id": None},
    ],
    ids=str,
)
def test_arguments_of_other_types_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        _request(**arguments)


def test_memory_is_preferred_by_kind_and_number() -> None:
    preferred = pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU, 0)

    assert preferred.memory_type is pb_utils.MemoryType.TRITONSERVER_MEMORY_CPU
    assert [0, 1] == [
        int(pb_utils.TRITONSERVER_MEMORY_GPU),
        int(pb_utils.TRITONSERVER_MEMORY_CPU),
    ]
    with pytest.raises(TypeError):
        pb_utils.PreferredMemory(1)  # type: ignore[arg-type]


def test_a_response_holds_tensors_and_parameters_or_an_error() -> None:
    tensor = pb_utils.Tensor("OUT", np.zeros(1))

    good = pb_utils.InferenceResponse([tensor], parameters={"a": 1})
    bad = pb_utils.InferenceResponse(error=pb_utils.TritonError("no"))

    assert (good.output_tensors(), good.has_error(), good.error()) == ([tensor], False, None)
    assert json.loads(good.parameters()) == {"a": 1}
    assert bad.has_error()
    assert bad.parameters() == "{}"


def test_a_response_refuses_what_is_no_tensor() -> None:
    with pytest.raises(pb_utils.TritonModelException) as caught:
        pb_utils.InferenceResponse([None])  # type: ignore[list-item]
    assert str(caught.value) == "Output tensor for inference response should not be empty."

    with pytest.raises(TypeError):
        pb_utils.InferenceResponse([np.zeros(1)])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        pb_utils.InferenceResponse(error="text")  # type: ignore[arg-type]


def test_an_error_has_a_message_and_a_code() -> None:
    # in bytes, as a model finds it in a tensor of strings
    error = pb_utils.TritonError(b"gone", pb_utils.TritonError.NOT_FOUND)  # type: ignore[arg-type]

    assert (error.message(), error.code()) == ("gone", pb_utils.TritonError.NOT_FOUND)
    assert pb_utils.TritonError("x").code() == pb_utils.TritonError.INTERNAL
    assert [int(code) for code in type(error.code())] == list(range(8))


def test_a_test_of_a_model_may_bring_requests_and_tensors_of_its_own() -> None:
    tensor: Any = SimpleNamespace(name=lambda: "IN")
    request: Any = SimpleNamespace(inputs=lambda: [tensor])

    assert tensor is pb_utils.get_input_tensor_by_name(request, "IN")


def test_numbers_names_and_types_of_numpy_translate() -> None:
    assert pb_utils.triton_string_to_numpy("TYPE_FP16") is np.float16
    assert pb_utils.triton_string_to_numpy("TYPE_BOOL") is bool
    assert pb_utils.triton_to_numpy_type(13) is np.object_
    assert pb_utils.triton_to_numpy_type(14) is None
    assert pb_utils.triton_to_numpy_type(99) is None
    assert pb_utils.numpy_to_triton_type(np.dtype("int64")) == 9
    assert pb_utils.numpy_to_triton_type(np.bytes_) == 13
    assert pb_utils.numpy_to_triton_type(np.complex64) is None
    for name in ("TYPE_BF16", "FP32"):
        with pytest.raises(KeyError):
            pb_utils.triton_string_to_numpy(name)


def test_strings_are_serialized_as_triton_s_functions_do() -> None:
    data = pb_utils.serialize_byte_tensor(np.array([[b"a", "é"], [1, b""]], np.object_))

    assert data == b"\x01\0\0\0a\x02\0\0\0\xc3\xa9\x01\0\0\x001\0\0\0\0"
    assert pb_utils.deserialize_bytes_tensor(data).tolist() == [b"a", "é".encode(), b"1", b""]
    assert pb_utils.serialize_byte_tensor(np.empty(0, np.object_)) == ()
    assert pb_utils.serialize_byte_tensor(np.zeros(1)) is None


def test_a_configuration_is_searched_by_name() -> None:
    config = {"input": [{"name": "A"}], "model_transaction_policy": {"decoupled": True}}

    assert pb_utils.get_input_config_by_name(config, "A") == {"name": "A"}
    assert pb_utils.get_input_config_by_name(config, "B") is None
    assert pb_utils.get_output_config_by_name(config, "A") is None
    assert pb_utils.using_decoupled_model_transaction_policy(config)
    assert not pb_utils.using_decoupled_model_transaction_policy({})


def test_a_log_line_without_a_server_names_the_caller(capsys: pytest.CaptureFixture[str]) -> None:
    pb_utils.Logger.log("hello", pb_utils.Logger.WARNING)

    line = capsys.readouterr().err
    assert line.startswith("W")
    assert "test_inference.py:" in line
    assert line.endswith('] "hello"\n')


def test_only_text_is_logged() -> None:
    with pytest.raises(TypeError):
        pb_utils.Logger.log_info(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        pb_utils.Logger.log("x", 1)  # type: ignore[arg-type]


@pytest.mark.row("A09")
def test_the_directory_is_the_version_s_where_the_code_lies_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load = LOAD._replace(path="/backends/shared/model.py")
    monkeypatch.setattr(instance, "current", StubInstance(load, lambda message: None))

    assert pb_utils.get_model_dir() == "/repository/m/1"


def test_a_directory_without_a_server_is_refused() -> None:
    with pytest.raises(pb_utils.TritonModelException, match="being served"):
        pb_utils.get_model_dir()


@pytest.mark.parametrize("version", [-(1 << 63), (1 << 63) - 1])
def test_a_version_has_64_bits(version: int) -> None:
    # a request of a model has no accessor for it
    assert version == _request(model_version=version)._model_version


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"model_version": -(1 << 63) - 1}, TypeError),
        ({"model_version": 1 << 63}, TypeError),
        ({"correlation_id": -1}, RuntimeError),
        ({"correlation_id": 1 << 64}, RuntimeError),
    ],
    ids=str,
)
def test_a_larger_number_is_refused(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match="64 bits"):
        _request(**arguments)


def test_the_time_that_remains_counts_to_the_deadline_and_not_below_zero() -> None:
    pending = FakeLink().add_request(body())
    now_ns = time.monotonic_ns()

    def remaining(deadline_ns: int) -> float | None:
        pending.work = pending.work._replace(deadline_ns=deadline_ns)
        return received(pending, "", {}, []).remaining_s()

    # a request to another model has no client
    assert ((None, None), 0.0) == ((remaining(0), _request().remaining_s()), remaining(now_ns))
    left = remaining(now_ns + 3600 * 10**9)
    assert left is not None
    assert 3000 < left <= 3600


def test_without_a_server_no_shared_memory_is_unused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 == shared_memory.free_memory()

    monkeypatch.setattr(instance, "current", StubInstance(LOAD, lambda message: None))

    assert 0 == shared_memory.free_memory()


# --------------------------------------------------------------------------------------------- bls
# Messages of exec and async_exec, and what they make of the answers.


Replies = list[tuple[wire.Reply, bytes]]


def _reply(*outputs: wire.Tensor, flags: int = wire.FINAL) -> tuple[wire.Reply, bytes]:
    body = wire.encode_body(wire.ResponseBody({"a": 1.5}, list(outputs)))
    return wire.Reply(1, 0, "", flags), body


_EMPTY = (wire.Reply(1, 0, "", wire.FINAL), b"")


class FakeWatch:
    """Records that event loops begin and end to read."""

    def __init__(self, did: list[str]) -> None:
        self.thread = threading.main_thread().ident
        self._did = did
        self.futures: dict[Any, BlsCall] = {}

    def add_loop(self, loop: Any, turn: Any) -> None:
        self._did.append("watch")

    def remove_loop(self, loop: Any) -> None:
        self._did.append("unwatch")


class FakeAsker:
    """Answers each question with the replies of the test; without any, not at all."""

    def __init__(self) -> None:
        self.replies: Replies = [_reply()]
        self.requests: list[tuple[wire.Request, wire.RequestBody]] = []
        self.did: list[str] = []
        self.watch = FakeWatch(self.did)

    def turn(self) -> None:
        """Nothing comes by itself."""

    def opened(self, row: wire.Reply) -> None:
        self.did.append("opened")

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
    current: Any = StubInstance(LOAD, lambda message: None)
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
    # what the asker keeps until then would only grow
    assert ["opened"] == asker.did


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


#: Models know Triton's codes alone.
_NOT_TRITONS = {DeadlineExceeded.code: "CANCELLED", LimitExceeded.code: "UNAVAILABLE"}


@pytest.mark.parametrize("code", BY_CODE)
@pytest.mark.row("A56")
def test_errors_keep_their_codes(asker: FakeAsker, code: str) -> None:
    asker.replies = [(wire.Reply(1, BY_CODE[code].number, "why", wire.FINAL), b"")]

    error = _request().exec().error()

    assert error is not None
    assert (_NOT_TRITONS.get(code, code), "why") == (error.code().name, error.message())


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
    assert (pb_utils.TritonError.INVALID_ARG, []) == (error.code(), asker.requests)


def test_outside_of_execute_a_model_may_not_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance, "current", StubInstance(LOAD, lambda message: None))

    with pytest.raises(pb_utils.TritonModelException, match="only supported during the 'execute'"):
        _request().exec()


def test_an_iterator_gives_what_comes_and_an_empty_response_for_a_bare_end(
    asker: FakeAsker,
) -> None:
    asker.replies = [_reply(fp32("OUT"), flags=0), _EMPTY]

    responses = list(_request().exec(decoupled=True))

    assert [1, 0] == [len(response.output_tensors()) for response in responses]
    assert not any(response.has_error() for response in responses)


# ----------------------------------------------------------------- asyncio


async def _awaited(within_s: float | None = None, decoupled: bool = False, **arguments: Any) -> Any:
    return await asyncio.wait_for(_request(**arguments).async_exec(decoupled=decoupled), within_s)


def test_an_awaited_stream_is_an_iterator(asker: FakeAsker) -> None:
    asker.replies = [_reply(flags=0), _EMPTY]

    iterator = asyncio.run(_awaited(decoupled=True))

    assert isinstance(iterator, ResponseIterator)
    assert 2 == len(list(iterator))


def test_awaiting_what_cannot_be_sent(asker: FakeAsker) -> None:
    assert asyncio.run(_awaited(correlation_id="c" * 2000)).has_error()


def test_who_stops_waiting_cancels(asker: FakeAsker) -> None:
    asker.replies = []

    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(_awaited(within_s=0.01))

    did = ["watch", "unwatch", "cancel", "drop"]
    assert (did, {}) == (asker.did, asker.watch.futures)


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
        # the answer shows it on a GPU alone
        assert expected[takes] == bls._takes_gpu(preferred)


@pytest.mark.parametrize(
    ("is_on_gpu", "facts", "flags"),
    [
        (True, {"takes_gpu": True, "is_hashed": True}, wire.ACCEPTS_GPU),
        (True, {"takes_gpu": False, "is_hashed": True}, 0),
        (False, {"takes_gpu": True, "is_hashed": True}, wire.WANT_DIGESTS),
        (False, {"takes_gpu": True, "is_hashed": False}, 0),
    ],
)
def test_inputs_on_a_gpu_are_not_copied_to_be_looked_up(
    is_on_gpu: bool, facts: dict[str, bool], flags: int
) -> None:
    memory: Any = SimpleNamespace(**{name: lambda *_, it=it: it for name, it in facts.items()})
    span: Any = gpu.DeviceSpan.__new__(gpu.DeviceSpan)
    inputs = [wire.Tensor("A", 11, [1], bytes(4)), wire.Tensor("B", 11, [1], span)]

    asked = wire.Request(1, 0, "m", -1, 0, 0, 0, 0, 0, 0, 0)
    # the answer shows it on a GPU alone
    assert flags == bls._placing(memory, asked, inputs[: 1 + is_on_gpu])
