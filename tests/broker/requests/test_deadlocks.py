"""Requests of models, and those that wait for each other."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.ensemble_world import ensemble, step, tensor
from tests.broker.world import S2, S3, BrokerHarness, F, Page, S, request
from zmqtriton_floor import wire
from zmqtriton_floor.errors import Unavailable, Unsupported

# --------------------------------------------------------------------------- deadlocks
# Circles of models that wait for each other: those that say so, and those that are asked.


_DECOUPLED = {"name": "m", "model_transaction_policy": {"decoupled": True}}


_MS = 1_000_000


_SOON = 150 * _MS


def _pair(config: dict[str, Any] | None = None) -> BrokerHarness:
    """Two models with one instance each: m with S, and other with S2."""
    world = BrokerHarness.serving(config=config)
    world.add_generation(2, config={"name": "other"})
    world.add_stub(S, page=Page())
    world.add_stub(S2, generation=2, page=Page())
    return world


@pytest.fixture
def pair() -> BrokerHarness:
    return _pair()


def _asks(own_id: int, generation: int) -> wire.Request:
    return request(own_id, generation, flags=wire.CALLER_BLOCKS)


def _is_refused(world: BrokerHarness, peer: int, own_id: int, circle: str) -> bool:
    [final] = world.finals(peer, own_id)
    return final.text.endswith(f"BLS calls would deadlock: {circle}")


@pytest.fixture
def busy_pair(pair: BrokerHarness) -> BrokerHarness:
    """The pair, with a request that m executes."""
    pair.infer(F, request(1))
    return pair


def test_a_model_that_waits_for_itself_is_told(busy_pair: BrokerHarness) -> None:
    busy_pair.infer(S, _asks(1, 1))

    assert _is_refused(busy_pair, S, 1, "m -> m")


def test_a_circle_of_two_is_told_at_its_end(busy_pair: BrokerHarness) -> None:
    busy_pair.infer(S, _asks(1, 2))

    busy_pair.infer(S2, _asks(1, 1))

    assert _is_refused(busy_pair, S2, 1, "m -> other -> m")
    assert [] == busy_pair.finals(S, 1)


def test_who_does_not_wait_closes_no_circle(busy_pair: BrokerHarness) -> None:
    busy_pair.infer(S, request(1, 1))

    assert [] == busy_pair.finals(S, 1)
    busy_pair.finish_batch(S)
    assert [1] == busy_pair.executing(S)


def test_a_wait_that_is_over_closes_no_circle(busy_pair: BrokerHarness) -> None:
    busy_pair.infer(S, _asks(1, 2))
    busy_pair.finish_batch(S2)
    busy_pair.infer(F, request(2, 2))

    busy_pair.infer(S2, _asks(1, 1))

    assert [] == busy_pair.finals(S2, 1)


def test_an_instance_that_is_still_to_come_may_open_the_circle() -> None:
    world = BrokerHarness.serving(S, config={"instance_group": [{"count": 2}]}, has_pages=True)
    world.infer(F, request(1))

    world.infer(S, _asks(1, 1))
    assert [] == world.finals(S, 1)

    world.add_stub(S2, page=Page())
    assert [1] == world.executing(S2)


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


def test_nobody_is_asked_about_what_runs_or_can_run(pair: BrokerHarness) -> None:
    pair.infer(F, request(1), request(2, 2))
    pair.infer(S, request(1, 2))  # behind the other model's own work

    pair.tick(_SOON)

    assert 0 == _count_reports(pair)
    pair.finish_batch(S2)
    pair.tick(10 * _SOON)
    assert 0 == _count_reports(pair)


def test_a_model_that_waits_for_itself_is_told_when_it_says_so(busy_pair: BrokerHarness) -> None:
    busy_pair.infer(S, request(1))

    assert 0 == _count_reports(busy_pair)
    busy_pair.tick(_SOON)
    assert 1 == _count_reports(busy_pair)
    assert [] == busy_pair.finals(S, 1)
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


def test_one_that_waits_for_either_of_two_goes_on_with_the_other(busy_pair: BrokerHarness) -> None:
    busy_pair.infer(S, request(1, 1), request(2, 2))
    busy_pair.tick(_SOON)

    _says(busy_pair, S, wire.WaitEdge(0, 1, 0), wire.WaitEdge(0, 2, 0))
    assert [] == busy_pair.finals(S, 1)
    busy_pair.finish_batch(S2)
    assert [] == busy_pair.finals(S, 1)  # it has an answer now, and may do without this one

    _says(busy_pair, S, wire.WaitEdge(0, 1, 0))
    assert _is_refused(busy_pair, S, 1, "m -> m")


def test_what_was_said_before_a_reply_does_not_count() -> None:
    """The stub had a response when it said so, which had not even come by here, or the reverse."""
    world = _pair(_DECOUPLED)
    world.infer(F, request(1))
    world.infer(S, request(1, 1))
    world.tick(_SOON)

    _says(world, S, wire.WaitEdge(0, 1, 1))
    assert [] == world.finals(S, 1)

    _says(world, S, wire.WaitEdge(0, 7, 0))
    assert [] == world.finals(S, 1)

    _says(world, S, wire.WaitEdge(0, 1, 0))
    assert _is_refused(world, S, 1, "m -> m")


def test_what_was_said_ends_with_the_batch(pair: BrokerHarness) -> None:
    pair.infer(F, request(1), request(2))
    pair.infer(S, request(1, 2))
    _says(pair, S, wire.WaitEdge(0, 1, 0))

    pair.finish_batch(S)  # it had given up waiting
    pair.infer(S2, request(1, 1))
    pair.tick(_SOON)

    assert [] == pair.finals(S2, 1)


def test_a_batch_that_runs_beside_one_that_waits_leaves_room() -> None:
    config = {"parameters": {"MAX_INFLIGHT": {"string_value": "2"}}}
    world = BrokerHarness.serving(S, config=config, has_pages=True, concurrency=2)
    world.infer(F, request(1), request(2))
    first, second = [work.batch for work in world.batched_requests[S]]
    world.infer(S, request(1), request(2))
    world.tick(_SOON)

    _says(world, S, wire.WaitEdge(first, 1, 0))
    assert [] == world.finals(S, 1)

    _says(world, S, wire.WaitEdge(first, 1, 0), wire.WaitEdge(second, 2, 0))
    refused = [own_id for own_id in (1, 2) if world.finals(S, own_id)]
    assert 1 == len(refused)  # and then the other one finds room


def test_nothing_is_sent_ahead_to_who_has_open_questions(pair: BrokerHarness) -> None:
    for own_id in range(1, 4):
        pair.infer(F, request(own_id))
        pair.finish_batch(S)
    pair.infer(F, request(4))

    pair.infer(S, request(1, 1))

    assert [4] == pair.executing(S)


# ------------------------------------------------------------------------ bls requests
# Requests that models make: by name, unchecked, and in ignorance of the other's configuration.


ASKER = 9


_WHERE = "Model m - Error when running inference: "


_NOT_READY = f"{_WHERE}Failed for execute the inference request. Model 'm' is not ready."


def _ask(own_id: int, **fields: Any) -> wire.Request:
    return request(own_id, generation=0, **{"model": "m", **fields})


def _become_asker(world: BrokerHarness) -> None:
    world.core.expect(wire.ExpectPeer(ASKER, b"t" * 16, "stub", "other_0", 0))


@pytest.fixture
def asker(world: BrokerHarness) -> BrokerHarness:
    """The server, in which m asks."""
    _become_asker(world)
    return world


def test_the_highest_version_that_is_ready_is_asked(asker: BrokerHarness) -> None:
    asker.add_generation(generation=2, version=3)
    asker.add_generation(generation=3, version=4)
    asker.retire(3)
    asker.add_stub(S3, generation=2)

    asker.infer(ASKER, _ask(1))

    assert [1] == asker.executing(S3)


def test_a_version_may_be_named(asker: BrokerHarness) -> None:
    asker.add_generation(generation=2, version=3)

    asker.infer(ASKER, _ask(1, version=1), _ask(2, version=2))

    assert [1] == asker.executing(S)
    assert [_NOT_READY] == [r.text for r in asker.finals(ASKER, 2)]


@pytest.mark.parametrize("name", ["x", ""])
def test_a_model_that_does_not_exist_is_not_ready(asker: BrokerHarness, name: str) -> None:
    asker.infer(ASKER, _ask(1, model=name))

    [reply] = asker.finals(ASKER, 1)
    assert (Unavailable.number, True) == (reply.code, f"Model '{name}' is not ready." in reply.text)


def test_only_what_a_model_asks_is_marked_as_unchecked(asker: BrokerHarness) -> None:
    asker.infer(ASKER, _ask(1, flags=wire.SEQUENCE_START))
    asker.finish_batch(S)
    asker.infer(F, request(1, flags=wire.SEQUENCE_START))

    assert [wire.SEQUENCE_START] == [w.flags for w in asker.batched_requests[S]]


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


def test_what_a_dead_model_has_asked_is_cancelled(asker: BrokerHarness) -> None:
    asker.infer(ASKER, _ask(1), _ask(2))

    asker.kill_peer(ASKER)

    assert [(S, wire.RequestKey(ASKER, 1))] == asker.cancelled_executions
    asker.finish_batch(S)
    assert 0 == asker.core.limits.unanswered
