"""A request with what our responders need of it beyond Falcon's own: headers without ceremony, and
a body that is whole or an error.
"""

from __future__ import annotations

import falcon
import falcon.asgi

from zmqtriton_floor.errors import InvalidArgument

#: No body may have more, whatever its tensors are: the most that gRPC carries in one message too.
MAX_BODY_BYTES = 2**31 - 1
#: HTTP chunks in one body; more is an attack on the loop that reads them.
MAX_PIECES = 65_536
#: So much of a body that is too large is read and dropped, so that its client sees the error and
#: not a connection reset.
_DROP_BYTES = 256 << 20


class Request(falcon.asgi.Request):
    """What the responders get."""

    def header(self, name: bytes) -> str | None:
        """The value of a header, given in lower case; a header sent twice has a comma in it."""
        value = self._asgi_headers.get(name)
        return None if value is None else value.decode("latin-1")

    async def read_body(self, limit: int) -> bytes:
        """All of the body. Raises what read_pieces raises."""
        pieces, _ = await self.read_pieces(limit)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def read_pieces(self, limit: int) -> tuple[list[bytes], int]:
        """All of the body as it arrived, and its size. Raises InvalidArgument where it has more
        bytes than the limit, and ends the request where it stops half way: Falcon's own stream
        would hand over the half."""
        event = self._first_event or {}
        body: bytes = event.get("body", b"")
        size = len(body)
        pieces = [body]
        while event.get("more_body"):
            event = await self._receive()
            if event["type"] != "http.request":
                raise falcon.HTTPError(falcon.HTTP_408)
            body = event.get("body", b"")
            size += len(body)
            if size <= limit:
                pieces.append(body)
            elif size > limit + _DROP_BYTES:
                break
            if len(pieces) > MAX_PIECES:
                raise InvalidArgument(f"request body has more than {MAX_PIECES} chunks")
        if size > limit:
            raise too_large("JSON", int(self.header(b"content-length") or size), limit)
        return pieces, size


def too_large(what: str, size: int, limit: int) -> InvalidArgument:
    return InvalidArgument(
        f"request {what} size of {size} bytes exceeds the maximum allowed input size of {limit} "
        "bytes. Use --http-max-input-size to increase the limit."
    )
