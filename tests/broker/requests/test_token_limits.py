"""Limits of tokens, as the broker keeps them."""

from __future__ import annotations

import json

import pytest

from tests.broker.world import SECOND, BrokerHarness, F, S, request
from zmqtriton_floor import wire
from zmqtriton_floor.errors import LimitExceeded, ProtocolError

G = 3


@pytest.fixture(autouse=True)
def second_frontend(world: BrokerHarness) -> None:
    world.add_frontend(G)


def tell(
    world: BrokerHarness, serial: int, name: str, rate: float = 0, concurrency: int = 0
) -> None:
    limits = {"requests_per_second": rate, "concurrency": concurrency}
    arguments = json.dumps({"name": name, "number": 1, **limits})
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
    assert {"token": 2} == world.core.generations[1].statistics.refusals


def test_so_many_may_be_unanswered(world: BrokerHarness) -> None:
    tell(world, F, "night", concurrency=1)
    ask(world, F, 1)
    ask(world, F, 2)
    world.tick(1)
    world.finish_batch(S)
    ask(world, F, 3)

    assert [False, True, False] == [refused(world, F, own_id) for own_id in (1, 2, 3)]
    [row] = world.core.limits.tokens.report()
    assert {"token": "night", "requests": 2, "refused": 1} == row


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


def test_other_requests_have_no_limit(world: BrokerHarness) -> None:
    tell(world, F, "night", rate=1)

    for own_id in range(1, 9):
        world.infer(F, request(own_id))

    assert not any(refused(world, F, own_id) for own_id in range(1, 9))


@pytest.mark.parametrize("arguments", ["[]", "{}", "x", '{"name": "n", "number": "x"}'])
def test_nonsense_is_refused(world: BrokerHarness, arguments: str) -> None:
    with pytest.raises(ProtocolError):
        world.core.take_token(F, wire.Call(0, "token", arguments))


def test_a_model_cannot_tell_of_tokens(world: BrokerHarness) -> None:
    with pytest.raises(ProtocolError):
        tell(world, S, "n", rate=1000)

    assert [] == world.core.limits.tokens.report()
