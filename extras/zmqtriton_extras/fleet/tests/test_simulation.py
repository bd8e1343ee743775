"""The simulation of many servers, in small."""

from __future__ import annotations

import random

import pytest

from zmqtriton_extras.fleet.tests.simulation import KINDS, Balancer, World, simulate

SMALL = World(servers=8, models=80, room=5, requests_per_server=300)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_meets_the_same_requests_and_keeps_to_the_memory(kind: str) -> None:
    outcome = simulate(SMALL, kind)

    assert outcome == simulate(SMALL, kind)
    assert outcome.copies <= SMALL.servers * SMALL.room
    assert 0 < outcome.waited < 1
    assert outcome.p50_ms <= outcome.p99_ms <= outcome.p999_ms


@pytest.mark.parametrize("kind", KINDS)
def test_where_all_models_fit_few_requests_wait_for_a_load(kind: str) -> None:
    assert simulate(SMALL._replace(models=5), kind).waited < simulate(SMALL, kind).waited


def test_requests_go_where_the_model_is() -> None:
    loads = {kind: simulate(SMALL, kind).loads_per_s for kind in KINDS}

    assert loads["loaded"] < loads["least"]
    assert loads["hash"] < loads["least"]


def test_no_server_gets_much_more_than_its_share_by_its_hash() -> None:
    balancer = Balancer(SMALL, random.Random(1))
    for _ in range(400):
        balancer.hash(7).outstanding += 1
        balancer.outstanding += 1

    assert max(server.outstanding for server in balancer.servers) <= 1.25 * 400 / SMALL.servers + 1
