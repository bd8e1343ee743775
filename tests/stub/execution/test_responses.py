"""Responses of models, and the state that they leave for the next request of a sequence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.stub.fakes import FakeLink, body
from tests.support.refusals import refusal
from zmqtriton_floor import wire
from zmqtriton_floor.errors import Cancelled, InternalError
from zmqtriton_floor.reshaping import Reshaping
from zmqtriton_floor.wire import SEQUENCE_START as START
from zmqtriton_floor.wire import Tensor
from zmqtriton_stub.api import pb_utils
from zmqtriton_stub.api.errors import TritonError
from zmqtriton_stub.execution.implicit_state import States, keep_states
from zmqtriton_stub.execution.responses import InferenceResponseSender, OpenRequest

# --------------------------------------------------------------------------------------- responses


FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


def _response(name: str = "OUT") -> pb_utils.InferenceResponse:
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, np.zeros(1, np.uint8))])


def _sender(link: FakeLink) -> InferenceResponseSender:
    return link.add_request(body()).make_sender()


def _refusal(sender: InferenceResponseSender, *arguments: Any) -> str:
    return refusal(pb_utils.TritonModelException, sender.send, *arguments)


@pytest.fixture
def link() -> FakeLink:
    return FakeLink()


def test_progress_is_told_where_a_client_follows_it_and_only_what_is_new(link: FakeLink) -> None:
    pending = link.add_request(body())
    request = pb_utils.InferenceRequest("", 0, [], [], "m")
    request.progress(0.1)  # one to another model
    request._pending = pending

    request.progress(0.2)
    pending.work = pending.work._replace(flags=wire.WANT_STAGES)
    for share in (-1, 0.4, 0.4, 7):
        request.progress(share)
    pending.make_sender().send(_response())
    request.progress(0.5)

    sent = [message for message, _ in link.messages if isinstance(message, wire.Progress)]
    assert [wire.Progress(3, 5, 400), wire.Progress(3, 5, 1000)] == sent


def test_in_default_mode_final_alone_is_no_answer() -> None:
    assert _refusal(_sender(FakeLink()), None, FINAL) == (
        "Unable to send response. Non-decoupled model cannot send complete final before sending a "
        "response."
    )


def test_arguments_of_send_are_checked_first() -> None:
    sender = _sender(FakeLink())

    assert _refusal(sender) == (
        "Inference Response object must be provided when the response flags is set to zero."
    )
    assert _refusal(sender, _response(), 2) == (
        "Unable to send response. Unsupported flag provided."
    )
    with pytest.raises(TypeError):
        sender.send("text")  # type: ignore[arg-type]


def test_in_decoupled_mode_responses_flow_until_final() -> None:
    link = FakeLink(is_decoupled=True)
    sender = _sender(link)

    sender.send(_response())
    sender.send(_response())
    sender.send(flags=FINAL)

    assert [outcome.flags for outcome in link.outcomes()] == [0, 0, wire.FINAL]
    assert [row[0] for row in json.loads(link.tallies.take(is_last=True))] == [0, 1, 2]
    assert link.messages[2][1] == [b""]
    assert _refusal(sender, _response()) == (
        "Unable to send response. Response sender has been closed."
    )


@pytest.mark.parametrize("has_sender", [False, True])
def test_a_request_that_is_not_executed_again_ends_unless_it_has_a_sender(
    has_sender: bool,
) -> None:
    pending = FakeLink().add_request(body())
    sender = pending.make_sender() if has_sender else None

    pending.release()

    assert (sender is None) == pending.is_answered


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_stream_that_is_dropped_fails_with_a_warning(is_cancelled: bool) -> None:
    link = FakeLink(is_decoupled=True)

    pending = link.add_request(body())
    sender = pending.make_sender()
    sender.send(_response())
    if is_cancelled:
        pending.cancel()
    del sender

    code = Cancelled.number if is_cancelled else InternalError.number
    assert [(o.code, o.flags) for o in link.outcomes()] == [(0, 0), (code, wire.FINAL)]
    assert len(link.sent_to_supervisor) == 1


def test_a_response_to_what_is_answered_gives_back_its_memory_and_is_not_sent(
    link: FakeLink,
    withdrawn: list[wire.Outcome],
) -> None:
    pending = link.add_request(body())
    sender = pending.make_sender()
    pending.reschedule()
    pending.cancel()

    sender.send(_response())

    assert ([], 1) == (link.messages, len(withdrawn))


@pytest.mark.parametrize(
    ("datatype", "name", "texts"),
    [
        ("UINT8", "OUT", []),
        ("FP32", "OUT", ["sent UINT8 for 'OUT', which its configuration declares as FP32"]),
        ("UINT8", "B", ["sent 'B', which its configuration does not name; it names OUT"]),
    ],
)
def test_an_output_of_another_name_or_type_is_told_of_once(
    link: FakeLink, datatype: str, name: str, texts: list[str]
) -> None:
    outputs = [{"name": "OUT", "data_type": f"TYPE_{datatype}", "dims": [1]}]
    link.instance.configure(json.dumps({"name": "m", "output": outputs}))

    for _ in range(2):
        link.add_request(body()).make_sender().send(_response(name))

    mismatches = [
        message.text for message in link.sent_to_supervisor if type(message) is wire.Mismatch
    ]
    assert texts == mismatches


@pytest.mark.parametrize(
    ("dims", "batch", "backend", "texts"),
    [
        ([2], 0, "", ["sent shape [1] for 'OUT', which its configuration declares as [2]"]),
        (
            [1],
            4,
            "python",
            ["sent shape [1] for 'OUT', which its configuration declares as [-1, 1]"],
        ),
        ([1], 4, "fil", []),  # as in Triton
        ([-1], 0, "python", []),
        ([1], 0, "", []),
    ],
)
def test_the_shapes_of_the_first_response_are_compared(
    link: FakeLink, dims: list[int], batch: int, backend: str, texts: list[str]
) -> None:
    outputs = [{"name": "OUT", "data_type": "TYPE_UINT8", "dims": dims}]
    document = {"name": "m", "backend": backend, "max_batch_size": batch, "output": outputs}
    link.instance.configure(json.dumps(document))

    for _ in range(2):
        link.add_request(body()).make_sender().send(_response("OUT"))

    assert texts == [one.text for one in link.sent_to_supervisor if type(one) is wire.Mismatch]


# ---------------------------------------------------------------------- implicit state
# Implicit states in the stub: what a model is given, what it leaves, and when that is gone.


_INT32 = 8


def _config(states: list[dict[str, Any]], **batching: Any) -> dict[str, Any]:
    return {"name": "m", "max_batch_size": 2, "sequence_batching": {"state": states, **batching}}


def _state(**fields: Any) -> dict[str, Any]:
    state = {"input_name": "I", "output_name": "O", "data_type": "TYPE_INT32", "dims": [2]}
    return {**state, **fields}


class _Sequences:
    """An instance whose model adds one to each element of its state."""

    def __init__(self, config: dict[str, Any], directory: str = "/none") -> None:
        self.link = FakeLink()
        self.states = self.link.instance.states = States(config, directory)

    def begin(self, sequence: int = 7, flags: int = 0, *sent: Tensor) -> tuple[OpenRequest, Tensor]:
        """A request that is about to be executed, and the state that it has."""
        pending = self.link.add_request(body())
        pending.work = pending.work._replace(correlation=sequence, flags=flags)
        *_, state = self.states.give(pending, list(sent), [pending])
        return pending, state

    def step(self, sequence: int = 7, flags: int = 0) -> list[int]:
        """Return what the state was, as a model sees it."""
        pending, state = self.begin(sequence, flags)
        array = np.frombuffer(state.data, np.int32)
        _answer(pending, array + np.int32(1))
        return [int(number) for number in array]


def _answer(pending: OpenRequest, array: Any) -> None:
    output = pb_utils.Tensor("O", array.reshape(1, -1))
    pending.send(pb_utils.InferenceResponse([output]), wire.FINAL)


@pytest.fixture
def sequences() -> _Sequences:
    return _Sequences(_config([_state()]))


@pytest.mark.row("E75")
def test_each_sequence_is_given_what_it_left_and_begins_anew_with_start(
    sequences: _Sequences,
) -> None:
    seven = [sequences.step(7, START), sequences.step(7)]
    eight = [sequences.step(8, START)]
    seven += [sequences.step(7), sequences.step(7, START)]

    assert ([[0, 0], [1, 1], [2, 2], [0, 0]], [[0, 0]]) == (seven, eight)


@pytest.mark.row("E75")
def test_a_sequence_that_is_over_leaves_nothing(sequences: _Sequences) -> None:
    sequences.step(7, START)
    sequences.step(8, START)

    sequences.states.end(7)
    sequences.states.end(9)
    assert 1 == len(sequences.states.sequences)

    sequences.states.clear()
    assert 0 == len(sequences.states.sequences)


@pytest.mark.row("E75")
def test_a_state_begins_with_the_content_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "initial_state").mkdir()
    (tmp_path / "initial_state" / "f").write_bytes(b"\5\0\0\0\6\0\0\0and more")
    first = {"name": "n", "data_type": "TYPE_INT32", "dims": [2], "data_file": "f"}
    sequences = _Sequences(_config([_state(initial_state=[first])]), str(tmp_path))

    assert Tensor("I", _INT32, [1, 2], b"\5\0\0\0\6\0\0\0") == sequences.begin(7, START)[1]
    assert Tensor("I", _INT32, [1, 2], bytes(8)) == sequences.begin(7, wire.PADDING)[1]


@pytest.mark.row("E75")
def test_an_empty_slot_has_zeros_of_the_shape_that_the_states_of_others_have() -> None:
    sequences = _Sequences(_config([_state(dims=[-1])]))
    pending, _ = sequences.begin(7, START)
    _answer(pending, np.arange(3, dtype=np.int32))
    slot, _ = sequences.begin(0, wire.PADDING)
    seven, _ = sequences.begin(7)

    states = sequences.states.give(slot, [], [slot, seven])

    assert [Tensor("I", _INT32, [1, 3], bytes(12))] == states
    assert 1 == len(sequences.states.sequences)


@pytest.mark.row("E75")
def test_an_empty_slot_after_the_beginning_of_a_sequence_leaves_its_state_alone(
    sequences: _Sequences,
) -> None:
    seven, state = sequences.begin(7, START)
    slot, _ = sequences.begin(0, wire.PADDING)

    sequences.states.give(slot, [], [seven, slot])
    _answer(seven, np.frombuffer(state.data, np.int32) + np.int32(1))

    assert [1, 1] == sequences.step(7)


@pytest.mark.parametrize("outputs", [[], [pb_utils.Tensor("O", np.full((1, 2), 9, np.int32))]])
def test_an_error_leaves_the_state_as_it_was(
    sequences: _Sequences, outputs: list[pb_utils.Tensor]
) -> None:
    sequences.step(7, START)
    pending, _ = sequences.begin(7)

    pending.send(pb_utils.InferenceResponse(outputs, error=TritonError("no")), wire.FINAL)

    assert [1, 1] == sequences.step(7)


def test_with_one_buffer_what_a_model_writes_there_is_kept_without_a_copy() -> None:
    sequences = _Sequences(_config([_state(dims=[2000], use_same_buffer_for_input_output=True)]))
    pending, state = sequences.begin(7, START)
    array = np.frombuffer(state.data, np.int32)

    array[:] = 5
    _answer(pending, array)

    again = np.frombuffer(sequences.begin(7)[1].data, np.int32)
    assert np.shares_memory(array, again)
    assert [5] * 2000 == list(again)
    assert [0] * 2000 == list(np.frombuffer(sequences.begin(8, START)[1].data, np.int32))


@pytest.mark.row("E75", "E76")
def test_a_request_that_is_executed_step_by_step_keeps_its_own_state() -> None:
    sequences = _Sequences(_config([_state()], iterative_sequence=True))
    first, _ = sequences.begin(1, START)
    other, _ = sequences.begin(1, START)
    keep_states(first, {"I": Tensor("I", _INT32, [1, 2], b"\7" * 8)})

    [again] = sequences.states.give(first, [], [])

    assert (b"\7" * 8, bytes(8)) == (again.data, sequences.states.give(other, [], [])[0].data)
    assert 0 == len(sequences.states.sequences)


def test_a_model_without_states_has_none() -> None:
    assert not States({"name": "m"}, "/none")


# --------------------------------------------------------------------------- reshaping


def config(dims: list[int], shape: list[int], batch: int = 0) -> dict[str, Any]:
    """One input X that the model sees as `shape`, and one output Y that it makes as `shape`."""
    reshape = {"shape": shape}
    return {
        "max_batch_size": batch,
        "input": [{"name": "X", "dims": dims, "reshape": reshape}, {"name": "P", "dims": [1]}],
        "output": [{"name": "Y", "dims": dims, "reshape": reshape}, {"name": "Q", "dims": [1]}],
    }


def tensor(name: str, shape: list[int]) -> Tensor:
    return Tensor(name, 11, shape, b"")


@pytest.mark.parametrize(
    ("dims", "shape", "batch", "outer", "seen"),
    [
        ([2, 3], [6], 0, [2, 3], [6]),
        ([-1, 1], [-1], 0, [5, 1], [5]),
        ([1, -1, 2, -1], [-1, 2, -1], 0, [1, 3, 2, 4], [3, 2, 4]),
        ([1], [], 8, [4, 1], [4]),
        ([-1, 2], [2, -1], 8, [4, 3, 2], [4, 2, 3]),
    ],
)
@pytest.mark.row("E31")
def test_the_model_sees_another_shape_than_those_who_ask(
    dims: list[int], shape: list[int], batch: int, outer: list[int], seen: list[int]
) -> None:
    reshaping = Reshaping(config(dims, shape, batch))

    assert [tensor("X", seen), tensor("P", [1])] == reshaping.for_model(
        [tensor("X", outer), tensor("P", [1])]
    )
    assert [tensor("Y", outer), tensor("Q", [1])] == reshaping.for_client(
        [tensor("Y", seen), tensor("Q", [1])]
    )


@pytest.mark.parametrize("made", [[5], [6, 2], []])
@pytest.mark.row("E31")
def test_an_output_with_another_number_of_elements_is_an_error(made: list[int]) -> None:
    reshaping = Reshaping(config([2, 3], [6]))

    assert "output tensor shape does not match size of output for 'Y'" == refusal(
        InternalError, lambda: reshaping.for_client([tensor("Y", made)])
    )


def test_an_output_with_too_few_dimensions_is_an_error() -> None:
    reshaping = Reshaping(config([1, -1, -1], [-1, -1]))

    with pytest.raises(InternalError):
        reshaping.for_client([tensor("Y", [4])])


def test_a_model_without_is_left_alone() -> None:
    plain = {"input": [{"name": "X", "dims": [1]}], "output": [{"name": "Y", "dims": [1]}]}

    assert not Reshaping(plain)
