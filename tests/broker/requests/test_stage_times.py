"""The stages of requests whose clients ask for them."""

from __future__ import annotations

import pytest

from tests.broker.world import BrokerHarness, F, S, request
from zmqtriton_floor import wire


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


def test_a_refused_request_has_no_stages(world: BrokerHarness) -> None:
    world.infer(F, request(1, flags=wire.WANT_STAGES))

    world.kill_peer(S)

    assert [] == world.stage_times
    assert 1 == len(world.finals(F, 1))
