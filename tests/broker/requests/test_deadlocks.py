"""Requests of models, and those that wait for each other."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.ensemble_world import ensemble, step, tensor
from tests.broker.world import S2, S3, BrokerHarness, F, Page, S, request
from zmqtriton_floor import wire
from zmqtriton_floor.errors import Unsupported

# --------------------------------------------------------------------------- deadlocks
# Circles of models that wait for each other: those that say so, and those that are asked.


_DECOUPLED = {"name": "m", "model_transaction_policy": {"decoupled": True}}


_MS = 1_000_000


_SOON = 150 * _MS


def _asks(own_id: int, generation: int) -> wire.Request:
    return request(own_id, generation, flags=wire.CALLER_BLOCKS)


def _is_refused(world: BrokerHarness, peer: int, own_id: int, circle: str) -> bool:
    [final] = world.finals(peer, own_id)
    return final.text.endswith(f"BLS calls would deadlock: {circle}")


@pytest.fixture
def busy_pair() -> BrokerHarness:
    """Two models with one instance each: m with S, which executes a request, and other with S2."""
    world = BrokerHarness.serving(S, has_pages=True)
    world.add_generation(2, config={"name": "other"})
    world.add_stub(S2, generation=2, page=Page())
    world.infer(F, request(1))
    return world


def test_a_model_that_waits_for_itself_is_told(busy_pair: BrokerHarness) -> None:
    busy_pair.infer(S, _asks(1, 1))

    assert _is_refused(busy_pair, S, 1, "m -> m")


def test_a_circle_of_two_is_told_at_its_end(busy_pair: BrokerHarness) -> None:
    busy_pair.infer(S, _asks(1, 2))

    busy_pair.infer(S2, _asks(1, 1))

    assert _is_refused(busy_pair, S2, 1, "m -> other -> m")
    assert [] == busy_pair.finals(S, 1)


def test_an_instance_that_is_still_to_come_may_open_the_circle() -> None:
    world = BrokerHarness.serving(S, config={"instance_group": [{"count": 2}]}, has_pages=True)
    world.infer(F, request(1))

    world.infer(S, _asks(1, 1))
    assert [] == world.finals(S, 1)

    world.add_stub(S2, page=Page())
    assert [1] == world.executing(S2)


def test_an_instance_that_is_free_helps_no_call_that_is_executed_by_another() -> None:
    world = BrokerHarness.serving(S, S3, config={"instance_group": [{"count": 2}]}, has_pages=True)
    world.add_generation(2, config={"name": "other"})
    world.add_stub(S2, generation=2, page=Page())
    world.infer(F, request(1, 2))
    world.infer(S2, _asks(1, 1))
    [executor] = [serial for serial in (S, S3) if world.executing(serial)]

    world.infer(executor, _asks(1, 2))

    assert _is_refused(world, executor, 1, "other -> m -> other")


def test_an_ensemble_within_the_circle_is_seen_through() -> None:
    world = BrokerHarness.serving(S, has_pages=True)
    world.add_generation(2, config=ensemble([step("m", {"A": "x"}, {"B": "y"})], "whole"))
    world.infer(F, request(1))
    body = wire.RequestBody("", {}, [], [tensor("x", bytes(16))])

    world.infer(S, _asks(1, 2), body=wire.encode_body(body))

    [final] = world.finals(S, 1)
    assert "BLS calls would deadlock: m -> whole -> m" in final.text


# ------------------------------------------------------------------- what processes say
def _says(world: BrokerHarness, serial: int, *awaits: wire.WaitEdge) -> None:
    world.core.deadlocks.take_report(serial, wire.WaitReport(list(awaits)), world.now)
    world.drain_outbox()


def _count_reports(world: BrokerHarness) -> int:
    """Return how often processes were asked since the last time."""
    count = sum(type(message) is wire.WaitReport for message in world.supervisor_messages)
    world.supervisor_messages.clear()
    return count


def test_a_model_that_waits_for_itself_is_told_when_it_says_so(busy_pair: BrokerHarness) -> None:
    busy_pair.infer(S, request(1))

    assert 0 == _count_reports(busy_pair)
    busy_pair.tick(_SOON)
    assert (1, []) == (_count_reports(busy_pair), busy_pair.finals(S, 1))
    _says(busy_pair, S, wire.WaitEdge(0, 1, 0))

    assert _is_refused(busy_pair, S, 1, "m -> m")
    assert {"deadlock": 1} == busy_pair.core.generations.by_number[1].statistics.refusals


def test_who_says_nothing_is_asked_again_and_less_and_less_often(busy_pair: BrokerHarness) -> None:
    busy_pair.infer(S, request(1))

    for _ in range(100):
        busy_pair.tick(_SOON)
        _says(busy_pair, S)

    assert 5 < _count_reports(busy_pair) < 20
    assert [] == busy_pair.finals(S, 1)


def test_two_models_are_both_asked(busy_pair: BrokerHarness) -> None:
    busy_pair.infer(S, request(1, 2))
    busy_pair.infer(S2, request(1, 1))
    busy_pair.tick(_SOON)
    assert 2 == _count_reports(busy_pair)

    _says(busy_pair, S, wire.WaitEdge(0, 1, 0))
    assert [] == busy_pair.finals(S2, 1)
    _says(busy_pair, S2, wire.WaitEdge(0, 1, 0))

    assert _is_refused(busy_pair, S2, 1, "m -> other -> m")
    assert [] == busy_pair.finals(S, 1)


# ------------------------------------------------------------------------ bls requests
# Requests that models make: by name, unchecked, and in ignorance of the other's configuration.


ASKER = 9


_WHERE = "Model m - Error when running inference: "


def _ask(own_id: int, **fields: Any) -> wire.Request:
    return request(own_id, generation=0, **{"model": "m", **fields})


def _become_asker(world: BrokerHarness) -> None:
    world.core.expect(wire.ExpectPeer(ASKER, b"t" * 16, "stub", "other_0", 0))


@pytest.mark.parametrize(("max_batch_size", "elements"), [(8, 5), (0, 1)])
def test_the_first_dimension_counts_as_a_batch_only_where_the_model_batches(
    max_batch_size: int, elements: int
) -> None:
    world = BrokerHarness.serving(S, config={"max_batch_size": max_batch_size})
    _become_asker(world)

    world.infer(ASKER, _ask(1, batch_size=5, batch_key=77))
    [work] = world.finish_batch(S)

    assert wire.UNCHECKED == work.flags
    assert (
        elements
        == world.core.generations.by_number[1].statistics.as_dict("m", 1, 0, 0)["inference_count"]
    )


def test_one_response_is_never_asked_of_a_decoupled_model() -> None:
    world = BrokerHarness.serving(S, config=_DECOUPLED)
    _become_asker(world)

    world.infer(ASKER, _ask(1, flags=wire.ONE_RESPONSE), _ask(2))

    [reply] = world.finals(ASKER, 1)
    assert Unsupported.number == reply.code
    assert reply.text.startswith(f"{_WHERE}Model m is using the decoupled. ")
    assert [2] == world.executing(S)
