"""ROUTER and DEALER of our own: with each other, with libzmq, and with whoever speaks nonsense."""

from __future__ import annotations

import errno
import os
import random
import re
import resource
import select
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from tests.support.waiting import eventually
from zmqtriton_floor import zmtp
from zmqtriton_floor.zmtp import Dealer, Router, ZmtpConnection

SIZES = (0, 1, 255, 256, 70_000, 3 << 20)
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(16 + 32)
READY = b"\x04\x29\x05READY\x0bSocket-Type\0\0\0\x06DEALER\x08Identity\0\0\0\0"


class Bound:
    """A Router, and a look at all that has come."""

    def __init__(self, directory: Path) -> None:
        self.path = str(directory / "r")
        self.address = f"ipc://{self.path}"
        self.epoll = select.epoll()
        self.router = Router(self.address, self.epoll)

    def look(self) -> bool:
        """False: there was nothing to do."""
        ready = self.epoll.poll(0)
        for descriptor, events in ready:
            hear = self.router.hears.get(descriptor)
            if hear is not None:
                hear(events)
        return bool(ready)

    def receive(self, count: int = 1) -> list[tuple[ZmtpConnection, list[bytes]]]:
        inbox = self.router.inbox

        def is_here() -> bool:
            while self.look():
                pass
            return len(inbox) >= count

        eventually(is_here, 60, "messages")
        return [inbox.popleft() for _ in range(count)]

    def close(self) -> None:
        self.router.close_all()
        self.epoll.close()


@pytest.fixture
def bound(tmp_path: Path) -> Iterator[Bound]:
    bound = Bound(tmp_path)
    yield bound
    bound.close()


@pytest.fixture
def dealer(bound: Bound) -> Iterator[Dealer]:
    dealer = Dealer(bound.address)
    yield dealer
    dealer.close()


def say(dealer: Dealer, message: list[bytes]) -> None:
    dealer.put(message)
    dealer.flush()


@pytest.fixture
def connection(bound: Bound, dealer: Dealer) -> ZmtpConnection:
    """To the dealer, whose hello has been read."""
    say(dealer, [b"hello"])
    [(connection, _)] = bound.receive()
    return connection


def take(
    dealer: Dealer, count: int = 1, meanwhile: Callable[[], object] = lambda: None
) -> list[list[bytes]]:
    """The next messages."""
    taken: list[list[bytes]] = []

    def look() -> bool:
        meanwhile()
        while len(taken) < count and dealer.has_input():
            taken.append(dealer.receive())
        return len(taken) == count

    eventually(look, 60, "messages")
    return taken


def messages() -> list[list[bytes]]:
    chance = random.Random(7)
    frames = [chance.randbytes(size) for size in SIZES]
    return [[frame] for frame in frames] + [frames, frames[::-1], [b""] * 5000]


def test_messages_of_all_sizes_arrive_whole_and_in_order(bound: Bound, dealer: Dealer) -> None:
    sent = messages()
    done = threading.Event()

    def send() -> None:
        for message in sent:
            dealer.put(message)
            dealer.finish()
        done.set()

    thread = threading.Thread(target=send)
    thread.start()
    heard = bound.receive(len(sent))
    thread.join()

    assert sent == [frames for _, frames in heard]
    for connection, frames in heard:
        assert bound.router.write(connection, frames)
    bound.router.flush()
    assert sent == take(dealer, len(sent), bound.look)


def test_what_a_reader_does_not_take_waits_and_nothing_blocks(
    bound: Bound, dealer: Dealer, connection: ZmtpConnection
) -> None:
    sent = [[b"%d" % number, bytes(50_000)] for number in range(200)]

    assert all(bound.router.write(connection, message) for message in sent)
    bound.router.flush()

    assert connection.is_blocked
    assert sent == take(dealer, len(sent), bound.look)
    assert not connection.is_blocked
    eventually(lambda: not bound.look(), 60, "nothing to do, once all is written")


