"""Sockets of libzmq, and the options that they have; the core opens them here alone.

A socket belongs to one thread at a time. ROUTER and DEALER, through which all requests pass, are in
zmtp.py. A process imports this module with the first socket, which most never open.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Any, Sequence

import zmq

from zmqtriton_floor import endpoints

Socket = Any  # zmq.Socket; generic in newer pyzmq only

#: Number of threads that libzmq starts for a context when its first socket is opened.
_THREADS = 2
_EVENTS = int(zmq.EVENTS)
_POLLIN = int(zmq.POLLIN)
_SNDMORE = int(zmq.DONTWAIT | zmq.SNDMORE)
_LAST = int(zmq.DONTWAIT)
# What a socket's own send() calls after it has looked at options that we never use.
_put: Any = zmq.backend.Socket.send


def open_socket(context: Any, kind: int) -> Socket:
    """Open a socket without limits, which drops unsent messages when it is closed.

    Raises RuntimeError if libzmq cannot have its threads.
    """
    _check_threads()
    socket = context.socket(kind)
    # no high-water mark: a publisher that reaches it drops silently; credits limit the memory
    socket.setsockopt(zmq.SNDHWM, 0)
    socket.setsockopt(zmq.RCVHWM, 0)
    socket.setsockopt(zmq.LINGER, 0)
    return socket


def _check_threads() -> None:
    """Raise RuntimeError if libzmq cannot have its threads: libzmq would end the process."""
    is_over = threading.Event()
    started = []
    try:
        for _ in range(_THREADS):
            thread = threading.Thread(target=is_over.wait, daemon=True)
            thread.start()
            started.append(thread)
    finally:
        is_over.set()
        for thread in started:
            thread.join()


def open_puller(context: Any, address: str, limit: int) -> Socket:
    """Open a bound PULL that takes up to `limit` messages of each peer."""
    socket = open_socket(context, zmq.PULL)
    socket.setsockopt(zmq.RCVHWM, limit)
    socket.bind(address)
    os.chmod(address.partition("://")[2], 0o666)  # for whoever may enter the directory
    return socket


def open_publisher(context: Any, address: str, listener: int | None = None) -> Socket:
    """Open a bound XPUB; what it receives are subscriptions: 1 or 0, and the topic.

    The listener is a socket that another process has bound to that address. It is closed with this
    socket.
    """
    socket = open_socket(context, zmq.XPUB)
    if listener is None:
        socket.bind(address)
    else:
        take_subscribers(socket, address, listener)
    return socket


def take_subscribers(socket: Socket, address: str, listener: int) -> None:
    """Let a publisher accept subscribers at another listener, in addition to its earlier ones.

    Earlier listeners are kept: libzmq ends their connections with them.
    """
    socket.setsockopt(zmq.USE_FD, listener)
    socket.bind(address)


def open_subscriber(context: Any, serial: int) -> Socket:
    """Open a SUB for this peer's topic, to be connected to publishers."""
    socket = open_socket(context, zmq.SUB)
    # a connection may end though its stub lives; stubs that are gone never come back, and are
    # asked for less and less often
    socket.setsockopt(zmq.RECONNECT_IVL, 50)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 10_000)
    socket.setsockopt(zmq.SUBSCRIBE, endpoints.topic(serial))
    return socket


def has_input(socket: Socket) -> bool:
    """True if receive() has something.

    The FD is edge-triggered: ask until this is False, and again after every send, before waiting on
    the FD.
    """
    return bool(socket.get(_EVENTS) & _POLLIN)


def receive(socket: Socket) -> list[bytes]:
    """Return all frames of one message; to be called after has_input() only."""
    frame = socket.recv(_LAST, False)
    frames = [frame.bytes]
    while frame.more:
        frame = socket.recv(_LAST, False)
        frames.append(frame.bytes)
    return frames


def take(socket: Socket) -> list[bytes] | None:
    """Return all frames of one message, or None; then wait on the FD.

    Cheaper than has_input() and receive() if many messages come at a time.
    """
    try:
        return receive(socket)
    except zmq.Again:
        return None


def send(socket: Socket, frames: Sequence[bytes]) -> None:
    """Queue a message of these frames. Raises zmq.Again at the socket's high-water mark."""
    for frame in frames[:-1]:
        _put(socket, frame, _SNDMORE)
    _put(socket, frames[-1], _LAST)


class Pusher:
    """A PUSH that keeps up to `limit` messages for a slow or absent peer."""

    def __init__(self, address: str, limit: int) -> None:
        #: Context of this socket alone, so that close() waits for the messages of no other one.
        self._context = zmq.Context()
        self._socket = open_socket(self._context, zmq.PUSH)
        self._socket.setsockopt(zmq.SNDHWM, limit)
        self._socket.connect(address)

    def offer(self, frames: Sequence[bytes]) -> bool:
        """Queue a message of these frames; False, and the message is lost, if too many wait."""
        try:
            send(self._socket, frames)
        except zmq.Again:
            return False
        return True

    def close(self, linger_ms: int) -> None:
        """Close the socket; the peer has `linger_ms` to receive queued messages."""
        self._socket.close(linger_ms)
        self._context.term()


class Subscriber:
    """A SUB for this peer's topic."""

    def __init__(self, serial: int) -> None:
        self._socket = open_subscriber(zmq.Context.instance(), serial)
        self.descriptor: int = self._socket.get(zmq.FD)

    def connect(self, address: str) -> None:
        self._socket.connect(address)

    def disconnect(self, address: str) -> None:
        """Leave a publisher; libzmq may have forgotten it by itself."""
        with contextlib.suppress(zmq.ZMQError):
            self._socket.disconnect(address)

    def take(self) -> list[bytes] | None:
        """Return all frames of one message, or None."""
        return take(self._socket)

    def close(self) -> None:
        self._socket.close(0)
