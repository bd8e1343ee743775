"""Tens of thousands of sequences that begin and do not end: what they cost, and when it is over."""

from __future__ import annotations

import json

from tests.broker.sequence_world import IDLE_NS, F, S, SequenceHarness, sequence_config
from zmqtriton.broker.sequences.controls import FIRST_PADDING_ID
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InvalidArgument, Unavailable
from zmqtriton_floor.wire import SEQUENCE_START as START

MANY = 12_000


def _flood(world: SequenceHarness, count: int = MANY) -> list[int]:
    return [world.send(number, START) for number in range(1, count + 1)]


def _kept(world: SequenceHarness) -> int:
    """Return what the broker keeps of sequences and requests."""
    sequences = world.core.generations.schedulers[1].sequences
    assert sequences is not None
    waiting = len(sequences._left)
    waiting += len(sequences.assignment._backlog) + len(sequences.assignment._expiries)
    return (
        len(sequences._sequences)
        + len(sequences._idle)
        + waiting
        + len(world.core.peers[F].requests)
    )


def test_each_gets_its_slot_when_those_before_it_have_been_idle() -> None:
    world = SequenceHarness(sequence_config(slots=4))
    ids = _flood(world, 2000)
    answered = 0

    while answered < len(ids):
        began = [work for work in world.finish_batch(S) if work.id < FIRST_PADDING_ID]
        assert 1 <= len(began) <= 4
        answered += len(began)
        world.tick(IDLE_NS + 1)

    assert all(not final.code for own_id in ids for final in world.finals(F, own_id))
    assert 0 == _kept(world)


def test_nothing_is_kept_of_those_whose_clients_leave() -> None:
    world = SequenceHarness(sequence_config(slots=4))
    ids = _flood(world)

    world.cancel(F, *ids)
    world.finish_batch(S)
    world.tick(IDLE_NS + 1)

    assert 0 == _kept(world)
    later = world.send(1, START)
    assert [later] == world.executing_ids()


def test_those_that_wait_too_long_are_refused_and_nothing_is_kept() -> None:
    world = SequenceHarness(sequence_config())
    ids = [world.send(number, START, timeout_us=1000) for number in range(1, MANY + 1)]

    world.tick(2_000_000)

    refused = [own_id for own_id in ids if world.finals(F, own_id)]
    assert MANY - 1 == len(refused)
    assert {Unavailable.number} == {world.error(own_id)[0] for own_id in refused}
    world.finish_batch(S)
    world.tick(IDLE_NS + 1)
    assert 0 == _kept(world)


def test_beyond_the_bound_of_the_model_they_are_refused_at_once_and_counted() -> None:
    config = {**sequence_config(), "parameters": {"max_requests": {"string_value": "100"}}}
    world = SequenceHarness(config)

    ids = _flood(world)

    refused = [own_id for own_id in ids if world.finals(F, own_id)]
    assert MANY - 100 == len(refused)
    code, text = world.error(refused[0])
    assert (Unavailable.number, True) == (code, text.endswith("Exceeds maximum queue size"))
    world.core.ask_statistics(F, wire.AskStatistics(5, "m", -1), 0, world.now)
    world.drain_outbox()
    statistics = world.supervisor_messages[-1]
    assert isinstance(statistics, wire.Statistics)
    [row] = json.loads(statistics.result)["model_stats"]
    assert MANY - 100 == int(row["inference_stats"]["fail"]["count"])


def test_of_those_that_are_lost_only_so_many_are_remembered() -> None:
    world = SequenceHarness(sequence_config(slots=1))
    ids = _flood(world)

    world.cancel(F, *ids[1:])

    assert InvalidArgument.number == world.error(world.send(MANY))[0]
    assert "was lost" in world.error(world.send(MANY))[1]
    assert "was lost" not in world.error(world.send(2))[1]
