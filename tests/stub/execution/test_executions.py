from __future__ import annotations

import itertools
import json
from typing import Any
from unittest.mock import Mock

import pytest

from tests.stub.fakes import LOAD, FakeLink, batch_of, body, fp32
from tests.stub.supervisor import FakeSupervisor
from tests.support.host_gpu import LostCuda
from zmqtriton_floor import wire
from zmqtriton_floor.execution_progress import ProgressView
from zmqtriton_floor.logs import LogOptions
from zmqtriton_stub import instance
from zmqtriton_stub.api import pb_utils
from zmqtriton_stub.api.inference import InferenceRequest
from zmqtriton_stub.execution import executions
from zmqtriton_stub.execution.executions import Executions
from zmqtriton_stub.execution.responses import OpenRequest
from zmqtriton_stub.model import PythonModel
from zmqtriton_stub.own_process import OwnProcess
from zmqtriton_stub.tracing import StubTracing

_PREFIX = "Failed to process the request(s) for model 'm_0_0', message: "


class _Batches:
    """A stub without a process whose model's execute() is a function of the test."""

    def __init__(self, execute: Any, is_decoupled: bool = False) -> None:
        self.link = FakeLink(is_decoupled)
        model = PythonModel(LOAD, None)
        # in place of code that is loaded from a file
        model._execute, model._is_decoupled = execute, is_decoupled
        self.model = model
        link: Any = self.link
        self.process = Mock(OwnProcess, has_own_memory=True)
        progress = Mock(ProgressView)
        self.executions = Executions(
            self.link.instance, model, link, progress, process=self.process
        )

    def run(self, *requests: wire.RequestBody, flags: int = 0) -> None:
        """One batch whose ids are counted from 0."""
        batch = batch_of(*[self.link.add_request(request, i) for i, request in enumerate(requests)])
        for pending in batch:
            pending.work = pending.work._replace(flags=flags)
        self.executions.begin(batch)

    def texts(self) -> list[tuple[int, str]]:
        return [(outcome.id, outcome.text) for outcome in self.link.outcomes()]


def _executed(execute: Any, *requests: wire.RequestBody, is_decoupled: bool = False) -> _Batches:
    """Return the stub whose model was given these in one batch."""
    batches = _Batches(execute, is_decoupled)
    batches.run(*requests)
    return batches


def _same(requests: list[InferenceRequest]) -> list[pb_utils.InferenceResponse]:
    return [pb_utils.InferenceResponse(request.inputs()) for request in requests]


@pytest.fixture
def batches() -> _Batches:
    return _Batches(_same)


def test_what_a_batch_has_encoded_before_its_failure_is_withdrawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def execute(requests: Any) -> Any:
        responses = [pb_utils.InferenceResponse() for _ in requests]
        return [*responses[:-1], pb_utils.InferenceResponse(parameters={"n": 2**64})]

    withdrawn: list[tuple[int, int]] = []
    monkeypatch.setattr(OpenRequest, "withdraw", lambda self, answer: withdrawn.append(self.route))

    _Batches(execute).run(body(), body(), body())

    assert [(3, 0), (3, 1)] == withdrawn


@pytest.mark.parametrize("is_in_list", [False, True])
def test_a_request_that_the_model_forgets_gets_an_error(is_in_list: bool) -> None:
    def execute(requests: Any) -> Any:
        return [None, pb_utils.InferenceResponse()] if is_in_list else None

    batches = _executed(execute, body(), body())

    text = _PREFIX + (
        "Expected an 'InferenceResponse' object in the execute function return list, found type "
        "'<class 'NoneType'>'."
        if is_in_list
        else "The model let go of a request without a response to it."
    )
    assert sorted(batches.texts()) == [(0, text), (1, "" if is_in_list else text)]


