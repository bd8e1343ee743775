"""Waiting times, priorities, and the order in which answers leave."""

from __future__ import annotations

import itertools
import random
from types import SimpleNamespace
from typing import Any

import pytest

from tests.broker.world import S2, S3, BrokerHarness, F, S, request
from zmqtriton.broker.scheduling.batching import Levels
from zmqtriton_floor import wire
from zmqtriton_floor.errors import Unavailable

MS = 1_000_000
EXPIRED = "Request timeout expired"
FULL = "[request id: <id_unknown>] Exceeds maximum queue size"


def scheduling(max_batch_size: int = 1, stubs: int = 1, **settings: Any) -> BrokerHarness:
    config = {"name": "m", "max_batch_size": max_batch_size, "dynamic_batching": settings}
    return BrokerHarness.serving(*range(S, S + stubs), config=config)


def busy(max_batch_size: int = 1, **settings: Any) -> BrokerHarness:
    """One stub that is busy with request 1."""
    world = scheduling(max_batch_size, **settings)
    world.infer(F, request(1))
    return world


def policy(**fields: Any) -> BrokerHarness:
    """Likewise, and a queue with a policy."""
    return busy(default_queue_policy=fields)


def executed(world: BrokerHarness, serial: int = S) -> list[int]:
    """The ids, in the order in which a stub gets them until there is nothing left."""
    ids = []
    while world.batched_requests.get(serial):
        ids += [work.id for work in world.finish_batch(serial)]
    return ids


# --------------------------------------------------------------- who waits too long


@pytest.mark.row("E63")
def test_who_has_waited_too_long_is_refused_while_the_stub_is_still_busy() -> None:
    world = policy(default_timeout_microseconds=5_000)
    world.infer(F, request(2))

    world.tick(5 * MS - 1)
    assert not world.finals(F, 2)
    world.tick(1)

    [reply] = world.finals(F, 2)
    assert (Unavailable.number, EXPIRED) == (reply.code, reply.text)
    assert [1] == executed(world)


@pytest.mark.row("E63")
def test_what_is_being_executed_is_not_subject_to_the_queue_s_timeout() -> None:
    world = policy(default_timeout_microseconds=5_000)

    world.tick(50 * MS)

    assert not world.finals(F, 1)
    world.finish_batch(S)
    assert [""] == world.texts(1)
    assert world.core.due_ns is None


@pytest.mark.row("E64")
@pytest.mark.parametrize(
    ("may_shorten", "default_us", "own_us", "expires_us"),
    [
        (True, 5_000, 2_000, 2_000),
        (True, 5_000, 0, 5_000),
        (True, 5_000, 9_000, 5_000),
        (False, 5_000, 2_000, 5_000),
        (True, 0, 2_000, None),
    ],
)
def test_a_request_may_only_shorten_its_timeout(
    *, may_shorten: bool, default_us: int, own_us: int, expires_us: int | None
) -> None:
    world = policy(default_timeout_microseconds=default_us, allow_timeout_override=may_shorten)

    world.infer(F, request(2, timeout_us=own_us))

    assert (None if expires_us is None else world.now + expires_us * 1000) == world.core.due_ns


@pytest.mark.row("E63")
def test_who_is_late_may_be_put_behind_all_others() -> None:
    world = policy(
        timeout_action="DELAY", default_timeout_microseconds=5_000, allow_timeout_override=True
    )
    world.infer(F, request(2), request(3, timeout_us=1_000), request(4))
    world.tick(1 * MS)
    world.infer(F, request(5))

    world.tick(4 * MS)
    world.infer(F, request(6))

    assert ([1, 5, 6, 3, 2, 4], [""] * 6) == (executed(world), world.texts(*range(1, 7)))


def test_a_late_one_that_is_not_wanted_any_more_is_not_executed() -> None:
    world = policy(timeout_action="DELAY", default_timeout_microseconds=5_000)
    world.infer(F, request(2), request(3))
    world.tick(5 * MS)

    world.cancel(F, 2)

    assert [1, 3] == executed(world)


def test_statistics_count_who_was_refused_in_the_queue() -> None:
    world = policy(default_timeout_microseconds=5_000, max_queue_size=1)
    world.infer(F, request(2), request(3))
    world.tick(5 * MS)

    counters = world.core.generations.by_number[1].statistics

    assert {"REJECTED": 2, "CANCELED": 0, "BACKEND": 0, "OTHER": 0} == counters.failures
    assert {"max_queue_size": 1, "queue_timeout": 1} == counters.refusals
    assert 0 == world.core.generations.schedulers[1].pending


# ------------------------------------------------------------------ how many may wait


@pytest.mark.row("C48", "E63")
def test_one_more_than_may_wait_is_refused_with_the_id_that_its_client_gave() -> None:
    world = policy(max_queue_size=2)
    world.infer(F, request(2), request(3))

    world.infer(F, request(4), body=wire.encode_body(wire.RequestBody("mine", {}, [], [])))
    world.infer(F, request(5))

    assert ["[request id: mine] Exceeds maximum queue size", FULL] == world.texts(4, 5)
    assert [1, 2, 3] == executed(world)


@pytest.mark.row("E63")
@pytest.mark.parametrize("leaves", ["executed", "cancelled", "expired"])
def test_whoever_leaves_the_queue_makes_room(leaves: str) -> None:
    world = policy(max_queue_size=1, default_timeout_microseconds=5_000)
    world.infer(F, request(2))

    if leaves == "executed":
        world.finish_batch(S)
    elif leaves == "cancelled":
        world.cancel(F, 2)
    else:
        world.tick(5 * MS)
    world.infer(F, request(3), request(4))

    assert [FULL] == world.texts(4)
    assert executed(world)[-1] == 3


