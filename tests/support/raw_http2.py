"""HTTP/2 by hand, for frames that no client library sends, at a server of gRPC.

    with Connection(server.grpc_port) as connection:
        connection.send(headers(1, "/package.Service/Method"), data(1, message))
        connection.read_until(b"grpc-status")

Answers are bytes to search in: gRPC writes the names of headers in plain letters the first time
that a connection has them.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Mapping
from contextlib import suppress

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS = 1, 4
_INITIAL_WINDOW = 4
_MAX_FRAME = 16_384


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def settings_frame(values: dict[int, int]) -> bytes:
    pairs = (struct.pack(">HI", key, value) for key, value in values.items())
    return frame(SETTINGS, 0, 0, b"".join(pairs))


#: Nothing may be sent to a client that says this, on any stream.
NO_WINDOW = settings_frame({_INITIAL_WINDOW: 0})


def _literal(text: str) -> bytes:
    if len(text) < 127:
        return bytes([len(text)]) + text.encode()
    more, last = len(text) - 127 & 127 | 128, len(text) - 127 >> 7
    assert last < 128
    return bytes([127, more, last]) + text.encode()


def header_block(path: str, more: Mapping[str, str] | None = None) -> bytes:
    """The headers of an RPC, without a table."""
    pairs = {"content-type": "application/grpc", "te": "trailers", **(more or {})}
    common = b"\x83\x86" + b"\x04" + _literal(path) + b"\x01" + _literal("localhost")
    return common + b"".join(b"\x00" + _literal(n) + _literal(v) for n, v in pairs.items())


def headers_frame(
    stream: int, path: str, flags: int = END_HEADERS, more: Mapping[str, str] | None = None
) -> bytes:
    return frame(HEADERS, flags, stream, header_block(path, more))


def reset_frame(stream: int) -> bytes:
    return frame(RESET, 0, stream, struct.pack(">I", 8))


def data_frame(stream: int, message: bytes, *, length: int | None = None, flags: int = 0) -> bytes:
    """One message of gRPC in one frame, which may lie about the message's length."""
    prefix = struct.pack(">BI", 0, len(message) if length is None else length)
    assert len(message) < _MAX_FRAME - len(prefix)
    return frame(DATA, flags, stream, prefix + message)


class Connection:
    """One connection; reads only where it is asked to."""

    def __init__(
        self, port: int, first: bytes = PREFACE + settings_frame({}), place: str = ""
    ) -> None:
        """Connect, from that address if one is given."""
        self._socket = socket.create_connection(("127.0.0.1", port), 60, (place, 0))
        self.received = b""
        self.send(first)

    def send(self, *frames: bytes) -> bool:
        """Return True if the server took it all; it may close the connection before."""
        try:
            self._socket.sendall(b"".join(frames))
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def send_within(self, seconds: float, *frames: bytes) -> bool:
        """Return True if the server took it all in that time."""
        self._socket.settimeout(seconds)
        try:
            return self.send(*frames)
        except TimeoutError:
            return False
        finally:
            self._socket.settimeout(60)

    def read_until(self, data: bytes, within_s: float = 60.0) -> bytes:
        """Return what has come, with these bytes in it or up to the end of the connection."""
        end = time.monotonic() + within_s
        while data not in self.received:
            assert time.monotonic() < end, f"no {data!r} in {self.received[-1000:]!r}"
            self._socket.settimeout(max(0.01, end - time.monotonic()))
            got = b""
            with suppress(ConnectionResetError, TimeoutError):
                got = self._socket.recv(1 << 16)
            if not got:
                break
            self.received += got
        return self.received

    def read_to_the_end(self) -> None:
        """Read until the server closes the connection, which it must do soon."""
        began = time.monotonic()
        self.read_until(b"no such bytes, but the end")
        assert time.monotonic() - began < 30, "the server has not closed the connection"

    def read_for(self, seconds: float) -> None:
        """Read for that time; the server may end the connection before."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._socket.settimeout(left)
            try:
                got = self._socket.recv(1 << 16)
            except (ConnectionResetError, TimeoutError):
                return
            if not got:
                return
            self.received += got

    def fileno(self) -> int:
        return self._socket.fileno()

    def read_now(self) -> None:
        """Read what has come, and wait for nothing."""
        self._socket.setblocking(False)
        with suppress(BlockingIOError, ConnectionResetError):
            while got := self._socket.recv(1 << 16):
                self.received += got
        self._socket.settimeout(60)

    def read_some(self, size: int) -> None:
        """Read so much of what has come and forget it, and wait for nothing."""
        self._socket.setblocking(False)
        with suppress(OSError):
            self._socket.recv(size)
        self._socket.settimeout(60)

    def frame_types(self) -> list[int]:
        """Of the frames that have come."""
        kinds, position = [], 0
        while position + 9 <= len(self.received):
            size = int.from_bytes(self.received[position : position + 3], "big")
            kinds.append(self.received[position + 3])
            position += 9 + size
        return kinds

    def close(self) -> None:
        with suppress(OSError):
            self._socket.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def ask(port: int, path: str, until: bytes, place: str, **headers: str) -> bytes:
    """Return what comes with these bytes in it for an RPC without a message, from that address."""
    with Connection(port, place=place) as connection:
        connection.send(headers_frame(1, path, more=headers), data_frame(1, b"", flags=END_STREAM))
        return connection.read_until(until)
