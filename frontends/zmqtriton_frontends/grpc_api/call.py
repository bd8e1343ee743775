"""An RPC as its handler sees it, whichever transport it came over.

That a client has gone or its deadline has passed is no flag here: the handler's task is cancelled.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from zmqtriton_floor.access.token_file import Grant
from zmqtriton_floor.arena import INLINE_BYTES
from zmqtriton_floor.errors import InternalError, ZmqTritonError, shortage_of
from zmqtriton_floor.wire import RequestBody
from zmqtriton_frontends.inference.open_sequences import OpenSequences
from zmqtriton_frontends.process.ledger import Share
from zmqtriton_frontends.process.peer_user import Place

_log = logging.getLogger(__name__)

#: The reason of an RPC that is refused, or of a stream that ends, while the server stops.
STOPPING = "GRPC server is shutting down and has stopped accepting new requests."

#: An answer up to this size is encoded without asking whether there is room for it, if nothing
#: waits for its client.
FREE_BYTES = 64 << 10


#: A request up to this size is part of what an open stream takes.
FREE_REQUEST_BYTES = 8 << 10


class NoRoomError(ZmqTritonError):
    """Raised where there is no memory for an answer until its client reads it."""

    #: RESOURCE_EXHAUSTED
    grpc_status = 8

    def __init__(self) -> None:
        super().__init__("Too many answers of this server wait for clients to read them")


class NoRequestRoomError(ZmqTritonError):
    """Raised where there is no memory for the parts of a request."""

    #: RESOURCE_EXHAUSTED
    grpc_status = 8

    def __init__(self) -> None:
        super().__init__("Too many large requests are being sent to this server")


def client_error(method: str, error: Exception) -> ZmqTritonError:
    """Return what the client is told of an exception; the log has what it is not told."""
    if isinstance(error, ZmqTritonError):
        return error
    shortage = shortage_of(error)
    if shortage is None:
        _log.error("%s failed", method, exc_info=error)
    return shortage or InternalError("the server failed to answer; its log says why")


def kept_bytes(body: RequestBody, size: int) -> int:
    """Return how much of a message of that size is kept until it is answered.

    That is all but the tensors that lie in shared memory.
    """
    for tensor in body.inputs:
        if len(tensor.data) > INLINE_BYTES:
            size -= len(tensor.data)
    return max(0, size)


class Call(Protocol):
    """Made for each RPC by the transport; nothing is read before a handler asks."""

    @property
    def deadline_ns(self) -> int:
        """When the client stops waiting, on CLOCK_MONOTONIC; 0 is never."""

    @property
    def metadata(self) -> Sequence[tuple[str, str | bytes]]:
        """The client's metadata, keys in lower case; values of keys that end in -bin are bytes."""

    @property
    def has_wishes(self) -> bool:
        """Return whether the metadata ask for more (entrance/steps.py)."""

    def add_trailers(self, pairs: Sequence[tuple[str, str | bytes]]) -> None:
        """Add to the trailing metadata of the answer; for calls with one response."""

    @property
    def is_cancelled(self) -> bool:
        """Return whether the client no longer waits."""

    @property
    def answers(self) -> Share:
        """Return the room of bytes encoded for the client and not given to the transport."""

    @property
    def requests(self) -> Share:
        """Return the room of a request's parts before it is passed on."""

    async def turn(self, begun: float) -> None:
        """Wait for the client's turn, after something was done for it since then."""

    def work(self, step: Callable[[], bool]) -> None:
        """Have steps done in the client's turns, until one returns False."""

    @property
    def sequences(self) -> OpenSequences:
        """Return those that have begun on the connection."""

    @property
    def ends(self) -> tuple[Place, Place]:
        """Return the two ends of its connection: the client's, or its proxy's, and ours."""

    @property
    def authorization(self) -> Sequence[str]:
        """The values of the metadata by which a client says who it is."""

    @property
    def grant(self) -> Grant | None:
        """Return what the client's token is good for; None where no tokens are needed."""


class GrantedCall:
    """The call of a client whose token was checked."""

    __slots__ = ("_call", "grant")

    def __init__(self, call: Call, grant: Grant) -> None:
        self._call = call
        self.grant = grant

    @property
    def deadline_ns(self) -> int:
        return self._call.deadline_ns

    @property
    def metadata(self) -> Sequence[tuple[str, str | bytes]]:
        return self._call.metadata

    @property
    def has_wishes(self) -> bool:
        return self._call.has_wishes

    def add_trailers(self, pairs: Sequence[tuple[str, str | bytes]]) -> None:
        self._call.add_trailers(pairs)

    @property
    def is_cancelled(self) -> bool:
        return self._call.is_cancelled

    @property
    def answers(self) -> Share:
        return self._call.answers

    @property
    def requests(self) -> Share:
        return self._call.requests

    async def turn(self, begun: float) -> None:
        await self._call.turn(begun)

    def work(self, step: Callable[[], bool]) -> None:
        self._call.work(step)

    @property
    def sequences(self) -> OpenSequences:
        return self._call.sequences

    @property
    def ends(self) -> tuple[Place, Place]:
        return self._call.ends

    @property
    def authorization(self) -> Sequence[str]:
        return self._call.authorization


def hold_answer(call: Call, size: int) -> None:
    """Have room for a unary answer that waits before the transport has it. Raises NoRoomError."""
    if size > FREE_BYTES:
        missing = size - call.answers.held
        if missing > 0 and not call.answers.take(missing):
            raise NoRoomError
