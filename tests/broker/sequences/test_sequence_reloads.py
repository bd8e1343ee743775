"""Sequences of a model that is loaded anew while they go on."""

from __future__ import annotations

import pytest

from tests.broker.sequence_world import IDLE_NS, S2, S, SequenceHarness, must_start, sequence_config
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.wire import SEQUENCE_END as END
from zmqtriton_floor.wire import SEQUENCE_START as START


def _is_drained(world: SequenceHarness, generation: int = 1) -> bool:
    return wire.Drained(generation) in world.supervisor_messages


def _reloaded() -> SequenceHarness:
    """Sequence 5 has begun at S, and then the model was loaded again, which S2 serves."""
    world = SequenceHarness(sequence_config(slots=2))
    world.send(5, START)
    world.finish_batch(S)
    world.add_generation(2, config=sequence_config(slots=2))
    world.add_stub(S2, generation=2)
    world.core.retire(wire.Retire(1))
    world.drain_outbox()
    return world


def _send_to_new(world: SequenceHarness, sequence: int, flags: int = 0) -> int:
    return world.send(sequence, flags, generation=2)


@pytest.mark.row("E78")
def test_a_sequence_goes_on_where_it_began_until_it_ends() -> None:
    world = _reloaded()
    assert not _is_drained(world)

    begun = _send_to_new(world, 6, START)
    going_on = _send_to_new(world, 5)
    assert ([going_on], [begun]) == (world.executing_ids(S), world.executing_ids(S2))
    world.finish_batch(S)
    _send_to_new(world, 5, END)
    world.finish_batch(S)

    assert _is_drained(world)
    assert (InvalidArgument.number, must_start(5)) == world.error(_send_to_new(world, 5))


@pytest.mark.row("E78")
def test_what_was_replaced_waits_for_idle_sequences_no_longer_than_they_may_be_idle() -> None:
    world = _reloaded()
    world.tick(IDLE_NS - 1)
    assert not _is_drained(world)

    world.tick(1)

    assert _is_drained(world)


def test_a_start_that_names_what_was_replaced_begins_at_its_successor() -> None:
    world = _reloaded()

    begun = world.send(7, START)

    assert ([], [begun]) == (world.executing_ids(S), world.executing_ids(S2))


def test_a_sequence_that_begins_anew_at_the_successor_is_over_where_it_began() -> None:
    world = _reloaded()

    _send_to_new(world, 5, START | END)
    world.finish_batch(S2)
    late = _send_to_new(world, 5)

    assert _is_drained(world)
    assert (InvalidArgument.number, must_start(5)) == world.error(late)
    assert [] == world.executing_ids(S)


def test_what_waits_of_a_sequence_is_executed_though_it_begins_anew_at_the_successor() -> None:
    world = _reloaded()
    waiting = _send_to_new(world, 5)

    begun = _send_to_new(world, 5, START)

    assert ([waiting], [begun]) == (world.executing_ids(S), world.executing_ids(S2))
    world.finish_batch(S)
    assert _is_drained(world)


def test_nothing_waits_for_idle_sequences_of_a_model_that_is_unloaded() -> None:
    world = SequenceHarness(sequence_config())
    world.send(5, START)
    world.finish_batch(S)

    world.core.retire(wire.Retire(1))
    world.drain_outbox()

    assert _is_drained(world)


@pytest.mark.parametrize("is_removed", [False, True])
def test_nor_for_those_of_what_it_had_replaced(is_removed: bool) -> None:
    world = _reloaded()

    world.core.retire(wire.Retire(2))
    if is_removed:
        world.core.remove(wire.RemoveGeneration(2, "unloaded"), world.now)
    world.drain_outbox()

    assert _is_drained(world, 2)
    assert 1 == world.supervisor_messages.count(wire.Drained(1))


def test_what_was_replaced_twice_is_waited_for_as_long_as_the_last_one_serves() -> None:
    world = _reloaded()
    world.add_generation(3, config=sequence_config(slots=2))
    world.add_stub(4, generation=3)
    world.core.retire(wire.Retire(2))
    world.drain_outbox()
    assert (False, True) == (_is_drained(world), _is_drained(world, 2))
    world.core.remove(wire.RemoveGeneration(2, "replaced"), world.now)
    going_on = world.send(5, 0, generation=3)

    assert [going_on] == world.executing_ids(S)
    world.finish_batch(S)
    assert not _is_drained(world)
    world.core.retire(wire.Retire(3))
    world.drain_outbox()
    assert _is_drained(world)
