"""An RPC as its handler sees it, whichever transport it came over.

The handler's task is cancelled if the client leaves or its deadline passes, so there is no flag of
this. The handler of a unary RPC begins the work, and gives the response to an object of the
transport; an inference needs no task of its own. Control RPCs, which are rare, are coroutines.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from zmqtriton_floor.arena import INLINE_BYTES
from zmqtriton_floor.errors import InternalError, ZmqTritonError, shortage_of
from zmqtriton_floor.token_file import Grant
from zmqtriton_floor.wire import RequestBody
from zmqtriton_frontends.access.refusals import Source
from zmqtriton_frontends.entrance.reports import REPORT_HEADERS
from zmqtriton_frontends.inference.catalogue import HeaderLookup
from zmqtriton_frontends.inference.open_sequences import OpenSequences
from zmqtriton_frontends.process.ledger import Share
from zmqtriton_frontends.process.peer_user import Endpoint

_log = logging.getLogger(__name__)

#: The reason of an RPC that is refused, or of a stream that ends, while the server stops.
STOPPING = "GRPC server is shutting down and has stopped accepting new requests."

#: An answer up to this size is encoded without asking whether there is room for it, if nothing
#: waits for its client.
FREE_BYTES = 64 << 10


#: A request up to this size is part of what an open stream takes.
FREE_REQUEST_BYTES = 8 << 10
Response = list[bytes | memoryview]
Metadata = Sequence[tuple[str, str | bytes]]


class NoRoomError(ZmqTritonError):
    """Raised if there is no memory for a response until its client reads it."""

    #: RESOURCE_EXHAUSTED
    grpc_status = 8

    def __init__(self) -> None:
        super().__init__("Too many answers of this server wait for clients to read them")


class NoRequestRoomError(ZmqTritonError):
    """Raised if there is no memory for the parts of a request."""

    #: RESOURCE_EXHAUSTED
    grpc_status = 8

    def __init__(self) -> None:
        super().__init__("Too many large requests are being sent to this server")


def client_error(method: str, error: Exception) -> ZmqTritonError:
    """Return the error that a client gets for an exception; the log has the details."""
    if isinstance(error, ZmqTritonError):
        return error
    shortage = shortage_of(error)
    if shortage is None:
        _log.error("%s failed", method, exc_info=error)
    return shortage or InternalError("the server failed to answer; its log says why")


def kept_bytes(body: RequestBody, size: int) -> int:
    """Return the number of a message's bytes that are kept until the response.

    All bytes but the tensors in shared memory.
    """
    for tensor in body.inputs:  # a sum would call a generator for each
        if len(tensor.data) > INLINE_BYTES:
            size -= len(tensor.data)
    return max(0, size)


class CallFacts(NamedTuple):
    """The common part of the calls with the same headers on a connection."""

    #: Returns the value of a client's metadata; values of one name have commas between them. None
    #: if there is no such text.
    header: HeaderLookup
    #: Returns the client's metadata.
    spelled_headers: Callable[[], Metadata]
    #: The sequences that have begun on the connection.
    sequences: OpenSequences
    #: The metadata ask for more (entrance/reports.py).
    has_wishes: bool

    @classmethod
    def of(cls, metadata: Callable[[], Metadata], sequences: OpenSequences) -> CallFacts:
        has_wishes = any(name.encode() in REPORT_HEADERS for name, _ in metadata())
        return cls(partial(_header_of, metadata), metadata, sequences, has_wishes)


def _header_of(metadata: Callable[[], Metadata], name: bytes) -> str | None:
    key = name.decode()
    values = [value for k, value in metadata() if k == key and isinstance(value, str)]
    return ",".join(values) if values else None


class RpcCall(Protocol):
    """An RPC, made by the transport; values are computed when a handler reads them."""

    #: Rights of the client's token, once that was checked; None where no tokens are needed.
    grant: Grant | None

    @property
    def deadline_ns(self) -> int:
        """When the client stops waiting, on CLOCK_MONOTONIC; 0 is never."""

    @property
    def metadata(self) -> Metadata:
        """The client's metadata, keys in lower case; values of keys that end in -bin are bytes."""

    @property
    def facts(self) -> CallFacts:
        """Return the facts that calls with its headers share."""

    def add_trailers(self, pairs: Sequence[tuple[str, str | bytes]]) -> None:
        """Add to the trailing metadata of the response; for calls with one response."""

    @property
    def answers(self) -> Share:
        """Return the room for bytes that are encoded for the client, and not yet sent."""

    @property
    def requests(self) -> Share:
        """Return the room for a request's parts before the request is passed on."""

    async def turn(self, begun: float) -> None:
        """Wait for the client's next turn; its last work began at `begun`."""

    def work(self, step: Callable[[], bool]) -> None:
        """Execute steps in the client's turns, until one returns False."""

    @property
    def ends(self) -> tuple[Endpoint, Endpoint]:
        """Return the two ends of the connection: the client's, or its proxy's, and the server's."""

    @property
    def authorization(self) -> Sequence[str]:
        """The `authorization` values of the metadata."""


