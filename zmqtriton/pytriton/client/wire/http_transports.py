"""Connections that speak HTTP/1.1, kept open from call to call: for threads, and for asyncio.

A request is sent once: whether a connection still lives is looked at before, since one that ends
after may have carried a request that was executed.
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Generator
from contextlib import suppress
from typing import Any

from zmqtriton.pytriton.client.exceptions import PyTritonClientValueError
from zmqtriton.pytriton.client.wire.calls import Headers
from zmqtriton.pytriton.client.wire.http_calls import HttpRequest, HttpResponse
from zmqtriton.pytriton.client.wire.url import TritonUrl

#: Smaller bodies are copied behind their head, and go in one packet.
_SMALL_BYTES = 65536
#: No server has longer lines in a head.
_LINE_BYTES = 65536
#: What asyncio reads ahead.
_STREAM_BYTES = 1 << 20


def _encode(url: TritonUrl, request: HttpRequest, headers: Headers) -> list[Any]:
    """Return the pieces to send, the head first."""
    fields = {"Host": url.without_scheme, **request.headers, **headers}
    length = sum(map(len, request.body))
    if request.method != "GET":
        fields["Content-Length"] = str(length)
    lines = [f"{request.method} {request.path} HTTP/1.1"]
    for name, value in fields.items():
        if any(sign in f"{name}{value}" for sign in "\r\n\0"):
            raise PyTritonClientValueError(f"Header {name!r} has a line break")
        lines.append(f"{name}: {value}")
    head = "\r\n".join([*lines, "", ""]).encode("utf-8")
    return [b"".join((head, *request.body))] if length < _SMALL_BYTES else [head, *request.body]


#: Asks for a number of bytes, or with None for a line; is sent what it asked for.
_Reading = Generator[int | None, Any, HttpResponse]


def _read_response() -> _Reading:
    status, fields = yield from _read_head()
    while status < 200:
        status, fields = yield from _read_head()
    if "chunked" in fields.get("transfer-encoding", "").lower():
        body = memoryview((yield from _read_chunks()))
    else:
        body = memoryview((yield _to_size(fields.get("content-length", "0"), 10)))
    return HttpResponse(status, fields, body)


def _read_head() -> Generator[int | None, Any, tuple[int, dict[str, str]]]:
    first = yield None
    words = first.split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
        raise ConnectionError(f"no HTTP answer: {bytes(first[:80])!r}")
    fields = {}
    while (line := (yield None)) not in (b"\r\n", b"\n"):
        name, _, value = line.decode("latin-1").partition(":")
        fields[name.lower()] = value.strip()
    return int(words[1]), fields


def _read_chunks() -> Generator[int | None, Any, bytearray]:
    body = bytearray()
    while size := _to_size((yield None).split(b";")[0], 16):
        body += yield size
        yield None
    while (yield None) not in (b"\r\n", b"\n"):
        continue  # trailers say nothing to us
    return body


def _to_size(text: str | bytes, base: int) -> int:
    try:
        size = int(text, base)
    except ValueError:
        size = -1
    if size < 0:
        raise ConnectionError(f"no HTTP answer: a length of {text!r}")
    return size


def _is_kept(response: HttpResponse) -> bool:
    return "close" not in response.headers.get("connection", "").lower()


def _check_line(line: bytes) -> bytes:
    if not line.endswith(b"\n"):
        raise ConnectionError("the server has closed the connection")
    return line


class _Connection:
    """One connection for one thread at a time."""

    def __init__(self, url: TritonUrl, timeout_s: float) -> None:
        self._socket = socket.create_connection((url.hostname, url.port), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file: Any = self._socket.makefile("rb", _LINE_BYTES)

    def is_usable(self) -> bool:
        """Return True if nothing has come unasked: an end, or nonsense."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def exchange(self, pieces: list[Any], timeout_s: float) -> HttpResponse:
        self._socket.settimeout(timeout_s)
        # A server may refuse a request, and close, before it has all of it.
        with suppress(BrokenPipeError, ConnectionResetError):
            for piece in pieces:
                self._socket.sendall(piece)
        reading = _read_response()
        data: Any = None
        while True:
            try:
                wish = reading.send(data)
            except StopIteration as end:
                response: HttpResponse = end.value
                return response
            data = self._read_line() if wish is None else self._read_bytes(wish)

    def _read_line(self) -> bytes:
        return _check_line(self._file.readline(_LINE_BYTES))

    def _read_bytes(self, number: int) -> bytearray:
        data = bytearray(number)
        if self._file.readinto(data) != number:
            raise ConnectionError("the server has closed the connection")
        return data

    def close(self) -> None:
        self._file.close()
        self._socket.close()


class HttpTransport:
    """As many connections to a server as threads use at once."""

    def __init__(self, url: TritonUrl) -> None:
        self._url = url
        #: The one that was used last is taken first. Its methods are atomic.
        self._idle: list[_Connection] = []
        self._is_closed = False

    def exchange(self, request: HttpRequest, headers: Headers, timeout_s: float) -> HttpResponse:
        """Send a request and return the answer. Raises OSError."""
        pieces = _encode(self._url, request, headers)
        connection = self._take() or _Connection(self._url, timeout_s)
        try:
            response = connection.exchange(pieces, timeout_s)
        except BaseException:
            connection.close()
            raise
        if _is_kept(response):
            self._idle.append(connection)
        else:
            connection.close()
        if self._is_closed:
            self._close_idle()
        return response

    def _take(self) -> _Connection | None:
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None  # another thread was quicker
            if connection.is_usable():
                return connection
            connection.close()
        return None

    def close(self) -> None:
        self._is_closed = True
        self._close_idle()

    def _close_idle(self) -> None:
        while (connection := self._take()) is not None:
            connection.close()


class AsyncHttpTransport:
    """As many connections to a server as tasks use at once; of one event loop."""

    def __init__(self, url: TritonUrl) -> None:
        self._url = url
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._is_closed = False

    async def exchange(
        self, request: HttpRequest, headers: Headers, timeout_s: float
    ) -> HttpResponse:
        """Send a request and return the answer. Raises OSError."""
        pieces = _encode(self._url, request, headers)
        try:
            return await asyncio.wait_for(self._exchange(pieces), timeout_s)
        except asyncio.TimeoutError:  # another class than TimeoutError in Python 3.10
            raise TimeoutError("timed out") from None

    async def _exchange(self, pieces: list[Any]) -> HttpResponse:
        reader, writer = self._take() or await asyncio.open_connection(
            self._url.hostname, self._url.port, limit=_STREAM_BYTES
        )
        try:
            with suppress(BrokenPipeError, ConnectionResetError):
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
            response = await _receive(reader)
        except BaseException:
            writer.close()
            raise
        if _is_kept(response) and not self._is_closed:
            self._idle.append((reader, writer))
        else:
            writer.close()
        return response

    def _take(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof() and not writer.is_closing():
                return reader, writer
            writer.close()
        return None

    async def close(self) -> None:
        self._is_closed = True
        while self._idle:
            _, writer = self._idle.pop()
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


async def _receive(reader: asyncio.StreamReader) -> HttpResponse:
    reading = _read_response()
    data: Any = None
    while True:
        try:
            wish = reading.send(data)
        except StopIteration as end:
            response: HttpResponse = end.value
            return response
        try:
            data = (
                _check_line(await reader.readline())
                if wish is None
                else (await reader.readexactly(wish))
            )
        except asyncio.IncompleteReadError:
            raise ConnectionError("the server has closed the connection") from None
