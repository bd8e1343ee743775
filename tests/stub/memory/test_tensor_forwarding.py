"""References to others' memory that a stub passes on, and outputs made for their receivers."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.stub.fakes import FakeLink, body
from tests.stub.supervisor import FakeSupervisor
from zmqtriton_floor import wire
from zmqtriton_floor.arena import block_of
from zmqtriton_floor.tensors import from_numpy
from zmqtriton_floor.wire import Block, Reference, Tensor
from zmqtriton_stub.api import tensor
from zmqtriton_stub.api.inference import InferenceResponse
from zmqtriton_stub.api.tensor import Tensor as PbTensor
from zmqtriton_stub.execution.responses import OpenRequest

COUNT = 100_000
NUMBERS = np.arange(COUNT, dtype=np.float32)


def _open(world: FakeSupervisor, reference: Reference, *, is_leased: bool) -> Any:
    [row], _ = world.memory.open([Tensor("X", 11, [COUNT], reference)], is_leased=is_leased)
    return np.frombuffer(row.data, np.float32)


def _input_of(world: FakeSupervisor, *, is_leased: bool = False) -> tuple[Reference, Any]:
    """A tensor of the frontend's, and the array over it."""
    reference = world.write(NUMBERS.tobytes())
    return reference, _open(world, reference, is_leased=is_leased)


def _request_with_input(
    world: FakeSupervisor, link: FakeLink
) -> tuple[Reference, Any, OpenRequest]:
    """Such a tensor, and the request whose input it is."""
    reference, array = _input_of(world)
    pending = link.add_request(body())
    pending.blocks = [block_of(reference)]
    return reference, array, pending


def _ask(world: FakeSupervisor, array: Any) -> tuple[Reference, list[Block], list[Any]]:
    """Return what a question refers to; the blocks to be given back, and what is held for it."""
    held: list[Any] = []
    borrowed: list[Block] = []
    passing = world.memory.passing
    [row], own = world.memory.place(
        [Tensor("X", 11, [COUNT], from_numpy(array))],
        lambda data: passing.to_model(data, held, borrowed),
    )
    return row.data, own + borrowed, held


def _answer(link: FakeLink, pending: Any, array: Any) -> tuple[wire.Outcome, Reference]:
    pending.send(InferenceResponse([PbTensor("OUT", array)]), wire.FINAL)
    message, [data] = link.messages[-1]
    [outcome], [row] = message.outcomes, wire.decode_response(data).outputs
    return outcome, row.data


def test_an_input_goes_into_a_question_as_it_is(world: FakeSupervisor) -> None:
    reference, array = _input_of(world)

    question, blocks, held = _ask(world, array)

    assert (reference, [block_of(reference)], []) == (question, blocks, held)
    assert 0 == world.memory.arena.used
    world.memory.answered(blocks)
    assert [] == world.released


