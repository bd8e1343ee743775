"""The server as an attacker has it: where it listens, a token for it, and connections to it.

Attackers come from addresses of their own of this machine, or all from one, as the seed decides.
"""

from __future__ import annotations

import json
import random
import socket
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple

from tests.support import raw_http2 as h2
from tests.support.raw_http import raw_request

#: Asked by attackers alone, so that nobody waits for them who asks other models.
SIZED, STREAMED, ECHO, SPOKEN, ENDLESS = "sized", "streaming", "echo", "parrot", "endless"
#: Has routes of its own.
ROUTED = "routed"
#: Overwrites the page that tells how far it is.
OVERWRITING = "overwriting"
#: How many models there are with a chat template that does not end.
TEMPLATES = 3
_FIRST = h2.PREFACE + h2.settings_frame({})


class Target(NamedTuple):
    http_port: int
    grpc_port: int
    door: str
    #: What all need to ask a model; "" if there are no tokens.
    token: str

    @classmethod
    def read(cls, text: str) -> Target:
        return cls(**json.loads(text))

    def written(self) -> str:
        return json.dumps(self._asdict())

    @property
    def headers(self) -> dict[str, str]:
        """The headers that clients send with each request."""
        return {"authorization": f"Bearer {self.token}"} if self.token else {}


class Attacker:
    """One attack: chance, time, and all that it has opened."""

    def __init__(self, target: Target, seed: str, seconds: float, stack: ExitStack) -> None:
        self.target = target
        self.chance = random.Random(seed)
        self.end = time.monotonic() + seconds
        self.stack = stack
        self._one_address = f"127.0.{self.chance.randint(1, 9)}.{self.chance.randint(1, 250)}"
        self._has_one = self.chance.random() < 0.5

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.end

    def wait(self) -> None:
        """Wait until the time is up, with all that it has opened."""
        time.sleep(max(0.0, self.end - time.monotonic()))

    def between(self, minimum: int, maximum: int) -> int:
        """Return a number; each order of magnitude is as likely as another."""
        return round(minimum * (maximum / minimum) ** self.chance.random())

    @property
    def place(self) -> str:
        """An address to come from."""
        if self._has_one:
            return self._one_address
        return f"127.0.{self.chance.randint(10, 200)}.{self.chance.randint(1, 250)}"

    # -------------------------------------------------------------------- HTTP

    def connect(self, data: bytes = b"", room: int = 0) -> socket.socket | None:
        """Connect over HTTP and send, with so much room for answers; None if that was refused."""
        connection = self.stack.enter_context(socket.socket())
        if room:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        connection.settimeout(2)
        try:
            connection.bind((self.place, 0))
            connection.connect(("127.0.0.1", self.target.http_port))
            connection.sendall(data)
        except OSError:
            connection.close()
            return None
        connection.settimeout(0.2)
        return connection

    def connections(self, count: int, data: bytes = b"", room: int = 0) -> Iterator[socket.socket]:
        """Connect so often while there is time; iterate over what was not refused."""
        return filter(None, (self.connect(data, room) for _ in range(count) if not self.is_over))

    def pour(self, data: bytes, connections: int, within_s: float, *, head: bytes = b"") -> None:
        """Send data on connections one after the other, as far as each takes it in time."""
        for connection in self.connections(connections, head):
            connection.settimeout(within_s)
            send_quietly(connection, data)

    def trickle(self, connections: Iterable[socket.socket], data: bytes, pause_s: float) -> None:
        """Send data byte by byte, a byte on each connection between two pauses."""
        rows = [(connection, iter(data)) for connection in connections]
        while not self.is_over:
            for connection, rest in rows:
                with suppress(OSError, StopIteration):
                    connection.send(bytes((next(rest),)))
            time.sleep(pause_s)

    def knock(
        self,
        make: Callable[[], bytes],
        pause_s: tuple[float, float] = (0.0, 0.0),
        *,
        leaving: float = 1.0,
        room: int = 0,
    ) -> None:
        """Connect again and again with what is made; so many leave after a pause."""
        while not self.is_over:
            connection = self.connect(make(), room)
            time.sleep(self.chance.uniform(*pause_s))
            if connection is not None and self.chance.random() < leaving:
                connection.close()

    def ask(self, path: str, document: dict[str, Any]) -> bytes:
        """Return a POST of JSON."""
        return self.request(path, json.dumps(document).encode())

    def request(self, path: str, body: bytes = b"", **headers: str) -> bytes:
        """Return a POST, or a GET without a body, of somebody who may ask."""
        headers = headers | self.target.headers
        return raw_request("POST" if body else "GET", path, body, **headers)

    # -------------------------------------------------------------------- gRPC

    def call(self, first: bytes = _FIRST) -> h2.Connection | None:
        """Connect over gRPC; None if that was refused."""
        try:
            made = h2.Connection(self.target.grpc_port, first, self.place)
        except OSError:
            return None
        self.stack.callback(made.close)
        return made

    def calls(self, count: int, first: bytes = _FIRST) -> Iterator[h2.Connection]:
        """Connect so often over gRPC; iterate over the connections that were not refused."""
        return filter(None, (self.call(first) for _ in range(count)))

    def begin(self, stream: int, path: str, *, encoding: str = "", more: bytes = b"") -> bytes:
        """Return the headers of an RPC of somebody who may ask."""
        block = h2.header_block(path) + more
        if self.target.token:
            block += _literal(b"authorization", b"Bearer " + self.target.token.encode())
        if encoding:
            block += _literal(b"grpc-encoding", encoding.encode())
        return h2.frame(h2.HEADERS, h2.END_HEADERS, stream, block)


def _literal(name: bytes, value: bytes) -> bytes:
    assert max(len(name), len(value)) < 127
    return bytes((0, len(name))) + name + bytes((len(value),)) + value


def pack(data: bytes, encoding: str, times: int = 1) -> bytes:
    """Compress it so many times in a row, without ever having all of it."""
    stream = zlib.compressobj(9, zlib.DEFLATED, {"gzip": 31, "deflate": 15}[encoding])
    return b"".join([*(stream.compress(data) for _ in range(times)), stream.flush()])


def message_frames(
    stream: int, message: bytes, *, is_compressed: bool = False, is_last: bool = False
) -> bytes:
    """Return a message of gRPC in as many frames as it takes."""
    whole = bytes((is_compressed,)) + len(message).to_bytes(4, "big") + message
    parts = [whole[at : at + 16_000] for at in range(0, len(whole), 16_000)]
    last = [0] * (len(parts) - 1) + [h2.END_STREAM if is_last else 0]
    return b"".join(
        h2.frame(h2.DATA, flags, stream, part) for flags, part in zip(last, parts, strict=True)
    )


def send_quietly(connection: Any, data: bytes) -> bool:
    """Return whether all of it was taken."""
    with suppress(OSError):
        connection.sendall(data)
        return True
    return False
