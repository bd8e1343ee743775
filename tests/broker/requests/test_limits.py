"""Limits on unanswered requests, and the refusal of further ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.broker.world import S2, BrokerHarness, F, S, request
from zmqtriton_floor import wire
from zmqtriton_floor.settings.broker import BrokerSettings, RequestLimits

FULL = "Exceeds maximum queue size"
START, END = wire.SEQUENCE_START, wire.SEQUENCE_END


def _limited(limit: str = "", **settings: int) -> BrokerHarness:
    world = BrokerHarness()
    world.core.configure(1, BrokerSettings(limits=RequestLimits(**settings)))
    config: dict[str, Any] = {"name": "m"}
    if limit:
        config["parameters"] = {"MAX_REQUESTS": {"string_value": limit}}
    world.add_generation(config=config)
    world.core.add_generation(wire.AddGeneration(2, "n", 1, json.dumps({"name": "n"})))
    world.add_frontend(F)
    world.add_stub(S)
    return world


@pytest.mark.row("L04")
def test_a_model_has_so_many_unanswered_and_no_more() -> None:
    world = _limited(limit="3")

    world.infer(F, *(request(own_id) for own_id in range(1, 6)))

    assert [FULL, FULL] == world.texts(1, 2, 3, 4, 5)
    assert [FULL] == world.texts(5)
    world.finish_batch(S)
    world.infer(F, request(6), request(7))
    assert [FULL] == world.texts(6, 7)
    world.infer(F, request(8, 2))
    assert [] == world.texts(8)


@pytest.mark.row("L04")
def test_the_server_has_so_many_unanswered_and_no_more() -> None:
    world = _limited(max_requests=2)

    world.infer(F, request(1), request(2, 2), request(3), request(4, 2))

    assert [FULL, FULL] == world.texts(1, 2, 3, 4)
    world.cancel(F, 2)
    world.infer(F, request(5))
    assert [] == world.texts(5)


def test_a_model_s_own_number_counts_before_the_server_s_for_all_models() -> None:
    world = _limited(limit="0", max_model_requests=1)

    world.infer(F, request(1), request(2), request(3, 2), request(4, 2))

    assert [FULL] == world.texts(1, 2, 3, 4)


@pytest.mark.parametrize("limit", ["many", "-1", "1e99", "nan"])
def test_what_is_no_number_limits_nothing(limit: str) -> None:
    world = _limited(limit=limit)

    world.infer(F, *(request(own_id) for own_id in range(1, 9)))

    assert [] == world.texts(*range(1, 9))


def test_what_an_admitted_request_needs_is_admitted() -> None:
    world = _limited(max_requests=1)
    world.add_stub(S2, 2)
    world.infer(F, request(1))

    world.infer(S, request(1, 0, model="n"))

    assert [1] == world.executing(S2)


def test_who_asks_a_new_broker_again_is_admitted() -> None:
    world = _limited(limit="1")

    rows = [request(own_id, flags=wire.RESENT) for own_id in (1, 2, 3)]
    world.infer(F, *rows)

    assert [] == world.texts(1, 2, 3)


def test_the_refused_are_counted() -> None:
    world = _limited(limit="1")

    world.infer(F, request(1), request(2), request(3))
    document = world.statistics()

    [entry] = document["model_stats"]
    assert 2 == entry["zmqtriton"]["failures"]["REJECTED"]
    assert 2 == entry["inference_stats"]["fail"]["count"]
    assert (2, 1) == (document["zmqtriton"]["refused"], document["zmqtriton"]["unanswered"])


def _part(own_id: int, flags: int = 0) -> wire.Request:
    return request(own_id, correlation=7, flags=flags)


def _sequences(limit: str) -> BrokerHarness:
    world = BrokerHarness()
    parameters = {"MAX_REQUESTS": {"string_value": limit}}
    sequences = {"max_sequence_idle_microseconds": "1000000", "direct": {}}
    world.add_generation(
        config={"name": "m", "parameters": parameters, "sequence_batching": sequences}
    )
    world.add_frontend(F)
    world.add_stub(S)
    return world


BEFORE = (
    "inference request for sequence 7 to model 'm' must specify the START flag on the first "
    "request of the sequence, because an earlier one was lost: "
    "one of its requests was not executed: "
)


def test_a_sequence_of_which_one_is_too_much_does_not_go_on_without_it() -> None:
    world = _sequences("2")
    world.infer(F, _part(1, START), _part(2), _part(3))

    world.finish_batch(S)
    world.infer(F, _part(4))

    assert [FULL, BEFORE + FULL] == world.texts(3, 4)
    assert [2] == world.executing(S)
    world.finish_batch(S)
    world.infer(F, _part(5, START), _part(6, END))
    assert [5] == world.executing(S)
    world.finish_batch(S)
    assert [6] == world.executing(S)


def test_a_sequence_whose_first_one_is_too_much_does_not_begin_with_its_second() -> None:
    world = _sequences("1")
    world.infer(F, _part(1, START), _part(2, START))

    world.finish_batch(S)
    world.infer(F, _part(3))

    assert [FULL, BEFORE + FULL] == world.texts(2, 3)
    assert not world.batched_requests[S]
    assert 0 == world.core.generations[1].unanswered
