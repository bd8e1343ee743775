"""Where the ZeroMQ sockets are, and how those of libzmq are set; the only place that opens these.

Addresses are short numbers in the runtime directory, never made of model names. A socket belongs to
one thread at a time. ROUTER and DEALER, through which all requests pass, are in zmtp.py.
"""

from __future__ import annotations

import os
from typing import Any, Sequence

import zmq

Socket = Any  # zmq.Socket; generic in newer pyzmq only

#: Of a topic.
TOPIC_BYTES = 8

_EVENTS = int(zmq.EVENTS)
_POLLIN = int(zmq.POLLIN)
_SNDMORE = int(zmq.DONTWAIT | zmq.SNDMORE)
_LAST = int(zmq.DONTWAIT)
# What a socket's own send() calls after it has looked at options that we never use.
_put: Any = zmq.backend.Socket.send


def requests_address(directory: str, epoch: int) -> str:
    """The broker's ROUTER for frontends and models that ask."""
    return "ipc://" + os.path.join(directory, f"requests-{epoch}")


def stubs_address(directory: str, epoch: int) -> str:
    """The broker's ROUTER for stubs."""
    return "ipc://" + os.path.join(directory, f"stubs-{epoch}")


def stream_path(directory: str, serial: int) -> str:
    """The file of a stub's XPUB; it stays where the stub is killed, and is of no use then."""
    return os.path.join(directory, f"stream-{serial}")


def stream_address(directory: str, serial: int) -> str:
    """The XPUB of a stub with a decoupled model, for the frontends."""
    return "ipc://" + stream_path(directory, serial)


def topic(serial: int) -> bytes:
    """What the first frame of a message to this peer begins with, before the header; all are
    equally long, so that none begins another."""
    return serial.to_bytes(TOPIC_BYTES, "big")


def _open(context: Any, kind: int) -> Socket:
    socket = context.socket(kind)
    # No marks: a publisher at its mark drops silently. Credits bound the memory.
    socket.setsockopt(zmq.SNDHWM, 0)
    socket.setsockopt(zmq.RCVHWM, 0)
    socket.setsockopt(zmq.LINGER, 0)
    return socket


def spans_address(directory: str) -> str:
    """The PULL of the process that keeps traces."""
    return "ipc://" + os.path.join(directory, "spans")


def open_pusher(context: Any, address: str, limit: int) -> Socket:
    """A connected PUSH that keeps up to `limit` messages for a peer that is not there, or slow."""
    socket = _open(context, zmq.PUSH)
    socket.setsockopt(zmq.SNDHWM, limit)
    socket.connect(address)
    return socket


def open_puller(context: Any, address: str, limit: int) -> Socket:
    """A bound PULL that takes in up to `limit` messages of each peer."""
    socket = _open(context, zmq.PULL)
    socket.setsockopt(zmq.RCVHWM, limit)
    socket.bind(address)
    return socket


def open_publisher(context: Any, address: str) -> Socket:
    """A bound XPUB; what it receives are subscriptions: 1 or 0, and the topic."""
    socket = _open(context, zmq.XPUB)
    socket.bind(address)
    return socket


def open_subscriber(context: Any, serial: int) -> Socket:
    """A SUB for this peer's topic, to be connected to publishers."""
    socket = _open(context, zmq.SUB)
    # One that is gone does not come back: its number is never used again.
    socket.setsockopt(zmq.RECONNECT_IVL, -1)
    socket.setsockopt(zmq.SUBSCRIBE, topic(serial))
    return socket


def has_input(socket: Socket) -> bool:
    """Whether receive() has something. The FD is edge-triggered: ask until this says no, and
    again after every send, before waiting on the FD."""
    return bool(socket.get(_EVENTS) & _POLLIN)


def receive(socket: Socket) -> list[bytes]:
    """All frames of one message; call it after has_input() only."""
    frame = socket.recv(_LAST, False)
    frames = [frame.bytes]
    while frame.more:
        frame = socket.recv(_LAST, False)
        frames.append(frame.bytes)
    return frames


def take(socket: Socket) -> list[bytes] | None:
    """All frames of one message, or None if there is none; then wait on the FD. Cheaper than
    has_input() and receive() where many come at a time."""
    try:
        return receive(socket)
    except zmq.Again:
        return None


def send(socket: Socket, frames: Sequence[bytes]) -> None:
    """Queues one message; raises zmq.Again at the mark of a socket that has one."""
    for frame in frames[:-1]:
        _put(socket, frame, _SNDMORE)
    _put(socket, frames[-1], _LAST)
