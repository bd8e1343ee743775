"""The addresses of ZeroMQ sockets and the options of libzmq's; the core opens these here alone.

Addresses are short numbers in the runtime directory, never made of model names. A socket belongs to
one thread at a time. ROUTER and DEALER, through which all requests pass, are in zmtp.py.
"""

from __future__ import annotations

import contextlib
import os
import socket as _socket
import threading
from typing import Any, Sequence

import zmq

Socket = Any  # zmq.Socket; generic in newer pyzmq only

#: The length of a topic.
TOPIC_BYTES = 8

#: Of a context, when it has its first socket.
_THREADS = 2
#: Subscribers that may connect before the publisher has taken the first.
_BACKLOG = 128
_EVENTS = int(zmq.EVENTS)
_POLLIN = int(zmq.POLLIN)
_SNDMORE = int(zmq.DONTWAIT | zmq.SNDMORE)
_LAST = int(zmq.DONTWAIT)
# What a socket's own send() calls after it has looked at options that we never use.
_put: Any = zmq.backend.Socket.send


def requests_address(directory: str, epoch: int) -> str:
    """Return the address of the broker's ROUTER for frontends and calling models."""
    return "ipc://" + os.path.join(directory, f"requests-{epoch}")


def stubs_address(directory: str, epoch: int) -> str:
    """Return the address of the broker's ROUTER for stubs."""
    return "ipc://" + os.path.join(directory, f"stubs-{epoch}")


def stream_path(directory: str, serial: int) -> str:
    """Return the file of a stub's XPUB; after a kill it stays and is of no use."""
    return os.path.join(directory, f"stream-{serial}")


def stream_address(directory: str, serial: int) -> str:
    """Return the address of the XPUB of a stub with a decoupled model, for the frontends."""
    return "ipc://" + stream_path(directory, serial)


def topic(serial: int) -> bytes:
    """Return the start of the first frame of a message to this peer, before the header.

    All topics have the same length, so that none is a prefix of another.
    """
    return serial.to_bytes(TOPIC_BYTES, "big")


def open_socket(context: Any, kind: int) -> Socket:
    """Open a socket without limits, which drops unsent messages when it is closed.

    Raises RuntimeError if there can be no threads for it.
    """
    _check_threads()
    socket = context.socket(kind)
    # no high-water mark: a publisher that reaches it drops silently; credits limit the memory
    socket.setsockopt(zmq.SNDHWM, 0)
    socket.setsockopt(zmq.RCVHWM, 0)
    socket.setsockopt(zmq.LINGER, 0)
    return socket


def _check_threads() -> None:
    """Start as many threads as libzmq will, which ends the process if it cannot have them."""
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


def local_service_path(directory: str, name: str) -> str:
    """Return the file of the socket at which a process serves clients on this machine."""
    return os.path.join(directory, name)


def spans_address(directory: str) -> str:
    """Return the address of the PULL of the tracing process."""
    return "ipc://" + os.path.join(directory, "spans")


def open_pusher(context: Any, address: str, limit: int) -> Socket:
    """Open a connected PUSH that keeps up to `limit` messages for a slow or absent peer."""
    socket = open_socket(context, zmq.PUSH)
    socket.setsockopt(zmq.SNDHWM, limit)
    socket.connect(address)
    return socket


def open_puller(context: Any, address: str, limit: int) -> Socket:
    """Open a bound PULL that takes up to `limit` messages of each peer."""
    socket = open_socket(context, zmq.PULL)
    socket.setsockopt(zmq.RCVHWM, limit)
    socket.bind(address)
    os.chmod(address.partition("://")[2], 0o666)  # for whoever may enter the directory
    return socket


def listen(directory: str, serial: int) -> int:
    """Return the descriptor of a new socket at a stub's stream_path(), for open_publisher()."""
    path = stream_path(directory, serial)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    with _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_NONBLOCK) as listener:
        listener.bind(path)
        listener.listen(_BACKLOG)
        return listener.detach()


def open_publisher(context: Any, address: str, listener: int | None = None) -> Socket:
    """Open a bound XPUB; what it receives are subscriptions: 1 or 0, and the topic.

    The listener is a socket that somebody else has bound to that address, and is closed with it.
    """
    socket = open_socket(context, zmq.XPUB)
    if listener is None:
        socket.bind(address)
    else:
        take_subscribers(socket, address, listener)
    return socket


def take_subscribers(socket: Socket, address: str, listener: int) -> None:
    """Let a publisher take subscribers at a listener, beside those that it takes already.

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
    socket.setsockopt(zmq.SUBSCRIBE, topic(serial))
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
    """Queue one message. Raises zmq.Again at the high-water mark of a socket that has one."""
    for frame in frames[:-1]:
        _put(socket, frame, _SNDMORE)
    _put(socket, frames[-1], _LAST)
