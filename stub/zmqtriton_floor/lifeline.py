"""A lifeline: the socketpair between the supervisor and one child, for control messages.

No other process can connect to it, so what arrives is from the supervisor or from the child itself.
A message is cut into packets, each with one byte (1: the last) and up to 60 KiB, since a packet
must fit into the socket's buffer. Sending never blocks: what the kernel does not take waits in a
queue.
"""

from __future__ import annotations

import array
import errno
import os
import select
import socket
import threading
from collections import deque
from contextlib import suppress
from typing import Any

from zmqtriton_floor import wire
from zmqtriton_floor.errors import ProtocolError

_PACKET = 60 * 1024
_PART, _LAST = b"\x00", b"\x01"
_MAX_DESCRIPTORS = 16
#: More packets than there will ever be.
NO_LIMIT = 1 << 60
#: The other end is closed. After any other error the call is repeated: it says that the machine is
#: short of something, and not that the other process is dead.
_CLOSED = frozenset({errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN})


def pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected ends."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


class Lifeline:
    """One end. Several threads may send; one thread receives."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._socket = end
        self._outgoing: deque[tuple[bytes, list[int]]] = deque()
        self._incoming = bytearray()
        self._descriptors: list[int] = []
        # a destructor may send in the thread that sends, at a collection
        self._lock = threading.RLock()
        self._is_flushing = False
        #: The other end takes nothing more. What it had sent before is still to be received.
        self._is_deaf = False
        #: Something waits for the descriptor to become writable.
        self.is_backed_up = False
        #: Messages that did not decode.
        self.malformed = 0
        #: The other end is closed; nothing will arrive any more.
        self.ended = False

    @classmethod
    def inherited(cls, descriptor: int) -> Lifeline:
        """Return the end that a child was started with; its own children must not have it."""
        os.set_inheritable(descriptor, False)
        return cls(socket.socket(fileno=descriptor))

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        """End the connection itself: the other end sees it, even if a fork holds a copy of ours."""
        if not self.ended:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._close()

    def hang_up(self) -> None:
        """Send nothing more. The other end sees an end of file, and closes when it has read all."""
        with self._lock, suppress(OSError):
            self._is_deaf = True
            self._socket.shutdown(socket.SHUT_WR)

    def _close(self) -> None:
        self.ended = True
        self._socket.close()
        self.is_backed_up = False
        while self._outgoing:
            self._drop(self._outgoing.popleft()[1])

    def abandon(self) -> None:
        """After a fork, close the child's copy only: the lifeline stays the parent's."""
        self._lock = threading.RLock()  # a thread that is not here may have held it
        self._outgoing = deque()
        self._close()

    def send(self, message: Any, *descriptors: int) -> None:
        """Queue a message with duplicates of the descriptors; it is lost if the end is closed.

        Raises OSError if there are no descriptors left for the duplicates.
        """
        data = memoryview(wire.encode(message))
        packets = [bytes(data[i : i + _PACKET]) for i in range(0, len(data), _PACKET)]
        with self._lock:
            if self.ended or self._is_deaf:
                return
            own: list[int] = []
            try:
                own.extend(os.dup(descriptor) for descriptor in descriptors)
            except OSError:
                self._drop(own)
                raise
            parts: list[tuple[bytes, list[int]]] = [(_PART + part, []) for part in packets[:-1]]
            self._outgoing.extend([*parts, (_LAST + packets[-1], own)])
            self._flush()

    def flush(self) -> None:
        """Send as many queued packets as the kernel takes now."""
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        if self._is_flushing:  # below, and it goes on with what is queued by now
            return
        self._is_flushing = True
        try:
            self._send_queued()
        finally:
            self._is_flushing = False

    def _send_queued(self) -> None:
        while self._outgoing and not self.ended:
            packet, descriptors = self._outgoing[0]
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
            try:
                self._socket.sendmsg([packet], [rights] * bool(descriptors), socket.MSG_NOSIGNAL)
            except OSError as error:
                if error.errno not in _CLOSED:
                    self.is_backed_up = True
                    return
                self._is_deaf = True
            self._outgoing.popleft()
            self._drop(descriptors)
        self.is_backed_up = False

    @staticmethod
    def _drop(descriptors: list[int]) -> None:
        for descriptor in descriptors:
            os.close(descriptor)

    def receive(self, most_packets: int = NO_LIMIT) -> list[tuple[Any, list[int]]]:
        """Return all complete messages, each with its descriptors, which the caller owns.

        Messages that do not decode are counted and left out. The next call returns packets beyond
        `most_packets`: the other end may send as fast as this one reads.
        """
        messages: list[tuple[Any, list[int]]] = []
        room = socket.CMSG_SPACE(_MAX_DESCRIPTORS * 4)
        for _ in range(0 if self.ended else most_packets):
            try:
                packet, ancillary, _, _ = self._socket.recvmsg(
                    _PACKET + 1, room, socket.MSG_CMSG_CLOEXEC
                )
            except OSError as error:
                if error.errno not in _CLOSED:
                    break
                packet, ancillary = b"", []
            for level, kind, data in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    self._descriptors.extend(array.array("i", data[: len(data) // 4 * 4]))
            if not packet:
                self.ended = True
                break
            self._incoming += packet[1:]
            if packet[:1] == _LAST or len(self._incoming) > wire.MAX_CONTROL_BYTES:
                self._take(messages)
        return messages

    def _take(self, messages: list[tuple[Any, list[int]]]) -> None:
        data, descriptors = bytes(self._incoming), self._descriptors
        self._incoming, self._descriptors = bytearray(), []
        try:
            message = wire.decode(data, wire.MAX_CONTROL_BYTES)
        except ProtocolError:
            self.malformed += 1
            self._drop(descriptors)
            return
        messages.append((message, descriptors))

    def wait(self, timeout_s: float | None = None) -> bool:
        """Flush, and block until receive() has a message or the connection has ended.

        Returns False after the timeout.
        """
        poller = select.poll()
        while True:
            poller.register(self, select.POLLIN | (select.POLLOUT if self.is_backed_up else 0))
            events = poller.poll(None if timeout_s is None else timeout_s * 1000)
            self.flush()
            if not events:
                return False
            if events[0][1] & ~select.POLLOUT:
                return True
