"""Lifelines: whole messages in order, whatever their size, and descriptors with them."""

from __future__ import annotations

import errno
import os
import socket
import threading
from typing import Any

import pytest

from zmqtriton_floor import wire
from zmqtriton_floor.lifeline import Lifeline, pair


def _two() -> tuple[Lifeline, Lifeline]:
    ours, theirs = pair()
    return Lifeline(ours), Lifeline(theirs)


def test_messages_arrive_in_order() -> None:
    left, right = _two()

    for number in range(10):
        left.send(wire.Sync(number))

    assert [wire.Sync(n) for n in range(10)] == [m for m, _ in right.receive()]
    left.close()
    right.close()


def test_a_message_larger_than_the_socket_buffer_arrives_whole() -> None:
    left, right = _two()
    large = wire.Initialize("x" * 3_000_000)
    got: list[wire.Initialize] = []

    left.send(large)
    left.send(wire.Sync(1))
    assert left.is_backed_up
    while len(got) < 2:
        assert right.wait(10)
        got += [m for m, _ in right.receive()]
        left.flush()

    assert [large, wire.Sync(1)] == got
    assert not left.is_backed_up
    left.close()
    right.close()


def test_a_descriptor_travels_with_its_message() -> None:
    left, right = _two()
    reading, writing = os.pipe()

    left.send(wire.WorkerForked(1), writing)
    os.close(writing)
    ((message, descriptors),) = right.receive()
    os.write(descriptors[0], b"hello")

    assert wire.WorkerForked(1) == message
    assert b"hello" == os.read(reading, 10)
    os.close(descriptors[0])
    os.close(reading)
    left.close()
    right.close()


def test_what_does_not_decode_is_counted_and_its_descriptors_are_closed() -> None:
    ours, theirs = pair()
    right = Lifeline(theirs)
    reading, writing = os.pipe()

    socket.send_fds(ours, [b"\x01no message"], [writing])
    os.close(writing)
    messages = right.receive()

    assert [] == messages
    assert 1 == right.malformed
    assert b"" == os.read(reading, 1), "the writing end is closed everywhere"
    os.close(reading)
    ours.close()
    right.close()


def test_the_end_of_the_other_side_is_seen() -> None:
    left, right = _two()
    left.send(wire.Sync(1))
    left.close()

    assert right.wait(10)
    assert [wire.Sync(1)] == [m for m, _ in right.receive()]
    assert [] == right.receive()
    assert right.ended
    right.send(wire.Sync(2))
    right.close()


def test_the_end_is_seen_though_a_fork_holds_a_copy() -> None:
    ours, theirs = pair()
    supervisor, child = Lifeline(ours), Lifeline(theirs)
    copy = os.dup(child.fileno())
    child.send(wire.Synced(1))

    child.close()

    assert [(wire.Synced(1), [])] == supervisor.receive()
    assert supervisor.ended
    os.close(copy)
    supervisor.close()


def test_a_fork_abandons_its_copy_and_the_lifeline_goes_on() -> None:
    ours, theirs = pair()
    supervisor, child = Lifeline(ours), Lifeline(theirs)
    copy = Lifeline.inherited(os.dup(child.fileno()))

    copy.abandon()
    child.send(wire.Synced(1))

    assert [(wire.Synced(1), [])] == supervisor.receive()
    assert not supervisor.ended
    child.close()
    supervisor.close()


def test_threads_may_send_at_once() -> None:
    left, right = _two()

    def send() -> None:
        for _ in range(200):
            left.send(wire.Sync(5))

    senders = [threading.Thread(target=send) for _ in range(4)]

    for thread in senders:
        thread.start()
    got = 0
    while got < 800:
        assert right.wait(10)
        got += len(right.receive())
        left.flush()
    for thread in senders:
        thread.join()

    assert 0 == right.malformed
    left.close()
    right.close()


def test_waiting_ends_after_the_timeout() -> None:
    left, right = _two()

    assert not right.wait(0.001)
    left.close()
    right.close()


class _Short:
    """Fails the first calls of a socket with these errors."""

    def __init__(self, end: socket.socket, call: str, errors: list[int]) -> None:
        self._end, self._call, self._errors = end, call, errors

    def __getattr__(self, name: str) -> Any:
        if name == self._call and self._errors:
            return self._fail
        return getattr(self._end, name)

    def _fail(self, *_: Any) -> Any:
        raise OSError(self._errors.pop(0), "injected")


@pytest.mark.parametrize("number", [errno.ENOBUFS, errno.ENOMEM, errno.EINTR])
@pytest.mark.parametrize("call", ["sendmsg", "recvmsg"])
def test_a_shortage_is_not_the_end(call: str, number: int) -> None:
    left, right = _two()
    failing: Any = left if call == "sendmsg" else right
    failing._socket = _Short(failing._socket, call, [number, number])

    left.send(wire.Sync(1))
    for _ in range(2):
        assert [] == right.receive()
        left.flush()

    assert [wire.Sync(1)] == [message for message, _ in right.receive()]
    assert (False, False) == (left.ended, right.ended)
    left.close()
    right.close()


def test_what_the_dead_have_sent_is_received_though_nothing_can_be_sent_to_them() -> None:
    left, right = _two()
    right.send(wire.Sync(1))
    right.close()

    left.send(wire.Sync(2))
    left.send(wire.Sync(3))

    assert not left.ended
    assert not left.is_backed_up
    assert [wire.Sync(1)] == [message for message, _ in left.receive()]
    assert left.ended
    left.close()
