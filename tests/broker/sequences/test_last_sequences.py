"""A server that stops: the broker says when no client has a sequence left to go on with."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.broker.ensemble_world import ensemble, step
from tests.broker.sequence_world import BODY, IDLE_NS, S2, F, S, SequenceHarness, sequence_config
from tests.broker.world import request
from zmqtriton_floor import wire
from zmqtriton_floor.wire import SEQUENCE_END as END
from zmqtriton_floor.wire import SEQUENCE_START as START


class Stopping(SequenceHarness):
    def stop(self) -> None:
        self.core.retire(wire.Retire(0))
        self.drain_outbox()

    def said_over(self) -> int:
        """Return how often the broker has said that none is open."""
        self.tick(0)
        return self.supervisor_messages.count(wire.Drained(0))


def _begun(**batching: Any) -> Stopping:
    """Sequence 5 has begun, and nothing of it is under way."""
    world = Stopping(sequence_config(**batching))
    world.send(5, START)
    world.finish_batch(S)
    return world


def test_where_no_sequence_is_open_none_is_waited_for() -> None:
    world = Stopping(sequence_config())
    world.send(5, START | END)

    world.stop()

    assert 1 == world.said_over()


@pytest.mark.row("E78")
def test_an_open_sequence_goes_on_until_its_end_has_come() -> None:
    world = _begun()
    world.stop()

    going_on = world.send(5)
    assert ([going_on], 0) == (world.executing_ids(), world.said_over())
    world.finish_batch(S)
    last = world.send(5, END)

    assert ([last], 1) == (world.executing_ids(), world.said_over())
    world.finish_batch(S)
    assert 1 == world.said_over(), "it is said once"


@pytest.mark.row("E78")
def test_an_idle_sequence_is_waited_for_no_longer_than_it_may_be_idle() -> None:
    world = _begun()
    world.stop()
    world.tick(IDLE_NS - 1)
    assert 0 == world.said_over()

    world.tick(1)

    assert 1 == world.said_over()


def test_one_that_waits_for_a_slot_is_open_too() -> None:
    world = _begun()
    world.send(6, START)
    world.stop()

    world.send(5, END)
    world.finish_batch(S)
    assert 0 == world.said_over()
    world.finish_batch(S)
    world.send(6, END)

    assert 1 == world.said_over()


def test_one_that_is_lost_with_its_stub_is_not_waited_for() -> None:
    world = _begun()
    world.stop()

    world.kill_peer(S)

    assert 1 == world.said_over()


def test_a_broker_that_takes_over_knows_of_none() -> None:
    world = Stopping(sequence_config(), epoch=2)

    world.stop()

    assert 1 == world.said_over()


def test_one_of_a_model_that_was_loaded_anew_is_waited_for() -> None:
    world = _begun()
    world.add_generation(2, config=sequence_config())
    world.add_stub(S2, generation=2)
    world.core.retire(wire.Retire(1))
    world.stop()
    assert 0 == world.said_over()

    world.send(5, END, generation=2)

    assert 1 == world.said_over()


def test_what_only_a_model_could_go_on_with_is_not_waited_for() -> None:
    world = Stopping(sequence_config(), S)
    world.add_generation(2, config={"name": "m"})
    world.add_stub(S2, generation=2)

    world.infer(S2, request(1, 1, correlation=5, flags=START), body=BODY)
    world.finish_batch(S)
    world.stop()

    assert 1 == world.said_over()


def test_a_sequence_behind_an_ensemble_is_the_client_s() -> None:
    world = Stopping(sequence_config())
    config = ensemble([step("m", {"I": "x"}, {"O": "y"})])
    world.core.add_generation(wire.AddGeneration(2, "e", 1, json.dumps(config)))
    body = wire.encode_body(wire.RequestBody("", {}, [], [wire.Tensor("x", 8, [1, 2], bytes(8))]))

    world.infer(F, request(1, 2, correlation=5, flags=START), body=body)
    [work] = world.batched_requests[S]
    assert 0 == work.peer
    world.finish_batch(S)
    world.stop()

    assert 0 == world.said_over()