def test_what_the_model_has_changed_is_copied(world: FakeSupervisor) -> None:
    _, array = _input_of(world)
    array[COUNT // 2] = -1

    question, _, _ = _ask(world, array)
    array[:] = 0

    expected = NUMBERS.copy()
    expected[COUNT // 2] = -1
    assert expected.tobytes() == world.read(question)


def test_a_leased_tensor_is_held_until_the_final_reply(world: FakeSupervisor) -> None:
    reference, array = _input_of(world, is_leased=True)
    _, blocks, held = _ask(world, array)

    del array
    assert [] == world.released
    held.clear()
    world.memory.answered(blocks)

    assert [block_of(reference)] == world.released


def test_what_is_held_lives_until_the_outcome_has_left(
    world: FakeSupervisor, link: FakeLink
) -> None:
    reference, array = _input_of(world, is_leased=True)
    pending = link.add_request(body())

    pending.accept()
    answer = pending.encode(InferenceResponse([PbTensor("OUT", array)]))
    del array
    assert [] == world.released
    pending.finish(answer)
    pending.held = []

    assert [block_of(reference)] == world.released
    # After the death of the broker nobody could say whether it is still the same.
    [outcome], _ = link.answered.recall()
    assert ([], True) == (outcome.blocks, bool(outcome.code))


def test_inputs_that_outlived_their_broker_are_released_with_a_late_answer(
    world: FakeSupervisor, link: FakeLink
) -> None:
    block = block_of(_input_of(world)[0])
    pending = link.add_request(body())
    pending.blocks = [block]

    assert [block] == pending.hold_inputs()
    pending.send(InferenceResponse(), wire.FINAL)

    assert [block] == world.released


@pytest.mark.parametrize(
    "choose",
    [
        pytest.param(lambda array: array, id="another request's input"),
        pytest.param(lambda array: NUMBERS, id="an array of its own"),
        pytest.param(lambda array: np.frombuffer(NUMBERS.tobytes(), NUMBERS.dtype), id="read-only"),
    ],
)
def test_what_is_no_input_of_its_request_is_copied_into_an_outcome(
    world: FakeSupervisor, link: FakeLink, choose: Callable[[Any], Any]
) -> None:
    _, array = _input_of(world)

    outcome, _ = _answer(link, link.add_request(body()), choose(array))

    assert [9] == [block.owner for block in outcome.blocks]


def test_a_question_that_outlives_the_request_takes_a_lease(
    world: FakeSupervisor, link: FakeLink
) -> None:
    reference, array, pending = _request_with_input(world, link)
    _, blocks, _ = _ask(world, array)
    world.memory.answered(_ask(world, array)[1])  # another one, which does not

    pending.send(InferenceResponse([PbTensor("OUT", NUMBERS[:1])]), wire.FINAL)

    # In this order, so that the owner knows before it frees the input.
    assert [wire.Lease, wire.Results] == [type(message) for message, _ in link.messages]
    assert [block_of(reference)] == link.messages[0][0].blocks
    world.memory.answered(blocks)
    assert [block_of(reference)] == world.released


def test_an_answered_request_s_input_is_copied(world: FakeSupervisor, link: FakeLink) -> None:
    _, array, pending = _request_with_input(world, link)
    pending.send(InferenceResponse([PbTensor("OUT", NUMBERS[:1])]), wire.FINAL)

    question, _, _ = _ask(world, array)

    assert 9 == question.owner
    assert NUMBERS.tobytes() == world.read(question)


def test_a_block_of_our_own_that_came_back_is_leased_once_more(
    world: FakeSupervisor, link: FakeLink
) -> None:
    [row], [block] = world.memory.place([Tensor("X", 11, [COUNT], from_numpy(NUMBERS))])
    world.memory.hear_of_blocks(wire.Lease([block]))  # since another model has passed it on to us
    # What the supervisor gives to those who ask.
    world._segments[1] = world.stub_segments[1]
    array = _open(world, row.data, is_leased=True)

    outcome, answered = _answer(link, link.add_request(body()), array)
    del array
    others = block._replace(owner=3)  # has the same number
    world.memory.free([*world.released, block, others])

    assert (row.data, [block], [block]) == (answered, outcome.blocks, world.released)
    assert 1 == world.memory.arena.used
    world.memory.free(outcome.blocks)
    assert 0 == world.memory.arena.used


MADE = 50_000


@pytest.fixture
def link(world: FakeSupervisor, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeLink]:
    link = FakeLink()
    link.instance.memory = world.memory
    monkeypatch.setattr(tensor, "_make_bytes", world.memory.outputs.make)
    yield link
    gc.collect()


def _made(value: float = 1.0) -> PbTensor:
    output = PbTensor.empty("OUT", (2, MADE // 2), np.float32)
    output.as_numpy()[:] = value
    return output


def _send(link: FakeLink, *tensors: PbTensor) -> tuple[wire.Outcome, list[Any]]:
    link.add_request(body()).send(InferenceResponse(list(tensors)), wire.FINAL)
    message, [data] = link.messages[-1]
    [outcome] = message.outcomes
    return outcome, [row.data for row in wire.decode_response(data).outputs]


def test_parts_of_it_are_sent_as_they_are_too(world: FakeSupervisor, link: FakeLink) -> None:
    array = _made().as_numpy()
    array[1] = 3

    outcome, references = _send(link, PbTensor("A", array[0]), PbTensor("B", array[1]))

    assert [{1.0}, {3.0}] == [set(np.frombuffer(world.read(one), np.float32)) for one in references]
    assert 1 == world.memory.arena.used
    assert (2, 1) == (len(outcome.blocks), len(set(outcome.blocks)))


def test_what_lies_beside_it_is_copied(world: FakeSupervisor, link: FakeLink) -> None:
    output = _made()

    _, [reference] = _send(link, PbTensor("OUT", output.as_numpy() + 1))

    assert {2.0} == set(np.frombuffer(world.read(reference), np.float32))
    assert 2 == world.memory.arena.used


@pytest.mark.parametrize("why", ["small", "strings", "no memory", "no instance"])
def test_other_tensors_are_arrays_like_any(
    world: FakeSupervisor, link: FakeLink, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    dtype: Any = np.object_ if why == "strings" else np.int16
    if why == "no memory":
        world.refusal = "There is none."
    elif why == "no instance":
        # as the module is before a stub gives it a memory
        monkeypatch.setattr(tensor, "_make_bytes", tensor._nowhere)

    output = PbTensor.empty("OUT", [8 if why == "small" else MADE], dtype)

    assert 0 == world.memory.arena.used
    assert dtype == output.as_numpy().dtype
    assert ("OUT", [8 if why == "small" else MADE]) == (output.name(), output.shape())


def test_a_shape_below_zero_is_refused() -> None:
    assert [0, 4] == PbTensor.empty("OUT", (0, 4), np.float32).shape()
    with pytest.raises(ValueError, match="negative dimensions"):
        PbTensor.empty("OUT", (-1, 4), np.float32)
