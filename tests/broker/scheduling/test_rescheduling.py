"""Requests that are scheduled again, and generations that follow each other."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.sequence_world import (
    S2,
    F,
    S,
    SequenceHarness,
    must_start,
    sequence_config,
)
from tests.broker.world import Page, outcome, request
from zmqtriton.broker.scheduling.generations import MAX_DEPARTED, GenerationRegistry, NotServed
from zmqtriton.broker.sequences.controls import FIRST_PADDING_ID
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.wire import SEQUENCE_END as END
from zmqtriton_floor.wire import SEQUENCE_START as START

# ------------------------------------------------------------------------ rescheduling
# Requests that are executed step by step, each a sequence by itself: batches, ids and losses.


_OLDEST: dict[str, Any] = {"direct": None, "oldest": {"max_candidate_sequences": 3}}


def _iterative(slots: int = 4, **batching: Any) -> dict[str, Any]:
    return sequence_config(slots=slots, iterative_sequence=True, **batching)


def _batch(world: SequenceHarness, serial: int = S) -> list[wire.BatchedRequest]:
    """Return what the stub executes next; it is taken from what it has."""
    works = world.batched_requests.pop(serial)
    assert len({work.batch for work in works}) == 1
    return works


def _return(
    world: SequenceHarness, batch: list[wire.BatchedRequest], *final: int, serial: int = S
) -> None:
    """The stub is through; all but the final ones, and what filled empty slots, go on."""
    world.now += 1
    over = [w for w in batch if w.id in final or w.id >= FIRST_PADDING_ID]
    outcomes = [wire.Outcome(w.peer, w.id, 0, "", wire.FINAL) for w in over]
    again = [wire.RequestKey(w.peer, w.id) for w in batch if w not in over]
    executed = [wire.Executed(batch[0].batch, 1, 2, 3)]
    world.send_results(serial, *outcomes, executed=executed, again=again)


def _ids(batch: list[wire.BatchedRequest]) -> list[int]:
    return [0 if work.id >= FIRST_PADDING_ID else work.id for work in batch]


@pytest.fixture
def world() -> SequenceHarness:
    return SequenceHarness(_iterative())


@pytest.mark.row("E76")
def test_steps_of_several_requests_share_a_batch_each_in_its_place(world: SequenceHarness) -> None:
    first = world.send(0)
    for _ in range(2):
        world.send(0)

    batch = _batch(world)
    assert [first] == _ids(batch)
    _return(world, batch)
    batch = _batch(world)
    assert [1, 2, 3] == _ids(batch)
    _return(world, batch, 2)
    batch = _batch(world)
    assert [1, 0, 3] == _ids(batch)
    _return(world, batch, 1, 3)

    assert [1, 1, 1] == [len(world.finals(F, i)) for i in (1, 2, 3)]
    scheduler = world.core.generations.schedulers[1]
    unanswered, malformed = scheduler.generation.unanswered, world.core.traffic.malformed
    assert (0, 0, 0) == (scheduler.pending, unanswered, malformed)


@pytest.mark.row("E76")
def test_the_oldest_steps_share_a_batch_and_new_requests_wait_for_a_place() -> None:
    world = SequenceHarness(_iterative(**_OLDEST))
    for _ in range(5):
        world.send(0)

    _return(world, _batch(world))
    batch = _batch(world)
    assert [2, 3, 1] == _ids(batch)
    _return(world, batch, 1, 3)

    assert [4, 5, 2] == _ids(_batch(world))


@pytest.mark.row("E76")
def test_a_step_waits_for_company_from_when_the_one_before_it_was_over() -> None:
    oldest = {"max_candidate_sequences": 3, "max_queue_delay_microseconds": "1000"}
    world = SequenceHarness(_iterative(direct=None, oldest={**oldest, "preferred_batch_size": [3]}))
    world.send(0)
    world.tick(1_000_000)

    _return(world, _batch(world))

    assert [] == world.executing_ids()
    world.tick(1_000_000)
    assert [1] == world.executing_ids()


@pytest.mark.row("E76")
def test_each_request_has_an_id_of_its_own_and_start_on_its_first_step_only(
    world: SequenceHarness,
) -> None:
    for sequence, flags in ((7, START | END), (0, 0), ("seven", START)):
        world.send(sequence, flags)

    for final, flags in ((1, START), (0, 0)):
        _return(world, _batch(world), final)
        assert [(1, flags), ("seven", flags)] == [
            (work.correlation, work.flags)
            for work in world.batched_requests[S]
            if work.id < FIRST_PADDING_ID
        ]


@pytest.mark.row("E76")
@pytest.mark.parametrize("flags", [0, END])
def test_a_client_that_names_a_sequence_must_start_it(world: SequenceHarness, flags: int) -> None:
    assert (InvalidArgument.number, must_start(7)) == world.error(world.send(7, flags))


def test_more_than_one_inference_in_a_request_is_refused(world: SequenceHarness) -> None:
    own_id = world.send(0, batch_size=2)

    assert world.error(own_id)[1].endswith("due to requirements of sequence batcher")


@pytest.mark.row("E76")
def test_control_tensors_tell_the_first_step_from_those_after_it() -> None:
    world = SequenceHarness(_iterative(slots=1))
    world.send(0)

    controls = []
    for _ in range(2):
        body = wire.decode_request(world.bodies[F, 1])
        controls.append([tensor.data[:1] for tensor in body.inputs if tensor.name in ("S", "E")])
        _return(world, _batch(world))

    assert [[b"\1", b"\0"], [b"\0", b"\0"]] == controls


@pytest.mark.row("E76")
def test_idle_time_does_not_end_what_is_to_be_executed_again() -> None:
    world = SequenceHarness(_iterative(slots=1))
    world.send(0)
    batch = _batch(world)

    world.tick(3600 * 10**9)
    _return(world, batch)

    assert [1] == world.executing_ids()


@pytest.mark.row("E76")
def test_a_request_that_is_cancelled_between_steps_leaves_its_place() -> None:
    world = SequenceHarness(_iterative(slots=2))
    world.send(0)
    world.send(0)
    third = world.send(0)
    _return(world, _batch(world))
    batch = _batch(world)

    world.cancel(F, 1)  # while it is executed
    _return(world, batch)

    assert ("request was cancelled", [third, 2]) == (world.error(1)[1], _ids(_batch(world)))


def test_what_ends_while_it_waits_to_be_executed_again_leaves_its_place() -> None:
    world = SequenceHarness(_iterative(**_OLDEST, slots=1))
    world.send(0)
    batch = _batch(world)
    world.send(0)
    _return(world, batch)
    assert [2] == world.executing_ids()

    world.send_results(S, outcome(1))  # of a sender that was kept
    world.finish_batch(S)

    assert [1, 1] == [len(world.finals(F, i)) for i in (1, 2)]
    assert (0, []) == (world.core.generations.schedulers[1].pending, world.executing_ids())


def test_with_a_stub_die_the_requests_that_it_has_begun_and_no_others() -> None:
    world = SequenceHarness(_iterative(slots=2))
    page: Any = Page()
    world.add_stub(S2, page=page)
    world.kill_peer(S)
    world.send(0)
    batch = _batch(world, S2)
    world.send(0)
    world.send(0)
    page.last_begun_batch = batch[0].batch
    _return(world, batch, serial=S2)  # and it dies before it begins the next one

    world.kill_peer(S2)
    world.add_stub(4)

    assert world.error(1)[1].endswith("(killed by SIGKILL)")
    assert [2, 3] == world.executing_ids(4)
    assert [START, START] == [work.flags for work in world.batched_requests[4]]


def test_a_request_that_nobody_has_begun_outlives_a_broker() -> None:
    world = SequenceHarness(_iterative(), epoch=2)

    assert [world.send(0, wire.RESENT)] == world.executing_ids()
    # An instance may still have some of the earlier broker's.
    assert world.batched_requests[S][0].correlation == 2 << 40


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_a_step_that_an_earlier_broker_asked_for_has_no_other(is_reloaded: bool) -> None:
    world = SequenceHarness(_iterative(), epoch=2)
    world.kill_peer(S)
    world.expect_stub(4)
    world.core.connected(wire.Hello(4, b"t" * 16, 2, [wire.RequestKey(F, 1)], [], 1), [], world.now)
    world.attach(4)
    if is_reloaded:  # then the request is the next generation's, which has no stub yet
        world.add_generation(2, config=_iterative())
        world.core.retire(wire.Retire(1))
    world.send(0, wire.RESENT)

    world.send_results(4, executed=[wire.Executed(77, 1, 1, 1)], again=[wire.RequestKey(F, 1)])

    assert world.error(1)[1].endswith("could be executed again")
    assert [(4, wire.RequestKey(F, 1))] == world.cancelled_executions
    assert {0} == {one.pending for one in world.core.generations.schedulers.values()}


def test_a_stub_that_wants_again_what_it_does_not_have_is_told_to_forget_it(
    world: SequenceHarness,
) -> None:
    world.send_results(S, again=[wire.RequestKey(F, 9)])

    assert ([(S, (F, 9))], 1) == (world.cancelled_executions, world.core.traffic.malformed)


# ------------------------------------------------------------------------- generations
# The generations of a broker, without requests.


def _departed(registry: GenerationRegistry, number: int) -> str:
    """Return the model of a generation that is gone, if it is remembered."""
    with pytest.raises(NotServed) as refused:
        registry.find(request(1, number))
    return refused.value.model


def test_models_that_go_and_come_back_are_remembered_for_a_while() -> None:
    registry = GenerationRegistry()
    for number in range(1, MAX_DEPARTED + 2):
        registry.add_or_update(wire.AddGeneration(number, f"m{number}", 1, "{}"))
        registry.by_number[number].is_drained = True
        registry.remove(number)

    last = MAX_DEPARTED + 1
    assert ["", "m2", f"m{last}"] == [_departed(registry, number) for number in (1, 2, last)]
