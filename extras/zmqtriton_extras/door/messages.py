"""The messages of the door, for both ends: the header in msgpack, and the frames behind it.

    +--------+---------+---------+---
    | header | frame 0 | frame 1 | ...
    +--------+---------+---------+---

The **header** is one msgpack array `[VERSION, verb, id, fields]`, its fields a map; docs/door.md
has the verbs and their fields. Each tensor or file is a frame, a zmq.Frame, so that large ones are
not copied. A socket belongs to one thread at a time.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgpack
import zmq

from zmqtriton.sdk.process import zmq_sockets
from zmqtriton.sdk.wire import InvalidArgument, Unsupported

Socket = Any  # zmq.Socket; generic in newer pyzmq only

_SNDMORE = int(zmq.DONTWAIT | zmq.SNDMORE)
_LAST = int(zmq.DONTWAIT)
#: The event and its value, a descriptor.
_MONITOR_EVENT = struct.Struct("=Hi")
# What a socket's own send() calls after it has looked at options that we never use.
_put: Any = zmq.backend.Socket.send
#: Incremented with each incompatible change; answers may get new fields without one.
VERSION = 1
#: A larger header is refused unread.
MAX_HEADER_BYTES = 1 << 20
#: Maximum number of frames after the header of a message.
MAX_FRAMES = 1024
#: Larger frames end their connection.
MAX_FRAME_BYTES = 2**31 - 1
#: The id of errors that are about no request.
NO_ID = 0

_MAX_ID = 2**63 - 1


class Header(NamedTuple):
    """The fields of a message's header."""

    verb: str
    #: The client's number of the request.
    id: int
    fields: dict[str, Any]


class BadHeader(InvalidArgument):
    """Raised for a header that does not decode; `id` is the request's id if it can be read."""

    id = NO_ID


def encode(verb: str, id: int, fields: Mapping[str, Any]) -> bytes:
    """Return a header."""
    header: bytes = msgpack.Packer().pack((VERSION, verb, id, fields))
    return header


def decode(header: Any) -> Header:
    """Read a header. Raises BadHeader, and Unsupported for another version."""
    if len(header) > MAX_HEADER_BYTES:
        raise BadHeader(f"a header cannot be larger than {MAX_HEADER_BYTES} bytes")
    try:
        array = msgpack.unpackb(header)
    except (ValueError, TypeError, RecursionError, OverflowError):
        raise BadHeader("the header must be msgpack") from None
    if type(array) is not list or not array or type(array[0]) is not int:
        raise BadHeader("the header must be an array of version, verb, id and fields")
    if array[0] != VERSION:
        raise Unsupported(f"version {array[0]} of the protocol is not spoken: use {VERSION}")
    if len(array) != 4:
        raise BadHeader("the header must be an array of version, verb, id and fields")
    _, verb, number, fields = array
    if type(number) is not int or not NO_ID <= number <= _MAX_ID:
        raise BadHeader(f"the id of a request must be an integer from 1 to {_MAX_ID}")
    if type(verb) is not str or type(fields) is not dict:
        error = BadHeader("the verb must be a string and the fields a map")
        error.id = number
        raise error
    return Header(verb, number, fields)


def open_server(
    context: Any, path: str, listener: int, max_bytes: int, waiting: tuple[int, int]
) -> tuple[Socket, Socket]:
    """Open the ROUTER over a listening socket, which is closed with it.

    `waiting` has two limits for each client: messages to it that it has not read, and messages from
    it that this process has not taken. A frame of more than `max_bytes` ends a connection. The
    other socket reports all connections.
    """
    socket = zmq_sockets.open_socket(context, zmq.ROUTER)
    socket.setsockopt(zmq.SNDHWM, waiting[0])
    socket.setsockopt(zmq.RCVHWM, waiting[1])
    socket.setsockopt(zmq.MAXMSGSIZE, max_bytes)
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    socket.setsockopt(zmq.USE_FD, listener)
    # before anybody is accepted: some may have connected already
    monitor = _watch_connections(socket)
    socket.bind("ipc://" + path)
    return socket, monitor


def open_client(context: Any, path: str) -> tuple[Socket, Socket]:
    """Open a connected DEALER, and a socket that reports the end of the connection."""
    socket = zmq_sockets.open_socket(context, zmq.DEALER)
    monitor = _watch_connections(socket)
    socket.connect("ipc://" + path)
    return socket, monitor


def _watch_connections(socket: Socket) -> Socket:
    """Return a socket that reports begun and ended connections, for connection_event()."""
    return socket.get_monitor_socket(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)


def connection_event(monitor: Socket) -> tuple[bool, int] | None:
    """Return whether a connection has begun (or ended) and its descriptor; or None."""
    frames = zmq_sockets.take(monitor)
    if frames is None:
        return None
    event, descriptor = _MONITOR_EVENT.unpack(frames[0])
    return event == zmq.EVENT_ACCEPTED, descriptor


def take_frames(socket: Socket) -> list[Any] | None:
    """Return all frames of one message, or None; then wait on the FD."""
    try:
        frames = [socket.recv(_LAST, False)]
    except zmq.Again:
        return None
    while frames[-1].more:
        frames.append(socket.recv(_LAST, False))
    return frames


def await_frames(socket: Socket) -> list[Any]:
    """Wait for a message as long as the socket's RCVTIMEO says. Raises zmq.Again after that."""
    frames = [socket.recv(0, False)]
    while frames[-1].more:
        frames.append(socket.recv(_LAST, False))
    return frames


def descriptor_of(frame: Any) -> int:
    """Return the descriptor of the connection that a frame came by.

    -1 for a protocol older than ZMTP 3: libzmq does not report it there.
    """
    try:
        return int(frame.get(zmq.SRCFD))
    except zmq.ZMQError:
        return -1


def send_frames(socket: Socket, frames: Sequence[Any], copied_bytes: int) -> None:
    """Queue a message of buffers; large buffers are not copied. Raises the errors of send()."""
    last = len(frames) - 1
    for i, frame in enumerate(frames):
        flags = _LAST if i == last else _SNDMORE
        if len(frame) > copied_bytes:
            socket.send(frame, flags, copy=False)
        else:
            _put(socket, frame, flags)
