"""A client of the door written by docs/door.md alone: zmq and msgpack, nothing of ours.

And requests to models of the tests.
"""

from __future__ import annotations

import itertools
import struct
from typing import Any

import msgpack
import zmq

from tests.support.journal import UNTIL_RELEASED

VERSION = 1


class RawDoor:
    """One connection; to be used with `with`."""

    def __init__(self, path: str, *, receive_limit: int = 1000, identity: bytes = b"") -> None:
        self._context = zmq.Context()
        self.socket: Any = self._context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.RCVHWM, receive_limit)
        self.socket.setsockopt(zmq.RCVTIMEO, 60_000)
        if identity:
            self.socket.setsockopt(zmq.IDENTITY, identity)
        self.socket.connect(f"ipc://{path}")
        self._ids = itertools.count(1)

    def send(
        self, verb: str, fields: dict[str, Any] | None = None, *frames: bytes, id: int = 0
    ) -> int:
        """Sends a request and returns its id."""
        number = id or next(self._ids)
        header = msgpack.packb([VERSION, verb, number, fields or {}])
        self.socket.send_multipart([header, *frames])
        return number

    def receive(self) -> tuple[str, int, dict[str, Any], list[bytes]]:
        """Kind, id, fields and frames of the next message."""
        header, *frames = self.socket.recv_multipart()
        version, kind, number, fields = msgpack.unpackb(header)
        assert version == VERSION
        return kind, number, fields, frames

    def ask(
        self, verb: str, fields: dict[str, Any] | None = None, *frames: bytes
    ) -> tuple[str, dict[str, Any], list[bytes]]:
        """Sends a request and returns kind, fields and frames of the one message that it gets."""
        number = self.send(verb, fields, *frames)
        kind, answered, content, data = self.receive()
        assert answered == number
        return kind, content, data

    def close(self) -> None:
        self.socket.close()
        self._context.term()

    def __enter__(self) -> RawDoor:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def floats(model: str, count: int, **fields: Any) -> dict[str, Any]:
    """The fields of an inference with one input of numbers."""
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [count]}
    return {"model": model, "inputs": [tensor], **fields}


def tokens(count: int, delay_us: int = 0, **fields: Any) -> tuple[dict[str, Any], bytes, bytes]:
    inputs = [{"name": name, "datatype": "INT32", "shape": [1]} for name in ("COUNT", "DELAY_US")]
    numbers = struct.pack("<i", count), struct.pack("<i", delay_us)
    return {"model": "tokens", "inputs": inputs, **fields}, *numbers


def held(name: str) -> tuple[dict[str, Any], bytes, bytes]:
    """An execution that lasts until it is released."""
    inputs = [
        {"name": "ID", "datatype": "BYTES", "shape": [1, 1]},
        {"name": "MS", "datatype": "INT32", "shape": [1, 1]},
    ]
    fields = {"model": "journal", "inputs": inputs}
    text = struct.pack("<I", len(name)) + name.encode()
    return fields, text, struct.pack("<i", UNTIL_RELEASED)