def test_a_dealer_keeps_what_the_kernel_does_not_take(bound: Bound, dealer: Dealer) -> None:
    sent = [[b"%d" % number, bytes(50_000)] for number in range(200)]
    for message in sent:
        dealer.put(message)
    assert not dealer.is_blocked
    dealer.flush()
    assert dealer.is_blocked

    heard: list[tuple[ZmtpConnection, list[bytes]]] = []
    while len(heard) < len(sent):
        dealer.flush()
        heard += bound.receive()

    assert sent == [frames for _, frames in heard]
    assert not dealer.is_blocked


@pytest.mark.parametrize("piece", [1, 7, 64])
def test_a_message_may_come_in_pieces(bound: Bound, piece: int) -> None:
    data = GREETING + READY + b"\x01\x02ab" + b"\x02" + (300).to_bytes(8, "big") + b"x" * 300

    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(bound.path)
        for begin in range(0, len(data), piece):
            peer.sendall(data[begin : begin + piece])
            bound.look()

        assert [[b"ab", b"x" * 300]] == [frames for _, frames in bound.receive()]


def test_what_an_earlier_read_has_left_is_no_part_of_a_length(bound: Bound) -> None:
    def frame(flags: int, data: bytes) -> bytes:
        return bytes([flags]) + len(data).to_bytes(8, "big") + data

    long, shorter, last = frame(3, b"\xff" * 6000), frame(3, b"b" * 5000), frame(2, b"c" * 300)

    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(bound.path)
        for data in (b"", GREETING + READY, long, shorter + last[:2], last[2:]):
            peer.sendall(data)
            bound.look()

        [(_, frames)] = bound.receive()
    assert [6000, 5000, 300] == [len(frame) for frame in frames]


@pytest.mark.slow
def test_a_dealer_of_libzmq_is_served(bound: Bound) -> None:
    context: Any = zmq.Context()
    peer = context.socket(zmq.DEALER)
    peer.connect(bound.address)
    sent = messages()

    for message in sent:
        peer.send_multipart(message)
    heard = bound.receive(len(sent))
    for connection, frames in heard:
        bound.router.write(connection, frames)
    bound.router.flush()

    assert sent == [frames for _, frames in heard]
    taken: list[list[bytes]] = []
    while len(taken) < len(sent):
        bound.look()
        if peer.poll(1):
            taken.append(peer.recv_multipart())
    assert sent == taken
    peer.close(0)
    context.term()


LONG = b"\x02" + (zmtp.MAX_BYTES + 1).to_bytes(8, "big")


@pytest.mark.parametrize(
    "nonsense",
    [
        b"GET / HTTP/1.1\r\n" * 5,
        b"\xff" + bytes(8) + b"\x7f\x01" + bytes(53),
        GREETING.replace(b"NULL", b"ABCD") + READY,
        GREETING + b"\0\5hello",
        GREETING + READY.replace(b"DEALER", b"ROUTER"),
        GREETING + READY + READY,
        GREETING + READY + LONG,
        GREETING + READY + b"\1\0" * (zmtp.MAX_FRAMES + 2),
    ],
)
def test_who_speaks_nonsense_is_cut_off_and_others_are_not(
    bound: Bound, dealer: Dealer, nonsense: bytes
) -> None:
    say(dealer, [b"before"])
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(bound.path)
        peer.sendall(nonsense)
        peer.settimeout(10)

        def is_cut_off() -> bool:
            bound.look()
            return len(bound.router.connections) == 1

        assert [b"before"] == bound.receive()[0][1]
        eventually(is_cut_off, 60, "the end of the connection")

    say(dealer, [b"after"])
    assert [b"after"] == bound.receive()[0][1]


def test_random_bytes_do_no_harm(bound: Bound, dealer: Dealer) -> None:
    chance = random.Random(11)
    whole = GREETING + READY + b"\1\3abc\0\3def" * 20
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 5)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(bound.path)
            peer.sendall(data)
            bound.look()
            bound.look()

    bound.router.inbox.clear()
    say(dealer, [b"still here"])
    assert [b"still here"] == bound.receive()[-1][1]
    eventually(lambda: not bound.look() and len(bound.router.connections) == 1, 60, "the ends")


