"""Requests that are unanswered: limits of all, of a model and of a token, and times."""

from __future__ import annotations

import json

import pytest

from tests.broker.world import SECOND, BrokerHarness, F, S, request
from zmqtriton.broker.requests import limits
from zmqtriton_floor import wire
from zmqtriton_floor.errors import LimitExceeded, ProtocolError
from zmqtriton_floor.settings.broker import BrokerSettings, RequestLimits

# ------------------------------------------------------------------------------ limits
# Limits on unanswered requests, and the refusal of further ones.


FULL = "Exceeds maximum queue size"


START = wire.SEQUENCE_START


def _limited(limit: str = "", **settings: int) -> BrokerHarness:
    config = {"parameters": {"MAX_REQUESTS": {"string_value": limit}}} if limit else {}
    limits = BrokerSettings(limits=RequestLimits(**settings))
    world = BrokerHarness.serving(S, config=config, settings=limits)
    world.add_generation(2, config={"name": "n"})
    return world


@pytest.mark.row("L04")
def test_a_model_has_so_many_unanswered_and_no_more() -> None:
    world = _limited(limit="3")

    world.infer(F, *(request(own_id) for own_id in range(1, 6)))

    assert ([FULL, FULL], [FULL]) == (world.texts(1, 2, 3, 4, 5), world.texts(5))
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


@pytest.mark.parametrize("limit", ["many", "-1", "1e99", "nan"])
def test_what_is_no_number_limits_nothing(limit: str) -> None:
    world = _limited(limit=limit)

    world.infer(F, *(request(own_id) for own_id in range(1, 9)))

    assert [] == world.texts(*range(1, 9))


def test_who_asks_a_new_broker_again_is_admitted() -> None:
    world = _limited(limit="1")

    world.infer(F, *(request(own_id, flags=wire.RESENT) for own_id in (1, 2, 3)))

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
    parameters = {"MAX_REQUESTS": {"string_value": limit}}
    sequences = {"max_sequence_idle_microseconds": "1000000", "direct": {}}
    config = {"parameters": parameters, "sequence_batching": sequences}
    return BrokerHarness.serving(S, config=config)


BEFORE = (
    "inference request for sequence 7 to model 'm' must specify the START flag on the first "
    "request of the sequence, because an earlier one was lost: "
    "one of its requests was not executed: "
)


def test_a_sequence_whose_first_one_is_too_much_does_not_begin_with_its_second() -> None:
    world = _sequences("1")
    world.infer(F, _part(1, START), _part(2, START))

    world.finish_batch(S)
    world.infer(F, _part(3))

    assert [FULL, BEFORE + FULL] == world.texts(2, 3)
    assert not world.batched_requests[S]
    assert 0 == world.core.generations.by_number[1].unanswered


# ------------------------------------------------------------------------ token limits
# Limits of tokens, as the broker keeps them.


G = 3


@pytest.fixture(autouse=True)
def second_frontend(world: BrokerHarness) -> None:
    world.add_frontend(G)


def tell(
    world: BrokerHarness, serial: int, name: str, rate: float = 0, concurrency: int = 0
) -> None:
    allowed = {"requests_per_second": rate, "concurrency": concurrency}
    arguments = json.dumps({"name": name, "number": 1, **allowed})
    world.core.take_token(serial, wire.Call(0, "token", arguments))


def ask(world: BrokerHarness, serial: int, own_id: int, flags: int = 0) -> None:
    world.infer(serial, request(own_id, caller_id=1, flags=flags))


def refused(world: BrokerHarness, serial: int, own_id: int) -> bool:
    return LimitExceeded.number in [reply.code for reply in world.finals(serial, own_id)]


