"""What the broker's sockets get to send, and in which order; no socket is opened."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from zmqtriton.broker import service as module
from zmqtriton.broker.service import Service
from zmqtriton_floor import wire
from zmqtriton_floor.lifeline import Lifeline, pair

OWNER, OTHER = 7, 8
BLOCK = wire.Block(OWNER, 1, 1)
WORK = (wire.Work(1, 3, 5, 0, 0, 0, 0), b"body")
REPLY = (wire.Reply(5, 0, "", wire.FINAL), b"body")


class Sent:
    """Stands for both sockets; everybody is behind the first one that is asked."""

    def __init__(self) -> None:
        self.identities = {OWNER: b"7", OTHER: b"8"}
        self.messages: list[tuple[int, str]] = []

    def send(self, serial: int, message: Any, bodies: list[bytes]) -> None:
        self.messages.append((serial, type(message).__name__))

    def send_rows(self, serial: int, kind: Any, rows: Any) -> None:
        self.messages.append((serial, kind.__name__))


@pytest.fixture
def service() -> Iterator[Any]:
    ours, theirs = pair()
    lifelines = Lifeline(ours), Lifeline(theirs)
    service: Any = Service(lifelines[0])
    service._workers = service._requests = Sent()

    yield service

    for lifeline in lifelines:
        lifeline.close()


def test_a_release_waits_for_something_else_that_goes_to_the_owner(service: Any) -> None:
    outbox = service._core.outbox
    outbox.releases[OWNER] = [BLOCK]

    assert not service._flush()
    outbox.works[OTHER] = [WORK]
    assert service._flush()
    assert [(OTHER, "Execute")] == service._workers.messages
    outbox.works[OWNER] = [WORK]
    assert service._flush()

    assert [(OWNER, "Release"), (OWNER, "Execute")] == service._workers.messages[1:]
    assert 0 == service._release_at_ns


def test_a_release_goes_along_with_a_reply_too(service: Any) -> None:
    outbox = service._core.outbox
    outbox.releases[OWNER], outbox.replies[OWNER] = [BLOCK], [REPLY]

    service._flush()

    assert [(OWNER, "Release"), (OWNER, "Replies")] == service._workers.messages


def test_a_release_does_not_wait_for_long(service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    service._core.outbox.releases[OWNER] = [BLOCK]
    service._flush()
    now_ns = time.monotonic_ns()
    assert now_ns < service._release_at_ns <= now_ns + module._RELEASE_WITHIN_NS

    monkeypatch.setattr(service, "_release_at_ns", 1)
    assert service._flush()

    assert [(OWNER, "Release")] == service._workers.messages
    assert {} == service._core.outbox.releases


def test_a_lease_never_waits_and_goes_before_releases(service: Any) -> None:
    outbox = service._core.outbox
    outbox.releases[OWNER], outbox.leases[OWNER] = [BLOCK], [BLOCK]
    outbox.replies[OWNER] = [REPLY]

    service._flush()

    assert ["Lease", "Release", "Replies"] == [kind for _, kind in service._workers.messages]