def test_what_the_dead_have_sent_is_read_and_then_they_are_gone(
    bound: Bound, dealer: Dealer, connection: ZmtpConnection
) -> None:
    say(dealer, [b"last words"])
    dealer.close()

    assert bound.router.read(connection)
    assert not bound.router.read(connection)

    assert [b"last words"] == bound.router.inbox.popleft()[1]
    assert not bound.router.write(connection, [b"too late"])
    assert set() == bound.router.connections


def test_what_a_dead_router_has_sent_is_read_before_it_is_seen_to_be_dead(
    bound: Bound, dealer: Dealer, connection: ZmtpConnection
) -> None:
    copy = os.dup(connection.descriptor)  # as a process has that was forked meanwhile
    bound.router.write(connection, [b"last words"])
    bound.router.flush()
    bound.router.close(connection)

    assert [[b"last words"]] == take(dealer)
    assert not dealer.has_input()
    assert not dealer.has_input()
    assert not dealer.is_open
    say(dealer, [b"too late"])
    os.close(copy)


def test_a_dealer_whom_nobody_hears_is_as_one_whose_router_has_died(tmp_path: Path) -> None:
    dealer = Dealer(f"ipc://{tmp_path}/nobody")

    dealer.put([b"hello"])

    dealer.flush()
    dealer.finish()

    assert (False, False) == (dealer.is_open, dealer.has_input())
    dealer.close()


class ShortOf:
    """Makes calls of a socket fail at first, as on a machine that is short of something."""

    def __init__(self, end: socket.socket, **errors: list[int]) -> None:
        self._end = end
        self._errors = errors

    def __getattr__(self, name: str) -> Any:
        errors = self._errors.get(name)
        if errors:
            raise_it = OSError(errors.pop(0), "injected")

            def fail(*_: Any) -> Any:
                raise raise_it

            return fail
        return getattr(self._end, name)


SHORTAGES = (errno.ENOBUFS, errno.ENOMEM, errno.EINTR)


@pytest.mark.parametrize("number", SHORTAGES, ids=errno.errorcode.get)
def test_a_shortage_delays_what_is_sent_and_ends_nothing(
    bound: Bound, dealer: Dealer, number: int
) -> None:
    connection: Any = dealer
    # a kernel that is short of memory cannot be had
    connection._socket = ShortOf(connection._socket, send=[number] * 3)

    say(dealer, [b"hello"])
    assert dealer.is_blocked
    dealer.finish()

    assert dealer.is_open
    assert [b"hello"] == bound.receive()[0][1]


@pytest.mark.parametrize("number", SHORTAGES, ids=errno.errorcode.get)
def test_a_shortage_delays_what_is_received_and_ends_nothing(
    bound: Bound, dealer: Dealer, connection: ZmtpConnection, number: int
) -> None:
    end: Any = dealer
    # a kernel that is short of memory cannot be had
    end._socket = ShortOf(end._socket, recv_into=[number] * 3)

    bound.router.write(connection, [b"answer"])
    bound.router.flush()

    assert [[b"answer"]] == take(dealer)
    assert dealer.is_open


def test_what_had_come_before_a_write_failed_is_read(
    bound: Bound, dealer: Dealer, connection: ZmtpConnection
) -> None:
    say(dealer, [b"an answer"])
    end: Any = connection
    # that the write fails and the read does not yet is a matter of luck otherwise
    end._socket = ShortOf(end._socket, send=[errno.ECONNRESET])

    bound.router.write(connection, [b"too late"])
    bound.router.flush()

    assert [b"an answer"] == bound.receive()[0][1]
    eventually(lambda: not bound.look() and not bound.router.connections, 60, "the end")
    eventually(lambda: not dealer.has_input() and not dealer.is_open, 60, "the end here")