@pytest.mark.parametrize("is_raised", [True, False])
@pytest.mark.parametrize(("code", "is_lost"), [(700, True), (719, True), (600, False), (0, False)])
def test_a_process_that_has_lost_a_gpu_answers_and_gives_up(
    monkeypatch: pytest.MonkeyPatch, code: int, is_lost: bool, is_raised: bool
) -> None:
    def execute(requests: Any) -> Any:
        if is_raised:
            raise RuntimeError("CUDA error")
        return [pb_utils.InferenceResponse(error=pb_utils.TritonError("CUDA error"))]

    def give_up(reason: str) -> None:
        reasons.append((reason, batches.texts()))

    reasons = list[Any]()
    monkeypatch.setattr("ctypes.CDLL", lambda *_: LostCuda(code))
    batches = _Batches(execute)
    batches.process.give_up = give_up
    batches.run(body())

    assert is_lost == bool(reasons)
    for reason, [(_, text)] in reasons:
        assert "CUDA error" in text  # its own answer goes before
        assert reason.startswith("CUDA_ERROR_")


def test_many_long_error_texts_are_split_over_messages() -> None:
    def execute(requests: Any) -> Any:
        error = pb_utils.TritonError("é" * 60_000)
        return [pb_utils.InferenceResponse(error=error) for _ in requests]

    batches = _executed(execute, *[body()] * 20)

    assert [outcome.id for outcome in batches.link.outcomes()] == list(range(20))
    assert sum(len(message.executed) for message, _ in batches.link.messages) == 1
    for message, bodies in batches.link.messages:
        assert len(wire.encode(message)) <= wire.MAX_HEADER_BYTES
        assert len(bodies) == len(message.outcomes)


def test_memory_that_the_broker_has_not_checked_is_not_opened(
    batches: _Batches, world: FakeSupervisor
) -> None:
    batches.link.instance.memory = world.memory
    placed = wire.Tensor("A", 2, [200_000], world.write(bytes(200_000)))

    batches.run(body(placed), flags=wire.UNCHECKED)
    batches.run(body(placed), flags=wire.UNCHECKED | wire.HAS_REFERENCES)

    refused, answered = batches.texts()
    assert ((0, "a tensor in memory that it may not be in"), (0, "")) == (refused, answered)


def test_a_request_that_does_not_fit_leaves_its_batch_alone(batches: _Batches) -> None:
    batches.link.instance.configure(json.dumps({"name": "m", "input": [_A, _OPTIONAL]}))

    batches.run(body(fp32("A")), body(fp32("C")), body(fp32("A")), flags=wire.UNCHECKED)

    text = (
        "Model m - Error when running inference: [request id: r1] unexpected inference input 'C' "
        "for model 'm', allowed inputs are: A, B"
    )
    assert [(1, text), (0, ""), (2, "")] == batches.texts()


@pytest.mark.parametrize("peer", [wire.BROKER, 3])
def test_what_does_not_fit_is_told_in_the_words_of_who_asked(batches: _Batches, peer: int) -> None:
    batches.link.instance.configure(json.dumps({"name": "m", "input": [_A]}))
    pending = batches.link.add_request(body(), 4)
    pending.work = pending.work._replace(flags=wire.UNCHECKED, peer=peer)

    batches.executions.begin(batch_of(pending))

    [(_, text)] = batches.texts()
    assert (peer != wire.BROKER) == text.startswith("Model m - Error when running inference: ")


@pytest.mark.parametrize("is_decoupled", [False, True])
def test_what_has_begun_is_written_down_before_the_model_is_called(is_decoupled: bool) -> None:
    progress: Any = None
    seen: list[Any] = []

    def look(requests: list[InferenceRequest]) -> None:
        seen.append(progress.begin.call_args.args[1])

    batches = _Batches(look, is_decoupled=is_decoupled)
    # the page that the broker reads when this process is dead
    progress = batches.executions._progress
    batches.run(body(), body())

    assert [[(3, 0), (3, 1)]] == seen


