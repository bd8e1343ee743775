"""The messages that the broker's sockets get to send, in order."""

from __future__ import annotations

import select
import time
from pathlib import Path
from typing import Any, cast

import pytest

from zmqtriton.broker import sending as module
from zmqtriton.broker.core import Core
from zmqtriton.broker.router import Router
from zmqtriton.broker.sending import Sending
from zmqtriton_floor import wire
from zmqtriton_floor.zmtp import Dealer

OWNER, OTHER = 7, 8
BLOCK = wire.Block(OWNER, 1, 1)
WORK = (wire.BatchedRequest(1, 3, 5, 0, 0, 0, 0), b"body")
REPLY = (wire.Reply(5, 0, "", wire.FINAL), b"body")


class Sent:
    """Stands for both sockets; everybody is behind the first one that is asked."""

    def __init__(self) -> None:
        self.by_serial = {OWNER: b"7", OTHER: b"8"}
        self.messages: list[tuple[int, str]] = []
        #: How many of them were queued when they were written.
        self.flushed = 0
        self.blocked: set[int] = set()
        self.flags: list[int] = []
        #: The blocks that batches took along.
        self.released: list[list[wire.Block]] = []
        self.broken: set[int] = set()
        #: Whatever was sent waits for flush().
        self.unflushed = True

    def send(self, serial: int, message: Any, bodies: list[bytes]) -> None:
        self.messages.append((serial, type(message).__name__))

    def send_list(self, serial: int, kind: Any, _: Any) -> None:
        self.messages.append((serial, kind.__name__))

    def send_rows(
        self, serial: int, kind: Any, rows: Any, *released: Any, max_rows: int = 0
    ) -> None:
        self.released += released
        self.messages.append((serial, kind.__name__))
        self.flags += [row.flags for row, _ in rows]

    def flush(self) -> None:
        self.flushed = len(self.messages)

    def undelivered(self) -> set[int]:
        return self.blocked | self.broken


class World:
    def __init__(self) -> None:
        routers: Any = Sent()
        lifeline: Any = None  # nothing is for the supervisor
        core = Core()
        self.outbox = core.outbox
        self.sending = Sending(core, lifeline, routers, routers)
        self.routers: Sent = routers

    def flush(self) -> list[tuple[int, str]]:
        """Return what went out."""
        self.routers.messages = []
        self.sending.flush()
        assert len(self.routers.messages) == self.routers.flushed, "all leave at the end"
        return self.routers.messages


@pytest.fixture
def world() -> World:
    return World()


def test_a_release_waits_for_something_else_that_goes_to_the_owner(world: World) -> None:
    world.outbox.releases[OWNER] = [BLOCK]

    assert [] == world.flush()
    world.outbox.batched_requests[OTHER] = [WORK]
    assert [(OTHER, "Execute")] == world.flush()
    world.outbox.batched_requests[OWNER] = [WORK]

    assert [(OWNER, "Execute")] == world.flush()
    assert [[], [BLOCK]] == world.routers.released
    assert 0 == world.sending.release_at_ns


def test_many_releases_are_a_message_of_their_own(world: World) -> None:
    world.outbox.releases[OWNER] = [BLOCK] * (wire.MAX_RELEASED + 1)
    world.outbox.batched_requests[OWNER] = [WORK]

    assert {(OWNER, "Release"), (OWNER, "Execute")} == set(world.flush())
    assert [[]] == world.routers.released
    assert {} == world.outbox.releases


def test_a_release_goes_along_with_a_reply_too(world: World) -> None:
    world.outbox.releases[OWNER], world.outbox.replies[OWNER] = [BLOCK], [REPLY]

    assert [(OWNER, "Release"), (OWNER, "Replies")] == world.flush()


def test_some_replies_may_leave_amid_a_turn(world: World) -> None:
    world.outbox.replies[OWNER] = [REPLY]

    world.sending.flush_some_replies()

    assert [(OWNER, "Replies")] == world.routers.messages
    assert 1 == world.routers.flushed
    assert {} == world.outbox.replies


@pytest.mark.parametrize("table", ["leases", "releases"])
def test_replies_wait_for_the_end_of_the_turn_if_something_goes_with_them(
    world: World, table: str
) -> None:
    getattr(world.outbox, table)[OWNER] = [BLOCK]
    world.outbox.replies[OWNER] = [REPLY]

    world.sending.flush_some_replies()

    assert [] == world.routers.messages
    assert (OWNER, "Replies") == world.flush()[-1]


def test_a_release_does_not_wait_for_long(world: World) -> None:
    world.outbox.releases[OWNER] = [BLOCK]
    world.flush()
    now_ns = time.monotonic_ns()
    assert now_ns < world.sending.release_at_ns <= now_ns + module._RELEASE_WITHIN_NS

    world.sending.release_at_ns = 1

    assert [(OWNER, "Release")] == world.flush()
    assert {} == world.outbox.releases


def test_a_lease_never_waits_and_goes_before_releases(world: World) -> None:
    outbox = world.outbox
    outbox.releases[OWNER], outbox.leases[OWNER] = [BLOCK], [BLOCK]
    outbox.replies[OWNER] = [REPLY]

    assert ["Lease", "Release", "Replies"] == [kind for _, kind in world.flush()]


def test_work_is_no_proof_that_answers_have_left_while_somebody_reads_none(world: World) -> None:
    world.routers.blocked = {OTHER}
    world.outbox.batched_requests[OWNER] = [WORK]
    world.flush()
    world.routers.blocked.clear()
    world.outbox.batched_requests[OWNER] = [WORK]
    world.flush()

    assert [wire.ANSWERS_WAIT, 0] == world.routers.flags


def test_what_waits_for_delivery_is_done_when_all_that_went_before_has_left(world: World) -> None:
    done: list[str] = []
    world.outbox.once_delivered = [lambda: done.append("at once")]
    world.flush()
    assert ["at once"] == done

    world.routers.blocked = {OWNER}
    world.outbox.once_delivered = [lambda: done.append("later")]
    world.flush()
    world.routers.blocked = {OWNER, OTHER}
    world.flush()
    assert ["at once"] == done
    world.routers.blocked = {OTHER}
    world.flush()

    assert ["at once", "later"] == done


def test_what_went_to_a_broken_connection_has_not_left(world: World) -> None:
    done: list[str] = []
    world.routers.broken = {OWNER}

    world.outbox.once_delivered = [lambda: done.append("")]
    world.flush()
    assert [] == done
    world.routers.broken.clear()  # its death was told
    world.flush()

    assert [""] == done


def test_many_replies_travel_in_several_messages(tmp_path: Path) -> None:
    epoll = select.epoll()
    router = Router(f"ipc://{tmp_path}/r", epoll)
    frontend = Dealer(f"ipc://{tmp_path}/r")
    [(descriptor, events)] = epoll.poll(60)
    router.hears[descriptor](events)
    [connection] = router.connections
    router.introduce(connection, OWNER)
    core, lifeline = Core(), cast(Any, None)
    sending = Sending(core, lifeline, router, router)

    rows = [wire.Reply(number, 0, "", wire.FINAL) for number in range(200)]
    core.outbox.replies[OWNER] = [(row, b"%d" % row.id) for row in rows]
    sending.flush()

    sizes: list[int] = []
    bodies: list[bytes] = []
    while frontend.has_input():
        header, *some = frontend.receive()
        assert len(wire.decode(header).replies) == len(some)
        sizes.append(len(some))
        bodies += some
    assert [b"%d" % number for number in range(200)] == bodies
    assert max(sizes) <= 64
    frontend.close()
    router.close_all()
    epoll.close()
