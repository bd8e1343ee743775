"""Calls of models for requests, when nobody waits for those any more."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.broker.world import BrokerHarness, F, request
from zmqtriton_floor import wire
from zmqtriton_floor.settings.broker import OnDemand

#: A stub of each model, which has its number as its generation.
ASKER, MIDDLE, LEAF = 2, 3, 4
_BATCHES = {"max_batch_size": 4, "dynamic_batching": {}}
_CALLER_CANCELLED = "request was cancelled, because the one that it was made for was"


@pytest.fixture
def world() -> BrokerHarness:
    world = BrokerHarness()
    for number, name in ((ASKER, "asker"), (MIDDLE, "middle"), (LEAF, "leaf")):
        config = json.dumps({"name": name, **_BATCHES})
        world.core.add_generation(wire.AddGeneration(number, name, 1, config))
        world.add_stub(number, number)
    world.add_frontend(F)
    return world


def call(own_id: int, model: str, caller: tuple[int, int], **fields: Any) -> wire.Request:
    peer, number = caller
    return request(own_id, 0, model=model, caller_peer=peer, caller_id=number)._replace(**fields)


def early(world: BrokerHarness, peer: int, own_id: int) -> list[tuple[int, str]]:
    """Return the codes and texts of what came before the final reply."""
    replies = world.replies.get((peer, own_id), [])
    return [(one.code, one.text) for one in replies if one.flags & wire.ABANDONED]


def cancelled(world: BrokerHarness) -> list[tuple[int, int, int]]:
    return [(serial, *key) for serial, key in world.cancelled_executions]


def test_what_waits_for_its_model_to_be_loaded_waits_no_longer(world: BrokerHarness) -> None:
    world.core.waiting_for_load.configure(OnDemand(True, 60.0))
    world.infer(F, request(1, ASKER))
    world.infer(ASKER, call(7, "absent", (F, 1)), call(8, "absent", (0, 0)))
    assert [] == world.finals(ASKER, 7)

    world.cancel(F, 1)

    assert [_CALLER_CANCELLED] == [reply.text for reply in world.finals(ASKER, 7)]
    assert [] == world.finals(ASKER, 8)


def test_a_batch_needs_what_it_has_asked_until_all_of_it_is_cancelled(world: BrokerHarness) -> None:
    world.infer(F, request(1, ASKER), request(2, ASKER), request(3, ASKER))
    assert 1 == len({work.batch for work in world.batched_requests[ASKER]})
    world.infer(ASKER, call(7, "leaf", (F, 2)))

    world.cancel(F, 1, 3)
    assert [] == early(world, ASKER, 7)

    world.cancel(F, 2)
    assert 1 == len(early(world, ASKER, 7))


def test_answered_requests_of_a_batch_need_it_no_more(world: BrokerHarness) -> None:
    world.infer(F, request(1, ASKER), request(2, ASKER))
    world.infer(ASKER, call(7, "leaf", (F, 2)))
    answer = wire.Results([wire.Outcome(F, 1, 0, "", wire.FINAL)], [])
    world.core.results(ASKER, answer, [b""], world.now)

    world.cancel(F, 2)

    assert 1 == len(early(world, ASKER, 7))


def test_of_other_peers_requests_nobody_can_ask_for_the_cancellation(world: BrokerHarness) -> None:
    """A stub names a request that it does not have, and a frontend names any."""
    world.infer(F, request(1, ASKER), request(2, MIDDLE, caller_peer=F, caller_id=1))
    world.infer(MIDDLE, call(7, "leaf", (F, 1)))

    world.cancel(F, 1)

    assert [(ASKER, F, 1)] == cancelled(world)


def test_a_call_that_was_given_up_proves_no_deadlock(world: BrokerHarness) -> None:
    """Its asker, which has one instance, may go on and answer others."""
    world.infer(F, request(1, ASKER, deadline_ns=5_000))
    blocking = wire.CALLER_BLOCKS | wire.ONE_RESPONSE
    world.infer(ASKER, call(7, "middle", (F, 1), deadline_ns=5_000, flags=blocking))
    world.tick(10_000)

    world.infer(MIDDLE, call(9, "asker", (ASKER, 7), flags=wire.ONE_RESPONSE))
    world.infer(MIDDLE, call(10, "asker", (0, 0), flags=blocking))

    assert [_CALLER_CANCELLED] == [reply.text for reply in world.finals(MIDDLE, 9)]
    assert [] == world.finals(MIDDLE, 10), "it waits for an instance that will be free"