def test_a_rate_has_bursts_of_a_second_and_is_shared_by_all_frontends(world: BrokerHarness) -> None:
    for frontend in (F, G):
        tell(world, frontend, "night", rate=2)

    for serial, own_id in ((F, 1), (G, 1), (F, 2)):
        ask(world, serial, own_id)
    world.tick(SECOND // 2)
    ask(world, G, 2)
    ask(world, G, 3)

    got = [refused(world, *key) for key in ((F, 1), (G, 1), (F, 2), (G, 2), (G, 3))]
    assert [False, False, True, False, True] == got
    [reply] = world.finals(F, 2)
    assert "The token may ask 2 times a second, retry after 0.5 s" == reply.text
    assert {"token": 2} == world.core.generations.by_number[1].statistics.refusals
    [row] = world.core.limits.tokens.report()
    assert (3, 2) == (row["requests"], row["refused"])


def test_what_a_dead_frontend_asked_counts_no_more(world: BrokerHarness) -> None:
    for frontend in (F, G):
        tell(world, frontend, "night", concurrency=1)
    ask(world, F, 1)

    world.kill_peer(F)
    ask(world, G, 1)

    assert not refused(world, G, 1)


def test_what_an_earlier_broker_admitted_is_not_refused(world: BrokerHarness) -> None:
    tell(world, F, "night", concurrency=1)

    ask(world, F, 1, flags=wire.RESENT)
    ask(world, F, 2, flags=wire.RESENT)
    ask(world, F, 3)

    assert [False, False, True] == [refused(world, F, own_id) for own_id in (1, 2, 3)]


def test_beyond_a_number_of_names_tokens_are_told_of_as_one(
    world: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_TOKENS", 1)
    tell(world, F, "night")
    for name in ("day", "noon", "night"):
        tell(world, F, name, concurrency=1)
    ask(world, F, 1)
    tell(world, G, "day", concurrency=1)
    for own_id in (1, 2):
        ask(world, G, own_id)

    assert [False] * 3 == [refused(world, *key) for key in ((F, 1), (G, 1), (G, 2))]
    rows = {row["token"]: row["requests"] for row in world.core.limits.tokens.report()}
    assert {"night": 1, "other tokens": 2} == rows


@pytest.mark.parametrize("arguments", ["[]", "{}", "x", '{"name": "n", "number": "x"}'])
def test_nonsense_is_refused(world: BrokerHarness, arguments: str) -> None:
    with pytest.raises(ProtocolError):
        world.core.take_token(F, wire.Call(0, "token", arguments))


def test_a_model_cannot_tell_of_tokens(world: BrokerHarness) -> None:
    with pytest.raises(ProtocolError):
        tell(world, S, "n", rate=1000)

    assert [] == world.core.limits.tokens.report()


# ------------------------------------------------------------------------- stage times
# The stages of requests whose clients ask for them.


@pytest.mark.row("L21")
def test_a_request_that_asks_is_told_its_stages_and_no_other(world: BrokerHarness) -> None:
    world.infer(F, request(1))
    world.now += 5
    world.infer(F, request(2, flags=wire.WANT_STAGES))
    world.now += 40
    world.finish_batch(S)
    world.now += 10
    world.finish_batch(S)

    assert [(F, wire.StageTimes(2, 40, 1, 2, 3))] == world.stage_times


def test_before_its_batch_has_ended_the_time_since_it_began_counts(world: BrokerHarness) -> None:
    world.infer(F, request(1, flags=wire.WANT_STAGES))
    world.now += 70

    world.finish_batch(S, returned=False)

    assert [(F, wire.StageTimes(1, 0, 0, 70, 0))] == world.stage_times


def test_the_progress_of_a_request_goes_to_a_client_that_follows_it(world: BrokerHarness) -> None:
    world.infer(F, request(1, flags=wire.WANT_STAGES))
    world.finish_batch(S)
    world.infer(F, request(2, flags=wire.WANT_STAGES))

    for own_id in (1, 2, 3):
        world.core.pass_progress(S, wire.Progress(F, own_id, 400))
    assert [(F, wire.Progress(F, 2, 400))] == world.core.outbox.asides
    world.finish_batch(S)
    world.infer(F, request(4))
    world.core.pass_progress(S, wire.Progress(F, 4, 400))

    assert [] == world.core.outbox.asides