# ------------------------------------------------------------------------- priorities


@pytest.mark.row("E65")
def test_higher_priorities_go_first_and_each_in_the_order_it_came() -> None:
    world = busy(priority_levels=3, default_priority_level=2)

    priorities = enumerate([3, 0, 1, 2, 4, 3, 1], start=2)
    world.infer(F, *(request(i, priority=priority) for i, priority in priorities))

    assert [1, 4, 8, 3, 5, 6, 2, 7] == executed(world)


@pytest.mark.row("E63", "E65")
def test_each_priority_has_its_own_policy_or_the_default_one() -> None:
    world = busy(
        priority_levels=2,
        default_priority_level=1,
        default_queue_policy={"max_queue_size": 1},
        priority_queue_policy={"2": {"default_timeout_microseconds": 5_000}},
    )

    world.infer(F, *(request(i, priority=1) for i in (2, 3)))
    world.infer(F, *(request(i, priority=2) for i in (4, 5)))
    world.tick(5 * MS)

    assert ([FULL, EXPIRED, EXPIRED], [1, 2]) == (world.texts(3, 4, 5), executed(world))


def test_priorities_that_nobody_uses_any_more_take_no_room() -> None:
    world = scheduling(priority_levels=1_000_000, default_priority_level=1)

    for number in range(1, 1_001):
        world.infer(F, request(number, priority=number))
        world.finish_batch(S)

    assert len(world.core.generations.schedulers[1].queue.levels.by_priority) <= 64


# ----------------------------------------------------------------- the order of answers


@pytest.mark.row("E66")
def test_an_answer_waits_for_those_to_earlier_requests() -> None:
    world = scheduling(stubs=3, preserve_ordering=True)
    world.infer(F, *(request(i) for i in range(1, 4)))
    by_id = {world.batched_requests[serial][0].id: serial for serial in (S, S2, S3)}

    world.finish_batch(by_id[3])
    world.finish_batch(by_id[2])
    assert not world.replies
    world.finish_batch(by_id[1])

    assert [(F, 1), (F, 2), (F, 3)] == list(world.replies)


@pytest.mark.row("E66")
def test_who_was_refused_in_the_queue_has_its_turn_too() -> None:
    world = scheduling(
        preserve_ordering=True, default_queue_policy={"default_timeout_microseconds": 5_000}
    )
    world.infer(F, request(1), request(2))

    world.tick(5 * MS)
    assert not world.replies
    world.finish_batch(S)

    assert [("", (F, 1)), (EXPIRED, (F, 2))] == [
        (replies[0].text, route) for route, replies in world.replies.items()
    ]


@pytest.mark.parametrize("seed", range(10))
def test_answers_leave_in_order_whatever_happens(seed: int) -> None:
    chance = random.Random(seed)
    world = scheduling(
        2,
        stubs=3,
        preserve_ordering=True,
        default_queue_policy={"default_timeout_microseconds": 3_000, "max_queue_size": 4},
    )
    ids, serials = itertools.count(1), itertools.count(10)
    cancelled: set[int] = set()
    for _ in range(200):
        move = chance.choice(["ask", "ask", "finish", "finish", "cancel", "wait", "die"])
        busy = [serial for serial, works in world.batched_requests.items() if works]
        if move == "ask":
            world.infer(F, *(request(next(ids)) for _ in range(chance.randint(1, 3))))
        elif move == "finish" and busy:
            world.finish_batch(chance.choice(busy))
        elif move == "cancel" and world.core.peers[F].requests:
            cancelled.add(chance.choice(sorted(world.core.peers[F].requests)))
            world.cancel(F, *cancelled)
        elif move == "die" and busy:
            world.kill_peer(chance.choice(busy))
            world.add_stub(next(serials))
        else:
            world.tick(chance.randint(0, 1 * MS))
    while any(world.batched_requests.values()):
        world.finish_batch(
            next(serial for serial, works in world.batched_requests.items() if works)
        )

    assert all(len(world.finals(F, own_id)) == 1 for own_id in range(1, next(ids)))
    left = [r for _, r in world.replies if r not in cancelled and FULL not in world.texts(r)]
    assert sorted(left) == left
    assert len(left) > 20


def test_what_leaves_a_queue_is_not_kept_until_its_turn_comes() -> None:
    levels = Levels({})
    waiting: list[Any] = [SimpleNamespace(is_late=False, priority=0) for _ in range(500)]
    for request_ in waiting:
        level = levels.add(request_)

    for request_ in waiting[1:]:
        level.leave(request_)

    assert 1 == level.size
    # those that left are forgotten now and then, which no answer tells
    assert len(level.in_time) <= 2 * level.size + 64
    assert waiting[:1] == list(level)
    assert waiting[0] is level.pop()


def test_a_level_that_others_take_from_is_as_crowded_as_it_has_requests() -> None:
    levels = Levels({"default_queue_policy": {"max_queue_size": 2}})
    requests: list[Any] = [
        SimpleNamespace(id=own_id, is_late=False, priority=0) for own_id in range(3)
    ]
    for each in requests:
        level = levels.add(each)
    assert level.is_crowded

    level.take(requests[1])

    assert not level.is_crowded
    assert [requests[0], requests[2]] == list(level)
