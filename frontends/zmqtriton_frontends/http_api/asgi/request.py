"""A Falcon request with cheap access to headers, and a body that is complete or an error.

X-Request-Timeout has the seconds that a client waits for its response; gRPC has its own deadlines.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from typing import Any

import falcon
import falcon.asgi

from zmqtriton_floor.descriptions import described
from zmqtriton_floor.errors import NO_MEMORY, InvalidArgument, Unavailable
from zmqtriton_floor.token_file import Grant
from zmqtriton_frontends.access.bearer_tokens import authorization_in
from zmqtriton_frontends.access.refusals import Source
from zmqtriton_frontends.process.arrivals import Arrivals
from zmqtriton_frontends.process.ledger import Share
from zmqtriton_frontends.process.peer_user import Endpoint, place_of
from zmqtriton_frontends.process.turns import Cost, TaskTurn, Turns

#: HTTP chunks that one body may have; more would be an attack on the loop that reads them.
MAX_PIECES = 65_536
#: Bytes above the limit that are read and dropped of a body that is too large, so that its client
#: sees the error and not a connection reset.
DROP_BYTES = 256 << 20
#: Bytes of a body that steers the server: names, numbers and short texts, as over gRPC.
MAX_CONTROL_BYTES = 64 << 10

#: The key of the exchange on the connection in a request's scope.
CONNECTION = "zmqtriton.connection"
TIMEOUT_HEADER = b"x-request-timeout"
#: Number of seconds, up to 31 years, in nanoseconds at the finest.
_SECONDS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")


class BodyPieces:
    """The received part of a body, in its pieces."""

    __slots__ = ("_share", "has_more", "is_refused", "pieces", "size")

    def __init__(self, event: dict[str, Any], share: Share | None) -> None:
        self._share = share
        self.pieces: list[bytes] = []
        self.size = 0
        self.has_more: bool = event.get("more_body", False)
        #: Set if there was no memory for the body; what has come of it is dropped.
        self.is_refused = False
        self.keep(event.get("body", b""))

    def keep(self, body: bytes) -> None:
        """Keep arrived bytes, if there is memory for them."""
        self.size += len(body)
        if self.is_refused:
            return
        if self._share is None or self._share.take(len(body)):
            self.pieces.append(body)
            return
        self.is_refused = True
        self.pieces.clear()
        self._share.release()


class HttpRequest(falcon.asgi.Request):
    """The request that responders get."""

    #: Rights of the client's token; None where no tokens are needed.
    grant: Grant | None = None
    #: Time at which its responder began to read its body.
    begun_ns = 0

    def header(self, name: bytes) -> str | None:
        """Return a header's value, by its name in lower case; commas join repeated ones."""
        value = self._asgi_headers.get(name)
        return None if value is None else value.decode("latin-1")

    @property
    def deadline_ns(self) -> int:
        """Return the time at which the client stops waiting; 0: never. Raises InvalidArgument."""
        text = self.header(TIMEOUT_HEADER)
        if text is None:
            return 0
        return (self.begun_ns or time.monotonic_ns()) + read_timeout_ns(text)

    async def read_body(self, limit: int) -> bytes:
        """Return the whole body. Raises the errors of read_pieces."""
        pieces, _ = await self.read_pieces(limit)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def read_control(self) -> bytes:
        """Return the body of a control request. Raises the errors of read_pieces."""
        return await self.read_body(MAX_CONTROL_BYTES)

    def begin_body(self) -> BodyPieces:
        """Return the bytes that came with the headers, as the beginning of the body."""
        self.begun_ns = time.monotonic_ns()
        event: Any = self._first_event or {}
        return BodyPieces(event, self._share)

    async def read_pieces(
        self, limit: int, read: BodyPieces | None = None
    ) -> tuple[list[bytes], int]:
        """Return the whole body in pieces as they arrived, and its size.

        Raises TooLarge if it has more bytes than the limit, Unavailable if there is no memory for
        it, and the errors of read_piece.
        """
        read = read or self.begin_body()
        while read.has_more:
            await self.read_piece(read, limit)
        if read.is_refused:
            raise Unavailable(NO_MEMORY)
        if read.size > limit:
            raise too_large("JSON", int(self.header(b"content-length") or read.size), limit)
        return read.pieces, read.size

    async def read_piece(self, read: BodyPieces, limit: int) -> None:
        """Wait for the next piece. Raises if the body stops half way.

        Falcon's own stream would return half a body.
        """
        event = await self._receive()
        if event["type"] != "http.request":
            raise falcon.HTTPError(falcon.HTTP_408)
        body = event.get("body", b"")
        read.has_more = event.get("more_body", False)
        if read.size + len(body) <= limit:
            read.keep(body)
        else:
            read.size += len(body)
            if read.size > limit + DROP_BYTES:
                read.has_more = False
        if len(read.pieces) > MAX_PIECES:
            raise InvalidArgument(f"request body can have at most {MAX_PIECES} chunks")

    def hold(self, size: int) -> None:
        """Change the amount of memory that the request accounts for.

        Raises Unavailable if there is no more memory.
        """
        share = self._share
        if share is not None and not share.change(size):
            raise Unavailable(NO_MEMORY)

    @property
    def _share(self) -> Share | None:
        return None if self.connection is None else self.connection.request_share

    async def wait_for_room(self, size: int) -> None:
        """Wait for room for a response, or a part of one, that is about to be written.

        Raises Unavailable if there is no room for long.
        """
        if self.connection is not None:
            await self.connection.room.wait(size)

    def made(self, size: int) -> None:
        """Record the actual size of a part of a stream, after room was reserved for it."""
        if self.connection is not None:
            self.connection.room.made(size)

    def arrivals(self) -> Arrivals:
        """Return the room for responses of a stream that wait to be written."""
        if self.connection is None:
            return Arrivals()
        arrivals: Arrivals = self.connection.room.arrivals()
        return arrivals

    @property
    def turn(self) -> TaskTurn:
        """Return the request's turns on the loop."""
        if self.connection is None:
            return TaskTurn(Turns(asyncio.get_running_loop().call_soon), Cost())
        turn: TaskTurn = self.connection.turn
        return turn

    @property
    def client(self) -> object:
        """Return an object that the requests of one connection share, if it is known."""
        return self if self.connection is None else self.connection.client

    @property
    def authorization(self) -> list[str]:
        """Return the `authorization` values of the request."""
        return authorization_in(self.header)

    @property
    def address(self) -> str:
        """Return the address of the client, or of its proxy; "" if it is unknown."""
        place = self.scope.get("client")
        return place[0] if place else ""

    def source(self) -> Source:
        """Return the client's address, the protocol and the route, for logs."""
        return Source("http", self.address, f"{self.method} {self.path}")

    @property
    def ends(self) -> tuple[Endpoint, Endpoint]:
        """Return the two ends of the connection: the client's, or its proxy's, and the server's."""
        return place_of(self.scope.get("client")), place_of(self.scope.get("server"))

    def spelled_headers(self) -> Iterator[tuple[str, bytes]]:
        """Return all headers, spelled as by the client if the spelling is known."""
        if self.connection is not None:
            yield from self.connection.spelled_headers()
            return
        for name, value in self._asgi_headers.items():
            yield name.decode("latin-1"), value

    async def drop_body(self) -> None:
        """Read the body and drop it, so that the client sees the response and not a reset."""
        read = self.begin_body()
        while read.has_more:
            await self.read_piece(read, 0)

    @property
    def connection(self) -> Any:
        """Return the exchange of the connection; None for the server's own requests."""
        return self.scope.get(CONNECTION)


class TooLarge(InvalidArgument):
    """Raised for a body with more bytes than the limit."""


def too_large(what: str, size: int, limit: int) -> TooLarge:
    if limit == MAX_CONTROL_BYTES:
        return TooLarge(f"a request of this route has at most {limit} bytes, not {size}")
    return TooLarge(
        f"request {what} size of {size} bytes exceeds the maximum allowed input size of {limit} "
        "bytes. Use --http-max-input-size to increase the limit."
    )


def read_timeout_ns(text: str) -> int:
    """Return the timeout, which counts from the first byte of the request.

    Raises InvalidArgument.
    """
    if not _SECONDS.fullmatch(text) or not float(text):
        raise InvalidArgument(
            "X-Request-Timeout must be a number of seconds above 0, such as 2.5, "
            f"got {described(text)}"
        )
    return int(float(text) * 1e9)
