"""Calls without TLS to a port that speaks it: their status says so.

HTTP/2 as far as this takes: calls are answered when they begin, and what they send is not kept.
Does no I/O.
"""

from __future__ import annotations

from functools import partial

from zmqtriton_floor.errors import Unavailable
from zmqtriton_frontends.grpc_api.transport import call_headers
from zmqtriton_frontends.grpc_api.transport.call_headers import Opening
from zmqtriton_frontends.grpc_api.transport.stream_call import Refused
from zmqtriton_frontends.http2.connection import Begin, Connection, Rules
from zmqtriton_frontends.http2.header_blocks import Headers

_TOLD = call_headers.refusal_of(
    # as its client would report a connection that ends
    Unavailable.grpc_status,
    "this port speaks TLS: use a secure channel (with tritonclient: ssl=True)",
)
#: Of one connection; what comes beyond them is reset, or not read. The client is not told to go
#: before: gRPC's own could lose a large call that it begins as it reads that, and cannot repeat.
_MAX_ANSWERS = 100
#: So much is read before the end of the answers is noticed.
_STEP_BYTES = 4096


class PlainCalls:
    """The refusal of the calls on one connection."""

    def __init__(self) -> None:
        self._http2 = Connection(self._read, lambda: None, Rules())
        self._answers = 0

    @property
    def is_complete(self) -> bool:
        return self._http2.is_done

    def answer(self, data: bytes, /) -> bytes:
        left = memoryview(data)
        while left and not self.is_complete:
            self._http2.receive(left[:_STEP_BYTES])
            left = left[_STEP_BYTES:]
        return b"".join(self._http2.take_output())

    def _read(self, headers: Headers) -> Begin | None:
        opening = call_headers.read_opening(headers, {}, of_unknown=_TOLD)
        return None if opening is None else partial(self._refuse, opening)

    def _refuse(self, opening: Opening, connection: Connection, number: int) -> Refused:
        self._answers += 1
        if self._answers == _MAX_ANSWERS:
            connection.leave()
            connection.refuse_streams()
        return Refused(opening, connection, number)
