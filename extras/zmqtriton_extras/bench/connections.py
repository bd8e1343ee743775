"""Connections that send one prepared request again and again, at little cost of their own.

They block, since each client is a thread: HTTP and gRPC cost less than with asyncio, and a
connection can be any object with a blocking call.
"""

from __future__ import annotations

import base64
import functools
import itertools
import json
import pkgutil
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NoReturn, Protocol

_ROOM = "zmqtriton_extras.bench"
#: Class of each kind of connection; another kind is a class by itself, as `package.module:Name`.
KINDS = {
    "http": f"{_ROOM}.connections:HttpConnection",
    "grpc": f"{_ROOM}.grpc_connections:GrpcCalls",
    "stream": f"{_ROOM}.grpc_connections:GrpcStream",
}
LONGEST_TEXT = 300
#: Bytes that are received at once: with the head, and of a large body. A buffer of a mebibyte costs
#: more CPU than a small request.
_FIRST_PIECE, _MAX_PIECE = 1 << 16, 1 << 20


class RequestFailed(Exception):
    """Raised for a request without a successful response; the text says why."""


class Connection(Protocol):
    """A client's connection. Only the client's thread may use it, except for `interrupt`."""

    def open(self) -> None:
        """Connect to the server before the first request. Raises RequestFailed."""

    def ask(self) -> list[float]:
        """Send the request, opening the connection if needed; return the time of each response.

        Raises RequestFailed.
        """

    def interrupt(self) -> None:
        """Let the request in progress fail; called from another thread."""

    def close(self) -> None:
        """Close the connection; the next ask() opens a new one."""


def make_connection(plan: Mapping[str, Any]) -> Connection:
    """Return a connection of the plan's kind, not yet open."""
    make = pkgutil.resolve_name(KINDS.get(plan["kind"], plan["kind"]))
    connection: Connection = make(plan)
    return connection


class HttpConnection:
    """A connection over HTTP/1.1 to a server whose responses have a Content-Length."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        host, _, port = plan["address"].rpartition(":")
        self._place = host.strip("[]"), int(port)
        self._has_tls = plan["has_tls"]
        self._open_within_s = plan["timeout_s"]
        requests = plan.get("requests", [plan["request"]])
        #: The requests, one after the other, again and again.
        self._requests = itertools.cycle([base64.b64decode(each) for each in requests])
        self._socket: socket.socket | None = None
        #: The head until it is whole, and all of a refusal.
        self._received = b""
        #: Bytes of the body that have not come; below zero while the head is not whole.
        self._left = -1
        self._is_good = True
        #: Buffer for bodies that do not arrive with the head.
        self._room = memoryview(b"")

    def open(self) -> None:
        try:
            self._socket = self._connect()
        except OSError as error:
            raise RequestFailed(
                f"cannot connect, does the server run? {error.strerror or error}"
            ) from None

    def _connect(self) -> socket.socket:
        connection = socket.create_connection(self._place, self._open_within_s)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._has_tls:
            connection = _tls().wrap_socket(connection, server_hostname=self._place[0])
        connection.settimeout(None)  # with a limit each send and receive would poll before
        return connection

    def close(self) -> None:
        connection, self._socket = self._socket, None
        if connection is not None:
            connection.close()

    def interrupt(self) -> None:
        connection = self._socket
        if connection is not None:
            with suppress(OSError):  # it has ended meanwhile
                connection.shutdown(socket.SHUT_RDWR)

    def ask(self) -> list[float]:
        if self._socket is None:
            self.open()
        assert self._socket is not None
        self._received, self._left = b"", -1
        try:
            self._socket.sendall(next(self._requests))
            while self._left:
                self._receive(self._socket)
        except OSError as error:
            self._fail(
                f"the connection broke, does the server still run? {error.strerror or error}"
            )
        if not self._is_good:
            raise RequestFailed(_error_text(self._received))
        return []

    def _receive(self, connection: socket.socket) -> None:
        if self._left > 0 and self._is_good:
            self._receive_body(connection)
            return
        piece = connection.recv(_FIRST_PIECE)
        if not piece:
            self._fail("the server has closed the connection; see its log")
        if self._left > 0:
            self._received += piece
            self._left = max(0, self._left - len(piece))
            return
        self._received = received = self._received + piece
        end = received.find(b"\r\n\r\n")
        if end >= 0:
            self._read_head(received[:end].lower() + b"\r\n")
            self._left = max(0, self._left - (len(received) - end - 4))

    def _read_head(self, head: bytes) -> None:
        self._is_good = head.startswith(b"http/1.1 200")
        # with the line before, since Inference-Header-Content-Length is another one
        start = head.find(b"\r\ncontent-length:") + 17
        if start < 17:
            self._fail("the response has no Content-Length; measure without the proxy in front")
        self._left = int(head[start : head.index(b"\r", start)])

    def _receive_body(self, connection: socket.socket) -> None:
        if not self._room:
            self._room = memoryview(bytearray(_MAX_PIECE))
        count = connection.recv_into(self._room[: self._left])
        if not count:
            self._fail("the server has closed the connection; see its log")
        self._left -= count

    def _fail(self, reason: str) -> NoReturn:
        self.close()
        raise RequestFailed(reason)


@functools.cache
def _tls() -> ssl.SSLContext:
    """Return the TLS context that all connections share; it reads the machine's certificates."""
    return ssl.create_default_context()


def _error_text(received: bytes) -> str:
    head, _, body = received.partition(b"\r\n\r\n")
    try:
        return str(json.loads(body)["error"])[:LONGEST_TEXT]
    except (ValueError, KeyError, TypeError):
        return head.partition(b"\r\n")[0].decode("latin-1")