@pytest.mark.parametrize("is_decoupled", [False, True])
def test_what_may_have_to_be_repeated_is_what_is_here_and_what_was_just_answered(
    is_decoupled: bool,
) -> None:
    batches = _Batches(_leave if is_decoupled else _same, is_decoupled=is_decoupled)

    batches.run(body(), body())
    batches.executions.begin(batch_of(batches.link.add_request(body(), 7), number=10))

    # the page that the broker reads when this process is dead
    progress: Any = batches.executions._progress
    assert {(3, 0), (3, 1), (3, 7)} == set(progress.begin.call_args.args[2]())


def _leave(requests: list[InferenceRequest]) -> None:
    """Leave the answers to the senders."""


def test_a_request_that_was_cancelled_while_it_waited_is_not_given_to_the_model() -> None:
    batch_sizes: list[int] = []

    def execute(requests: Any) -> Any:
        batch_sizes.append(len(requests))
        return _same(requests)

    batches = _Batches(execute)
    cancelled, other = (batches.link.add_request(body(), own_id) for own_id in (1, 2))
    cancelled.cancel()

    batches.executions.begin(batch_of(cancelled, other))

    assert ([1], {(1, "request was cancelled"), (2, "")}) == (batch_sizes, set(batches.texts()))


@pytest.mark.parametrize(("datatype", "size"), [(11, 4), (13, 4), (9, 8)])
def test_padding_is_zeros_where_nothing_is_given(datatype: int, size: int) -> None:
    seen: list[bytes] = []

    def execute(requests: Any) -> Any:
        # as it would be sent on
        seen.extend(bytes(tensor._data) for tensor in requests[0].inputs())
        return [pb_utils.InferenceResponse()]

    padding = body(wire.Tensor("A", datatype, [3], b""), fp32("B"))
    _Batches(execute).run(padding, flags=wire.PADDING)

    assert [bytes(3 * size), b"\0\0\x80?"] == seen


class _Iterative(_Batches):
    """The model wants each request again."""

    def __init__(self, answer: Any = None, *, is_iterative: bool = True) -> None:
        super().__init__(self._step)
        self.link.instance.is_iterative = is_iterative
        self.answer = answer

    def _step(self, requests: Any) -> Any:
        for request in requests:
            request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
        return [self.answer for _ in requests]

    def rescheduled(self) -> list[list[wire.RequestKey]]:
        return [message.rescheduled for message, _ in self.link.messages]


def test_a_request_that_is_wanted_again_has_no_response_yet() -> None:
    batches = _Iterative(pb_utils.InferenceResponse())

    batches.run(body())

    [(_, text)] = batches.texts()
    assert "Expected a None object in the execute function return list" in text


def test_a_model_that_is_not_iterative_gets_no_request_again() -> None:
    batches = _Iterative(is_iterative=False)

    batches.run(body())

    [(_, text)] = batches.texts()
    assert "RELEASE_RESCHEDULE, while the model is not configured" in text
    assert [[]] == batches.rescheduled()


def test_a_batch_is_in_the_trace_and_in_the_verbose_log(
    batches: _Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance, "log_options", LogOptions(verbose=1))
    tracing: Any = Mock(StubTracing)
    batches.link.instance.tracing = tracing
    pending = batches.link.add_request(body())
    pending.work = pending.work._replace(trace="of a client")

    batches.executions.begin(batch_of(pending))

    assert ["begun", "answered", "executed"] == [name for name, *_ in tracing.method_calls]
    assert batches.link.sent_to_supervisor[-1].text.endswith(" released 1 requests")


def test_while_batches_wait_the_broker_is_read_after_a_millisecond_again(
    batches: _Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = itertools.count(10**9, 150_000).__next__  # four times a batch
    monkeypatch.setattr(executions, "_now_ns", now_ns)
    batches.link.batches.append(batch_of())

    for _ in range(4):
        batches.run(body())
    batches.link.batches.clear()
    batches.run(body())

    assert [True, False, True, False, True] == batches.link.looks


_A = {"name": "A", "data_type": "TYPE_FP32", "dims": [1]}
_OPTIONAL = {"name": "B", "data_type": "TYPE_FP32", "dims": [1], "optional": True}
