"""The addresses of sockets: short numbers in the runtime directory, never made of model names."""

from __future__ import annotations

import contextlib
import os
import socket as _socket

#: The length of a topic.
TOPIC_BYTES = 8

#: Subscribers that may connect before the publisher has taken the first.
_BACKLOG = 128


def requests_address(directory: str, epoch: int) -> str:
    """Return the address of the broker's ROUTER for frontends and calling models."""
    return "ipc://" + os.path.join(directory, f"requests-{epoch}")


def stubs_address(directory: str, epoch: int) -> str:
    """Return the address of the broker's ROUTER for stubs."""
    return "ipc://" + os.path.join(directory, f"stubs-{epoch}")


def stream_path(directory: str, serial: int) -> str:
    """Return the path of a stub's XPUB socket; after a kill the file remains, unused."""
    return os.path.join(directory, f"stream-{serial}")


def stream_address(directory: str, serial: int) -> str:
    """Return the address of the XPUB of a stub with a decoupled model, for the frontends."""
    return "ipc://" + stream_path(directory, serial)


def topic(serial: int) -> bytes:
    """Return the start of the first frame of a message to this peer, before the header.

    All topics have the same length, so that none is a prefix of another.
    """
    return serial.to_bytes(TOPIC_BYTES, "big")


def local_service_path(directory: str, name: str) -> str:
    """Return the file of the socket at which a process serves clients on this machine."""
    return os.path.join(directory, name)


def spans_address(directory: str) -> str:
    """Return the address of the tracing process's PULL socket."""
    return "ipc://" + os.path.join(directory, "spans")


def listen(directory: str, serial: int) -> int:
    """Return the descriptor of a new socket at a stub's stream_path(), for open_publisher()."""
    path = stream_path(directory, serial)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    with _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_NONBLOCK) as listener:
        listener.bind(path)
        listener.listen(_BACKLOG)
        return listener.detach()