def test_strangers_wait_until_others_have_spoken_and_none_is_lost(bound: Bound) -> None:
    bound.router.max_strangers = 3
    dealers = [Dealer(bound.address) for _ in range(10)]
    for number, dealer in enumerate(dealers):
        say(dealer, [b"%d" % number])

    heard: list[list[bytes]] = []
    while len(heard) < 10:
        [(connection, frames)] = bound.receive()
        assert len(bound.router.connections) <= len(heard) + 3
        heard.append(frames)
        bound.router.know(connection)

    assert [[b"%d" % number] for number in range(10)] == sorted(heard)
    for dealer in dealers:
        dealer.close()


def test_who_says_nothing_has_to_go_in_time(bound: Bound) -> None:
    bound.router.max_strangers = 2
    silent = [Dealer(bound.address) for _ in range(2)]
    eventually(lambda: not bound.look(), 60, "both are accepted")
    late = Dealer(bound.address)
    say(late, [b"hello"])

    due_ns = bound.router.next_due_ns()
    bound.router.tick(due_ns - 1)
    assert 2 == len(bound.router.connections)
    bound.router.tick(due_ns + zmtp.STRANGER_WITHIN_NS)

    assert [b"hello"] == bound.receive()[0][1]
    for dealer in (*silent, late):
        dealer.close()


def test_a_stranger_that_has_spoken_in_time_is_not_closed_unread(
    bound: Bound, dealer: Dealer
) -> None:
    eventually(lambda: not bound.look(), 60, "it is accepted")
    say(dealer, [b"hello"])

    bound.router.tick(bound.router.next_due_ns() + 1)

    assert ([b"hello"], 1) == (bound.router.inbox.popleft()[1], len(bound.router.connections))


def test_without_descriptors_those_that_connect_wait(bound: Bound, dealer: Dealer) -> None:
    say(dealer, [b"hello"])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        assert bound.look()
        assert not bound.look(), "it is not woken again and again"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    bound.router.tick(bound.router.next_due_ns())

    assert [b"hello"] == bound.receive()[0][1]


def test_a_greeting_that_has_to_wait_holds_nothing_back(
    bound: Bound, dealer: Dealer, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = [errno.ENOBUFS] * 2
    monkeypatch.setattr(
        zmtp.ZmtpConnection,
        "__init__",
        _with_errors(zmtp.ZmtpConnection.__init__, errors),
    )
    say(dealer, [b"hello"])
    [(connection, _)] = bound.receive()

    bound.router.write(connection, [b"answer"])
    bound.router.flush()
    eventually(lambda: not bound.look() or not errors, 60, "it is written again")
    bound.look()

    assert [[b"answer"]] == take(dealer)


def _with_errors(begin: Any, errors: list[int]) -> Any:
    def begin_with_errors(self: Any, end: socket.socket, *rest: Any) -> None:
        begin(self, ShortOf(end, send=errors), *rest)

    return begin_with_errors


def test_a_stranger_may_not_announce_as_much_as_those_who_are_known(
    bound: Bound, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zmtp, "STRANGER_BYTES", 1000)
    friend, stranger = Dealer(bound.address), Dealer(bound.address)
    say(friend, [b"hello"])
    [(connection, _)] = bound.receive()
    bound.router.know(connection)

    for dealer in (friend, stranger):
        say(dealer, [bytes(2000)])

    assert [bytes(2000)] == bound.receive()[0][1]
    eventually(lambda: not bound.look() and len(bound.router.connections) == 1, 60, "the end")
    for dealer in (friend, stranger):
        dealer.close()


def _own_kib() -> int:
    """Return the memory that this process shares with nobody."""
    text = Path("/proc/self/smaps_rollup").read_text()
    return sum(map(int, re.findall(r"^Private_Dirty: +(\d+)", text, re.M)))


def test_a_buffer_takes_memory_as_it_is_written() -> None:
    before = _own_kib()

    buffers = [zmtp.receive_buffer() for _ in range(64)]  # which live until they are measured

    assert 64 * (1 << 18) == sum(map(len, buffers))
    assert _own_kib() - before < 4096  # a quarter of it