def source_of(call: RpcCall, method: str) -> Source:
    """Return the client's address, the protocol and the RPC, for logs."""
    return Source("grpc", call.ends[0].host, method)


def hold_answer(call: RpcCall, size: int) -> None:
    """Reserve room for a unary response until the transport has it. Raises NoRoomError."""
    if size > FREE_BYTES:
        missing = size - call.answers.held
        if missing > 0 and not call.answers.take(missing):
            raise NoRoomError


class Answer(Protocol):
    """Receives the response or the error, in one call that must not raise."""

    def set_result(self, response: Response, /) -> None:
        """Send the message, which is in pieces."""

    def set_exception(self, error: Exception, /) -> None:
        """Send the error instead of a response."""


class PendingRpc(Protocol):
    """An RPC that has begun, and has no response yet."""

    def cancel(self) -> None:
        """Cancel the RPC, whose client has left."""


#: Begins to answer, perhaps before it returns. Raises the errors of the request.
Begin = Callable[[Any, RpcCall, Answer], PendingRpc]
Handle = Callable[[Any, RpcCall], Coroutine[Any, Any, bytes]]


def by_task(handle: Handle) -> Begin:
    """Return a handler that answers in a task."""
    return lambda data, call, answer: _Task(handle(data, call), answer)


class _Task:
    """Passes the result of a coroutine, or its error, to an Answer."""

    def __init__(self, work: Coroutine[Any, Any, bytes], answer: Answer) -> None:
        self._answer: Answer | None = answer
        self._task = asyncio.get_running_loop().create_task(work)
        self._task.add_done_callback(self._end)

    def cancel(self) -> None:
        self._answer = None
        self._task.cancel()

    def _end(self, task: asyncio.Task[bytes]) -> None:
        # Otherwise asyncio complains of an unseen error.
        error = None if task.cancelled() else task.exception()
        answer, self._answer = self._answer, None
        if answer is None:
            return
        if task.cancelled():  # and not by us
            answer.set_exception(InternalError("the call was cancelled"))
        elif isinstance(error, Exception):
            answer.set_exception(error)
        elif error is None:
            answer.set_result([task.result()])


async def answered(begin: Begin, data: bytes, call: RpcCall) -> bytes:
    """Return the answer, with room held for it. Cancelling this cancels the RPC."""
    awaited = _Awaited()
    pending = begin(data, call, awaited)
    try:
        response = await awaited.future
    except asyncio.CancelledError:
        pending.cancel()
        raise
    finally:
        del awaited, pending  # the error in it knows this frame: both would stay until a collection
    hold_answer(call, sum(map(len, response)))
    return b"".join(response)


class _Awaited:
    """The answer that a task awaits, unless it was cancelled in this turn of the loop."""

    def __init__(self) -> None:
        self.future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

    def set_result(self, response: Response, /) -> None:
        if not self.future.done():
            self.future.set_result(response)

    def set_exception(self, error: Exception, /) -> None:
        if not self.future.done():
            self.future.set_exception(error)
