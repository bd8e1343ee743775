"""Requests that models make: by name, unchecked, and in ignorance of the other's configuration."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.world import S3, BrokerHarness, F, S, request
from zmqtriton_floor import wire
from zmqtriton_floor.errors import Unavailable, Unsupported

ASKER = 9
_WHERE = "Model m - Error when running inference: "
_NOT_READY = f"{_WHERE}Failed for execute the inference request. Model 'm' is not ready."


def _ask(own_id: int, **fields: Any) -> wire.Request:
    return request(own_id, generation=0, **{"model": "m", **fields})


def _become_asker(world: BrokerHarness) -> None:
    world.core.expect(wire.ExpectPeer(ASKER, b"t" * 16, "stub", "other_0", 0))


def test_the_highest_version_that_is_ready_is_asked(world: BrokerHarness) -> None:
    _become_asker(world)
    world.add_generation(generation=2, version=3)
    world.add_generation(generation=3, version=4)
    world.core.retire(wire.Retire(3))
    world.add_stub(S3, generation=2)

    world.infer(ASKER, _ask(1))

    assert [1] == world.executing(S3)


def test_a_version_may_be_named(world: BrokerHarness) -> None:
    _become_asker(world)
    world.add_generation(generation=2, version=3)

    world.infer(ASKER, _ask(1, version=1), _ask(2, version=2))

    assert [1] == world.executing(S)
    assert [_NOT_READY] == [r.text for r in world.finals(ASKER, 2)]


@pytest.mark.parametrize("name", ["x", ""])
def test_a_model_that_does_not_exist_is_not_ready(world: BrokerHarness, name: str) -> None:
    _become_asker(world)

    world.infer(ASKER, _ask(1, model=name))

    [reply] = world.finals(ASKER, 1)
    assert (Unavailable.number, True) == (reply.code, f"Model '{name}' is not ready." in reply.text)


def test_only_what_a_model_asks_is_marked_as_unchecked(world: BrokerHarness) -> None:
    _become_asker(world)

    world.infer(ASKER, _ask(1, flags=wire.SEQUENCE_START))
    world.finish_batch(S)
    world.infer(F, request(1, flags=wire.SEQUENCE_START))

    assert [wire.SEQUENCE_START] == [w.flags for w in world.batched_requests[S]]


@pytest.mark.parametrize(("max_batch_size", "elements"), [(8, 5), (0, 1)])
def test_the_first_dimension_counts_as_a_batch_only_where_the_model_batches(
    max_batch_size: int, elements: int
) -> None:
    world = BrokerHarness()
    world.add_generation(config={"name": "m", "max_batch_size": max_batch_size})
    world.add_stub(S)
    _become_asker(world)

    world.infer(ASKER, _ask(1, batch_size=5, batch_key=77))
    [work] = world.finish_batch(S)

    assert wire.UNCHECKED == work.flags
    counted = world.core.generations[1].statistics.as_dict("m", 1, 0, 0)
    assert elements == counted["inference_count"]


def test_one_response_is_never_asked_of_a_decoupled_model() -> None:
    world = BrokerHarness()
    world.add_generation(config={"name": "m", "model_transaction_policy": {"decoupled": True}})
    world.add_stub(S)
    _become_asker(world)

    world.infer(ASKER, _ask(1, flags=wire.ONE_RESPONSE), _ask(2))

    [reply] = world.finals(ASKER, 1)
    assert Unsupported.number == reply.code
    assert reply.text.startswith(f"{_WHERE}Model m is using the decoupled. ")
    assert [2] == world.executing(S)


def test_what_a_dead_model_has_asked_is_cancelled(world: BrokerHarness) -> None:
    _become_asker(world)
    world.infer(ASKER, _ask(1), _ask(2))

    world.kill_peer(ASKER)

    assert [(S, wire.RequestKey(ASKER, 1))] == world.cancelled_executions
    world.finish_batch(S)
    assert 0 == world.core.limits.unanswered
