"""Requests whose deadline passes while they are executed count as failed, once and at that time."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.world import SECOND, BrokerHarness, F, Page, S, request
from zmqtriton_floor import wire


@pytest.fixture
def world() -> BrokerHarness:
    return BrokerHarness.serving()


def entry(world: BrokerHarness) -> dict[str, Any]:
    [row] = world.statistics()["model_stats"]
    return dict(row)


def ends(world: BrokerHarness) -> tuple[int, int, dict[str, int]]:
    """Return how many requests have succeeded, how many have failed, and those by reason."""
    row = entry(world)
    counts, failures = row["inference_stats"], row["zmqtriton"]["failures"]
    reasons = {reason: count for reason, count in failures.items() if count}
    return counts["success"]["count"], counts["fail"]["count"], reasons


def execute_beyond_deadline(world: BrokerHarness) -> None:
    world.infer(F, request(1, deadline_ns=world.now + SECOND))
    world.tick(2 * SECOND)


@pytest.mark.row("L18")
def test_a_request_has_failed_at_its_deadline_however_its_execution_ends(
    world: BrokerHarness,
) -> None:
    world.add_stub(S)
    execute_beyond_deadline(world)
    assert (0, 1, {"OTHER": 1}) == ends(world)

    world.finish_batch(S)

    assert (0, 1, {"OTHER": 1}) == ends(world)
    after = entry(world)
    assert (0, 1) == (after["inference_count"], after["execution_count"])
    assert "was executing the request" in after["zmqtriton"]["last_error"]["text"]


def test_the_time_that_clients_give_is_told(world: BrokerHarness) -> None:
    world.add_stub(S)
    assert "overdue" not in entry(world)["zmqtriton"]
    world.infer(F, request(1), request(2, deadline_ns=world.now + 3 * SECOND))
    world.tick(SECOND)
    world.finish_batch(S)

    world.tick(4 * SECOND)

    overdue = entry(world)["zmqtriton"]["overdue"]
    times = round(overdue["allowed_s"], 3), round(overdue["queued_s"], 3)
    assert (1, 3.0, 1.0) == (overdue["count"], *times)
    assert world.now / 1e9 == overdue["at_s"]


def test_a_stub_that_dies_of_it_counts_nothing_more(world: BrokerHarness) -> None:
    world.add_stub(S)
    execute_beyond_deadline(world)

    world.kill_peer(S)

    assert (0, 1, {"OTHER": 1}) == ends(world)


def test_what_was_sent_ahead_has_failed_in_the_queue(world: BrokerHarness) -> None:
    world.add_stub(S, page=Page())
    world.infer(F, request(1))
    world.finish_batch(S)  # executions are short
    world.infer(F, request(2), request(3, deadline_ns=world.now + SECOND))
    assert [2, 3] == world.executing(S)

    world.tick(2 * SECOND)
    world.finish_batch(S)
    world.finish_batch(S, code=1)

    assert (2, 1, {"REJECTED": 1}) == ends(world)
    own = entry(world)["zmqtriton"]
    assert (1, False) == (own["deadlines"], "overdue" in own)


def test_a_client_that_leaves_at_its_deadline_has_not_been_served(world: BrokerHarness) -> None:
    world.add_stub(S)
    world.infer(F, request(1, deadline_ns=world.now + SECOND))

    world.tick(SECOND - 1)
    world.cancel(F, 1)  # as clients of gRPC do
    world.tick(SECOND)
    world.finish_batch(S)

    assert (0, 1, {"OTHER": 1}) == ends(world)


@pytest.mark.parametrize("leaves", [False, True])
def test_a_version_on_trial_has_failed_once(world: BrokerHarness, leaves: bool) -> None:
    world.core.generations.divide(wire.TrafficSplit("m", 1, 2, 0))
    world.add_stub(S)
    world.infer(F, request(1, deadline_ns=world.now + SECOND))
    if leaves:
        world.cancel(F, 1)
    world.tick(2 * SECOND)
    world.finish_batch(S)

    succeeded, failed, _ = ends(world)
    unawaited, late_successes, late_failures = entry(world)["zmqtriton"]["unawaited"]
    assert (0, 1) == (succeeded - late_successes, failed - late_failures + unawaited)
