"""The memory of dead processes: the supervisor hears which segments are still leased."""

from __future__ import annotations

import pytest

from tests.broker.world import S2, BrokerHarness, S, request
from zmqtriton_floor import wire
from zmqtriton_floor.wire import Block

A = Block(S2, 1, 1)


@pytest.fixture
def world(world: BrokerHarness) -> BrokerHarness:
    """S2, whose blocks others hold, dies."""
    world.add_generation(2, config={"name": "other"})
    world.add_stub(S2, 2)
    return world


def _take_messages(world: BrokerHarness) -> list[list[int]]:
    """Return the segments of S2 that are leased, as the supervisor was told since the last call."""
    world.tick(0)
    messages, world.leased_segments = world.leased_segments, []
    return [message.segments for message in messages if message.owner == S2]


def test_of_a_process_that_has_lent_nothing_nothing_is_kept(world: BrokerHarness) -> None:
    world.kill_peer(S2)

    assert [[]] == _take_messages(world)
    assert S2 not in world.core.blocks.dead


def test_the_inputs_of_a_dead_caller_are_kept_until_its_request_has_ended(
    world: BrokerHarness,
) -> None:
    tensor = wire.Tensor("I", 11, [25_000], wire.Reference(*A, 0, 100_000))
    world.infer(S2, request(1), body=wire.encode_body(wire.RequestBody("", {}, [], [tensor])))

    world.kill_peer(S2)
    assert [[1]] == _take_messages(world)

    world.finish_batch(S)
    assert [[]] == _take_messages(world)
