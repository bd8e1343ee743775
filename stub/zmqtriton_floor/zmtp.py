"""ZeroMQ's protocol (ZMTP 3.0, NULL) on unix sockets, without a thread: a DEALER and a ROUTER.

The thread that sends writes to the socket itself, and the message wakes the thread that waits.
With libzmq each message would also wake a thread of the library on both sides. A DEALER of libzmq
can connect as well. Knows frames, and nothing of what they mean.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import select
import socket
import time
from collections import deque
from functools import partial
from typing import Any, Callable, Sequence

_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
_MORE, _LONG, _COMMAND = 1, 2, 4
#: The heads of frames of up to 255 bytes: the last frame of a message, and the others. The first
#: byte of longer ones follows.
_LAST_HEADS = [*(bytes((0, size)) for size in range(256)), bytes((_LONG,))]
_MORE_HEADS = [*(bytes((_MORE, size)) for size in range(256)), bytes((_MORE | _LONG,))]

#: A peer that announces more than this is taken for one that sends nonsense; a stranger sooner.
MAX_BYTES = 1 << 30
STRANGER_BYTES = 16 << 20
MAX_FRAMES = 1 << 13
#: Limits on the connections of a ROUTER whose peers it does not know yet: their number, and the
#: time until their peers must be known.
MAX_STRANGERS = 256
STRANGER_WITHIN_NS = 5_000_000_000
#: Pause before a ROUTER that was short of descriptors accepts connections again.
_ACCEPT_PAUSE_NS = 20_000_000
#: The call may be repeated: it would have had to wait, or the machine is short of something.
_FOR_NOW = frozenset({errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM, errno.EINTR})
_RETRY_PAUSE_S = 0.001
#: Maximum number of bytes of one read, and of sent bytes that the kernel keeps for a busy reader.
PIECE = 1 << 18
_KEPT = 1 << 20
#: Reads of up to this number of bytes are parsed from a copy: cutting frames out of it is faster.
_SMALL = 1 << 12


class _ProtocolViolation(Exception):
    """The peer sent bytes that are not ZMTP."""


def _ready(kind: bytes) -> bytes:
    properties = ((b"Socket-Type", kind), (b"Identity", b""))
    body = b"\x05READY" + b"".join(
        bytes((len(name),)) + name + len(value).to_bytes(4, "big") + value
        for name, value in properties
    )
    return bytes((_COMMAND, len(body))) + body


def receive_buffer() -> mmap.mmap:
    """Return a buffer to read into; its memory is taken as it is written, mostly a page."""
    return mmap.mmap(-1, PIECE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


class ZmtpConnection:
    """One end of a connection. Unwritten bytes wait here, in any amount."""

    def __init__(self, end: socket.socket, own: bytes, other: bytes, piece: mmap.mmap) -> None:
        end.setblocking(False)
        with contextlib.suppress(OSError):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _KEPT)
        self._socket = end
        self.descriptor = end.fileno()
        #: False once the other side is gone: nothing more comes, and what is sent is lost.
        self.is_open = True
        #: The limit of one frame.
        self.max_bytes = MAX_BYTES
        #: False once a write has failed; what the other side had sent is still read.
        self.is_writable = True
        #: Complete messages that have come.
        self.messages: deque[list[bytes]] = deque()
        #: Something waits until the socket is writable.
        self.is_blocked = False
        #: Parts of messages that the next flush() writes.
        self._pieces: list[bytes] = [_GREETING, _ready(own)]
        self._unsent: deque[bytes | memoryview] = deque()
        self._other = other
        self._is_greeted = self._is_ready = False
        self._frames: list[bytes] = []
        self._piece, self._view = piece, memoryview(piece)
        #: Bytes that have come of an incomplete frame.
        self._rest = bytearray()
        self.flush()

    # --------------------------------------------------------------- sending

    def put(self, frames: Sequence[bytes]) -> None:
        """Queue a message of these frames. All messages of one flush() wake their reader once."""
        if not self.is_writable:
            return
        pieces, follow = self._pieces, len(frames)
        for frame in frames:
            follow -= 1
            size, heads = len(frame), _MORE_HEADS if follow else _LAST_HEADS
            if size < 256:
                pieces += (heads[size], frame)
            else:
                pieces += (heads[-1] + size.to_bytes(8, "big"), frame)

    def flush(self) -> int:
        """Write waiting bytes, as far as the kernel takes them now; return their number."""
        unsent, total = self._unsent, 0
        if self._pieces:
            unsent.append(b"".join(self._pieces))
            self._pieces.clear()
        while unsent:
            data = unsent[0]
            try:
                sent = self._socket.send(data)
            except OSError as error:
                if error.errno in _FOR_NOW:
                    self.is_blocked = True
                else:
                    self._stop_writing()
                return total
            total += sent
            if sent < len(data):
                unsent[0] = memoryview(data)[sent:]
            else:
                unsent.popleft()
        self.is_blocked = False
        return total

    # ------------------------------------------------------------- receiving

    def read(self) -> int:
        """Read the arrived bytes, up to some size; return their number."""
        if not self.is_open:
            return 0
        try:
            size = self._socket.recv_into(self._piece)
        except OSError as error:
            if error.errno in _FOR_NOW:
                return 0
            size = 0
        if not size:
            self.break_off()
            return 0
        parse, data = self._parse if self._is_greeted else self._greet, self._view[:size]
        try:
            if self._rest:
                self._rest += data
                del self._rest[: parse(self._rest, len(self._rest))]
            else:
                used = parse(bytes(data) if size <= _SMALL else data, size)
                if used < size:
                    self._rest += data[used:]
        except _ProtocolViolation:
            self.break_off()
        return size

    def _parse(self, data: Any, size: int) -> int:
        """Parse complete frames; return how many bytes they had."""
        at, frames, is_ready = 0, self._frames, self._is_ready
        while at + 2 <= size:
            flags, begin = data[at], at + 2
            end = begin + data[at + 1]
            if flags & _LONG:
                begin = at + 9
                if size < begin:
                    break
                length = int.from_bytes(data[at + 1 : begin], "big")
                if length > self.max_bytes:
                    raise _ProtocolViolation
                end = begin + length
            if size < end:
                break
            at, frame = end, bytes(data[begin:end])
            if flags & _COMMAND or not is_ready:
                self._take_command(flags, frame)
                is_ready = True
                continue
            frames.append(frame)
            if not flags & _MORE:
                self.messages.append(frames)
                frames = self._frames = []
            elif len(frames) > MAX_FRAMES:
                raise _ProtocolViolation
        return at

    def _greet(self, data: Any, size: int) -> int:
        """Parse the greeting and the bytes behind it; return how many bytes they had."""
        length = len(_GREETING)
        if size < length:
            return 0
        greeting = bytes(data[:length])
        theirs = greeting[0], greeting[9], greeting[12:32]
        if theirs != (0xFF, 0x7F, _GREETING[12:32]) or greeting[10] < 3:
            raise _ProtocolViolation
        self._is_greeted = True
        return length + self._parse(data[length:], size - length)

    def _take_command(self, flags: int, frame: bytes) -> None:
        """Take READY, the only command; others would answer commands that are not sent here."""
        kind = b"\x0bSocket-Type" + len(self._other).to_bytes(4, "big") + self._other
        is_ready = flags & _COMMAND and frame.startswith(b"\x05READY") and kind in frame
        if self._is_ready or not is_ready:
            raise _ProtocolViolation
        self._is_ready = True

    # ------------------------------------------------------------------- end

    def _stop_writing(self) -> None:
        """Drop unwritten bytes, and show both sides the end of the connection."""
        self._drop_output()
        with contextlib.suppress(OSError):  # whatever other process has a copy of the descriptor
            self._socket.shutdown(socket.SHUT_RDWR)

    def break_off(self) -> None:
        """End the connection in both directions; the descriptor stays open until close()."""
        self.is_open = False
        self._stop_writing()

    def abandon(self) -> None:
        """After a fork, close the child's copy only: the connection stays the parent's."""
        self.is_open = False
        self._drop_output()
        self._socket.close()

    def _drop_output(self) -> None:
        self.is_writable = self.is_blocked = False
        self._pieces.clear()
        self._unsent.clear()

    def close(self, within_ms: int = 0) -> None:
        """Close; unwritten bytes get this long."""
        deadline = time.monotonic() + within_ms / 1000
        if within_ms:
            self.flush()
        while self.is_blocked and time.monotonic() < deadline:
            await_events(self.descriptor, select.POLLOUT, 10)
            self.flush()
        self.break_off()
        self._socket.close()


def await_events(descriptor: int, events: int, timeout_ms: int | None = None) -> bool:
    """Wait for events of a descriptor, or for its end; False after the timeout. -1 has none."""
    poller = select.poll()
    if descriptor >= 0:
        poller.register(descriptor, events)
    return bool(poller.poll(timeout_ms))


def _path(address: str) -> str:
    scheme, _, path = address.partition("://")
    assert scheme == "ipc", address
    return path


class Dealer(ZmtpConnection):
    """The end of one peer of a Router, which must be bound already.

    If no Router listens any more, it is as if the Router had died just after. Raises OSError if
    there is no descriptor for it. It does not wait for greetings, so that messages leave even if no
    thread reads here; libzmq's ROUTER would not always forgive that. Its descriptor is readable
    when receive() may have something; after the end it stays so and should not be polled. While
    `is_blocked`, flush() must be called when the descriptor is writable.
    """

    def __init__(self, address: str, connected: socket.socket | None = None) -> None:
        """Connect to the address, unless the other end of a connected socket has a Router."""
        end = connected or socket.socket(socket.AF_UNIX)
        is_connected = connected is not None
        if not is_connected:
            with contextlib.suppress(OSError):
                end.connect(_path(address))
                is_connected = True
        super().__init__(end, b"DEALER", b"ROUTER", receive_buffer())
        if not is_connected:
            self.break_off()
        #: The last read took everything, so another one would have nothing. After the messages of
        #: that read, has_input() is False once; who sees this first resets it in its place.
        self.is_dry = False

    def fileno(self) -> int:
        return self.descriptor

    def has_input(self) -> bool:
        """True if receive() has something; may miss bytes that have just arrived."""
        while not self.messages:
            if self.is_dry:
                self.is_dry = False
                return False
            size = self.read()
            if not size:
                return False
            self.is_dry = size < PIECE
        return True

    def receive(self) -> list[bytes]:
        """Return all frames of one message; to be called after has_input() only."""
        return self.messages.popleft()

    def finish(self) -> None:
        """Send queued messages and block until the kernel has them.

        For a thread that will not call flush() again soon. The Router reads at all times, and when
        it dies there is nothing to wait for.
        """
        self.flush()
        while self.is_blocked:
            await_events(self.descriptor, select.POLLOUT, 1000)
            if not self.flush():
                time.sleep(_RETRY_PAUSE_S)  # there is room, but not what it takes to use it


class Router:
    """A bound ROUTER in the epoll of its owner; each peer is known by its connection."""

    def __init__(self, address: str, epoll: select.epoll) -> None:
        path = _path(address)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        os.chmod(path, 0o666)  # for whoever may enter the directory
        self._listener.listen(4096)
        self._listener.setblocking(False)
        self._epoll = epoll
        self._piece = receive_buffer()
        self.connections: set[ZmtpConnection] = set()
        #: Connections whose peers are not known yet, oldest first, and until when they may be so.
        self._strangers: dict[ZmtpConnection, int] = {}
        #: Maximum number of these connections; further ones wait in the kernel.
        self.max_strangers = MAX_STRANGERS
        self._is_accepting = True
        #: When to accept again after a shortage; 0 at other times.
        self._accept_at_ns = 0
        #: tick() may have something to do, now or at next_due_ns().
        self.has_duties = False
        #: Functions by descriptor of the epoll. When a descriptor is ready, the owner of the epoll
        #: calls its function with the events.
        self.hears: dict[int, Callable[[int], None]] = {}
        #: Messages that have come, with their senders.
        self.inbox: deque[tuple[ZmtpConnection, list[bytes]]] = deque()
        #: Connections with messages that were queued since the last flush().
        self.unflushed: dict[ZmtpConnection, None] = {}
        #: Connections whose peers have yet to read before more can be sent.
        self.blocked: set[ZmtpConnection] = set()
        #: Bytes that all connections have received and sent, in total.
        self.received_bytes = self.sent_bytes = 0
        self._watch(self._listener.fileno(), self._accept)

    def _watch(self, descriptor: int, hear: Callable[[int], None], *, room: int = 0) -> None:
        self._epoll.register(descriptor, select.EPOLLIN | room)
        self.hears[descriptor] = hear

    def _accept(self, _: int) -> None:
        while len(self._strangers) < self.max_strangers:
            try:
                end, _address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:
                self._pause_accepting(time.monotonic_ns() + _ACCEPT_PAUSE_NS)
                return
            connection = ZmtpConnection(end, b"ROUTER", b"DEALER", self._piece)
            connection.max_bytes = STRANGER_BYTES
            try:
                room = select.EPOLLOUT if connection.is_blocked else 0
                self._watch(connection.descriptor, partial(self._handle, connection), room=room)
            except OSError:
                connection.close()  # it connects again
                continue
            self.connections.add(connection)
            if room:
                self.blocked.add(connection)
            self._strangers[connection] = time.monotonic_ns() + STRANGER_WITHIN_NS
            self.has_duties = True
        self._pause_accepting(0)

    def _pause_accepting(self, until_ns: int) -> None:
        """Stop accepting connections until this time; 0: until there are fewer strangers."""
        self._accept_at_ns, self.has_duties = until_ns, True
        if self._is_accepting:
            self._is_accepting = False
            self._epoll.modify(self._listener.fileno(), 0)

    def _accept_again(self) -> None:
        if not self._is_accepting:
            self._is_accepting, self._accept_at_ns = True, 0
            self._epoll.modify(self._listener.fileno(), select.EPOLLIN)

    def next_due_ns(self) -> int:
        """When tick() has work to do; 0 for never."""
        oldest = next(iter(self._strangers.values()), 0)
        return min(filter(None, (oldest, self._accept_at_ns)), default=0)

    def tick(self, now_ns: int) -> None:
        """Close connections that have said nothing for too long, and end the pause."""
        while self._strangers:
            connection, until_ns = next(iter(self._strangers.items()))
            if until_ns > now_ns:
                break
            if self.read(connection) and connection.is_open:
                self._strangers.pop(connection, None)
                self._strangers[connection] = now_ns + STRANGER_WITHIN_NS  # it has begun to speak
            else:
                self.close(connection)
        if self._accept_at_ns and self._accept_at_ns <= now_ns:
            self._accept_again()
        self.has_duties = bool(self._strangers or self._accept_at_ns)

    def _handle(self, connection: ZmtpConnection, events: int) -> None:
        if events & select.EPOLLOUT:
            self.unflushed[connection] = None
            self.flush()
        self.received_bytes += connection.read()
        messages = connection.messages
        while messages:
            self.inbox.append((connection, messages.popleft()))
        if not connection.is_open:
            self.close(connection)

    def read(self, connection: ZmtpConnection) -> bool:
        """Read what one peer has sent, up to some size; False if there was nothing."""
        known_bytes = self.received_bytes
        self._handle(connection, select.EPOLLIN)
        return self.received_bytes > known_bytes

    def know(self, connection: ZmtpConnection) -> None:
        """Keep a connection whose peer is known; unknown ones are kept for some seconds."""
        connection.max_bytes = MAX_BYTES
        self._forget_stranger(connection)

    def _forget_stranger(self, connection: ZmtpConnection) -> None:
        if self._strangers.pop(connection, None) is not None and not self._accept_at_ns:
            self._accept_again()

    def write(self, connection: ZmtpConnection, frames: Sequence[bytes]) -> bool:
        """Queue a message, which leaves with the next flush(); False if the peer is gone."""
        connection.put(frames)
        self.unflushed[connection] = None
        return connection.is_open

    def flush(self) -> None:
        """Write queued messages. Never blocks."""
        unflushed, blocked = self.unflushed, self.blocked
        while unflushed:
            connection, _ = unflushed.popitem()
            self.sent_bytes += connection.flush()
            if connection.is_blocked != (connection in blocked):
                self._await_room(connection)

    def _await_room(self, connection: ZmtpConnection) -> None:
        """Be woken when a peer has read, or no longer."""
        if connection.is_open:
            self.blocked ^= {connection}
            room = select.EPOLLOUT if connection.is_blocked else 0
            self._epoll.modify(connection.descriptor, select.EPOLLIN | room)

    def close(self, connection: ZmtpConnection) -> None:
        """End a connection, if it is not over already."""
        self._forget_stranger(connection)
        if connection in self.connections:
            self.connections.discard(connection)
            self.blocked.discard(connection)
            del self.hears[connection.descriptor]
            self._epoll.unregister(connection.descriptor)
            connection.close()

    def close_all(self) -> None:
        """End all connections, and close the sockets."""
        for connection in list(self.connections):
            self.close(connection)
        self._epoll.unregister(self._listener.fileno())
        self._listener.close()
