"""ModelStreamInfer: requests to any models come in on a stream, responses go out on it.

Models that are not decoupled are answered in the order of their requests, the responses of
decoupled ones as they come. An error of a request is a message on the stream and does not end it.
Knows no transport; closing the iterator that it returns cancels every request in flight.

The rules:

* Requests reach the broker in the order of the stream, so that a sequence stays in order. The next
  request is not read while one is parsed aside, or waits for its model or for memory for large
  tensors.
* Reading pauses while too much of the stream is in flight: requests, their bytes, or bytes of
  answers that the client has not taken; or its share of the requests of all streams. gRPC's flow
  control then stops the client.
* An answer in order may be over long before its turn; only the first request's answer is offered to
  the outbox, and the next one after there was room for it. Requests to decoupled models have no
  turn: the task of each sends its responses, and reads no more from the model's stream than the
  outbox has room for.
* A request is a `Pending` with a `StreamSink`. What the stream holds changes in two objects alone:
  requests in `_Exchange`, answers in its `StreamOutbox`.
* With `triton_grpc_error` the first error ends the stream.

The machines:

    stream    reading ◀─▶ paused     too much is in flight; an answer that leaves makes room
                 │
                 ├──▶ read out ──▶ ended    the last answer has left; with the error of the reading
                 └──▶ closed         by the transport, from every state: all requests are cancelled
    request   parsed ──▶ checked ──▶ sent ──▶ answered, by its turn or its task
                 └─▶ late ─┘         parsed aside, or its model is loaded first
    turn      waiting ──▶ over ──▶ offered ──▶ answered    over: with its message or without one

The client ends the requests, or `drain` does on a quiet stream; both lead to "read out". A request
that cannot be parsed, checked or sent takes its turn, too, so that its error comes in order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from functools import partial
from typing import Any
from weakref import WeakSet

from zmqtriton_floor.errors import Unavailable, ZmqTritonError
from zmqtriton_floor.wire import RequestBody, ResponseBody
from zmqtriton_frontends.entrance.ask import Ask, TakesLong
from zmqtriton_frontends.entrance.entrance import Entrance
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.gateway.pending import Pending, Sink
from zmqtriton_frontends.gateway.streams import StreamItem
from zmqtriton_frontends.grpc_api.call import (
    FREE_BYTES,
    FREE_REQUEST_BYTES,
    STOPPING,
    NoRequestRoomError,
    NoRoomError,
    RpcCall,
    client_error,
    kept_bytes,
)
from zmqtriton_frontends.grpc_api.inference.convert import EMPTY_FINAL
from zmqtriton_frontends.grpc_api.inference.gradual_parsing import LargeMessage, ParsedRequest
from zmqtriton_frontends.grpc_api.inference.infer import Messages
from zmqtriton_frontends.grpc_api.inference.outbox import Message, StreamOutbox
from zmqtriton_frontends.grpc_api.inference.response import Pieces, StreamEncoder
from zmqtriton_frontends.inference.admission import CheckedRequest
from zmqtriton_frontends.inference.classification import classify
from zmqtriton_frontends.inference.load_on_demand import NotLoaded
from zmqtriton_frontends.process.arrivals import Arrivals
from zmqtriton_frontends.process.futures import wake
from zmqtriton_frontends.process.turns import MAX_REQUESTS, RequestShares

#: Requests, and bytes of them, that may be in flight on one stream; at these limits its next
#: request is not read, and gRPC's flow control stops the client.
_MAX_REQUESTS = 1024
_MAX_REQUEST_BYTES = 64 << 20
#: Bytes of room for requests under way that are taken in one step.
_STEP_BYTES = 32 << 10
#: Bytes of answers that may have come and wait; at this limit the next request is not read,
#: either.
_MAX_ANSWER_BYTES = 4 << 20
#: Seconds without a request after which a stream ends while the server stops; and seconds
#: between two looks at that.
QUIET_S, _LOOK_S = 5.0, 0.2


class Streaming:
    """ModelStreamInfer."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        pattern = gateway.settings.grpc.header_forward_pattern
        self._entrance = Entrance(gateway, "GRPC_WAITREAD", "GRPC_SEND", pattern)
        self._shares = RequestShares()
        self._messages = Messages(takes_streams=True)
        self._exchanges: WeakSet[_Exchange] = WeakSet()

    def infer(self, requests: AsyncIterator[bytes], call: RpcCall) -> _Exchange:
        """Return the responses, which end when the requests have ended and all are answered.

        The iteration raises the first error if the client wants that, and Unavailable if the server
        stops first. This method raises InvalidArgument if metadata must not be forwarded.
        """
        self._entrance.check_headers(call.metadata)
        exchange = _Exchange(self._gateway, self._entrance, self._messages, self._shares, call)
        self._exchanges.add(exchange)
        exchange.start(requests)
        return exchange

    def drain(self) -> None:
        """End streams without unanswered requests, from now on, after a while of silence."""
        for exchange in list(self._exchanges):
            exchange.drain()


class _Exchange:
    """One stream; an iterator over its responses until it is closed."""

    def __init__(
        self,
        gateway: Gateway,
        entrance: Entrance,
        messages: Messages,
        shares: RequestShares,
        call: RpcCall,
    ) -> None:
        self.outbox = StreamOutbox(call.answers, self._go_on)
        #: Share for responses that have come and are not encoded.
        self._arrived = call.answers.another()
        self.gateway = gateway
        self._entrance = entrance
        self._messages = messages
        self._shares = shares
        self._call = call
        self._loop = asyncio.get_running_loop()
        self._ends_at_error = ("triton_grpc_error", "true") in call.metadata
        self._reading: asyncio.Task[None]
        #: Requests in flight, and the bytes of their messages.
        self._answering: dict[StreamSink, None] = {}
        self._bytes = 0
        #: Bytes of these requests that are kept, and the share for them.
        self._request_bytes = 0
        self._held = call.requests.another()
        #: Time of the last request, on the loop's clock; and the next look whether it was long ago.
        self._asked_s = 0.0
        self._look: asyncio.TimerHandle | None = None
        #: Requests whose answers keep their order.
        self._turns: deque[StreamSink] = deque()
        #: The message of the latest turn waits for room in the outbox.
        self._is_waiting = False
        #: Done when the latest request has gone to the broker, or will not; None: at once.
        self._sending: asyncio.Future[None] | None = None
        #: Set when there is room for another request.
        self._room: asyncio.Future[None] | None = None

    def start(self, requests: AsyncIterator[bytes]) -> None:
        self._reading = self._loop.create_task(self._read(requests))
        self._reading.add_done_callback(self._have_read)

    def __aiter__(self) -> AsyncIterator[Message]:
        return self.outbox

    def drain(self) -> None:
        """Read no more requests once the client has been silent for a while.

        HTTP/2 has no message that would make a client send its next request on a stream elsewhere.
        """
        quiet_s = self._loop.time() - self._asked_s
        if self._answering or quiet_s < QUIET_S:
            self._look = self._loop.call_later(max(_LOOK_S, QUIET_S - quiet_s), self.drain)
        else:
            self._reading.cancel()

    async def aclose(self) -> None:
        """Cancel all open requests."""
        self.outbox.close()
        self._reading.cancel()
        if self._look is not None:
            self._look.cancel()
        for request in self._answering:
            request.pending.cancel()
        if self._answering:
            self._shares.end(len(self._answering), was_last=True)
        self._answering.clear()
        self._turns.clear()
        self._held.release()

    # ---------------------------------------------------------------- requests

    async def _read(self, requests: AsyncIterator[bytes]) -> None:
        shares = self._shares
        async for data in requests:
            self._asked_s = self._loop.time()
            # what comes next must not overtake it
            if not self._begin(data):
                await self._begin_late(data)
            if self._sending is not None:
                # room for its tensors may have to be made; what comes next must not overtake it
                await self._sending
            del data  # while this waits, whatever needs it has it
            while (
                len(self._answering) >= _MAX_REQUESTS
                or self._bytes >= _MAX_REQUEST_BYTES
                or self.outbox.held + self._arrived.held >= _MAX_ANSWER_BYTES
                # a call less for each request, while there is room
                or (shares.requests >= MAX_REQUESTS and shares.is_full(len(self._answering)))
            ):
                self._room = self._loop.create_future()
                await shares.wait(self._room)

    def _go_on(self) -> None:
        """Wake the reading of requests, if it waits for room."""
        if self._room is not None:
            wake(self._room)

    def _have_read(self, reading: asyncio.Task[None]) -> None:
        if not self._answering:
            self._end()

    def _end(self) -> None:
        if self._reading.cancelled():
            self.outbox.end(Unavailable(STOPPING))
            return
        error = self._reading.exception()
        assert error is None or isinstance(error, Exception)
        self.outbox.end(error)

    def _begin(self, data: bytes) -> bool:
        """Begin a request; return False if it must first be parsed aside, or its model loaded."""
        self._sending = None
        request = None
        try:
            ask, request = self._messages.ask(data, self._call)
            self._start(ask, request, len(data), self._entrance.enter(ask))
        except (LargeMessage, NotLoaded):
            return False
        except TakesLong as long:
            long.reading.close()
            return False
        except Exception as error:  # noqa: BLE001 - an edge: the others of this stream go on
            self._refuse(request, len(data), error)
        return True

    def _refuse(self, request: Any, size: int, error: Exception) -> None:
        """Answer a request that does not start with its error, in its turn."""
        encoder = StreamEncoder("" if request is None else request.id)
        self._add(encoder, size).pending.set_exception(error)

    async def _begin_late(self, data: bytes) -> None:
        """Begin a request once it is parsed and its model is loaded."""
        request = None
        parsed: ParsedRequest | None = None
        try:
            try:
                ask, request = self._messages.ask(data, self._call)
            except LargeMessage as large:
                parsed = await large.read(self._call)
                ask, request = self._messages.ask(parsed, self._call)
            size = len(data if parsed is None else parsed)
            self._start(ask, request, size, await self._entrance.admit(ask))
        except Exception as error:  # noqa: BLE001 - an edge, as above
            self._refuse(request, len(data), error)
        finally:
            if parsed is not None:
                parsed.release()

    def _start(self, ask: Ask, request: Any, size: int, checked: CheckedRequest) -> None:
        """Start the answering of a request, None for one without an id. Raises NoRequestRoomError.

        Requests reach the broker in the order of the stream, so a sequence stays in order; also for
        decoupled models, since their tasks begin in this order. Only large requests go later, see
        `_sending`.
        """
        model, kept = checked.model, size
        if (
            kept > FREE_REQUEST_BYTES
            or self._request_bytes + kept > FREE_REQUEST_BYTES + self._held.held
        ):
            kept = self._hold(checked.body, kept)
        if not checked.is_small and checked.is_large:
            self._sending = sending = self._loop.create_future()
            checked = checked._replace(on_asked=partial(wake, sending))
        own_id = checked.body.request_id
        encoder = StreamEncoder(own_id, model.name, model.version, ask.target[1])
        if not model.signature.is_decoupled:
            self._add(encoder, size, kept).pending.start(checked)
            return
        answered = self._add(encoder, size, kept, has_turn=False)
        answered.wants_empty_final = (
            request is not None
            and EMPTY_FINAL in request.parameters
            and request.parameters[EMPTY_FINAL].bool_param
        )
        answered.pending.start(checked)

    def _hold(self, body: RequestBody, size: int) -> int:
        """Reserve room for a request; return the number of bytes. Raises NoRequestRoomError."""
        kept = kept_bytes(body, size)
        missing = self._request_bytes + kept - FREE_REQUEST_BYTES - self._held.held
        if missing > 0 and not self._held.take(-(-missing // _STEP_BYTES) * _STEP_BYTES):
            raise NoRequestRoomError
        return kept

    def _add(
        self, encoder: StreamEncoder, size: int, kept: int = 0, *, has_turn: bool = True
    ) -> StreamSink:
        """Add a request to the open ones; with `has_turn` its answer keeps the order."""
        request = StreamSink(self, encoder, size, kept, self._sending)
        self._shares.begin(is_first=not self._answering)
        self._answering[request] = None
        self._bytes += size
        self._request_bytes += kept
        if has_turn:
            self._turns.append(request)
        return request

    # ------------------------------------------------------------ for requests

    def answer(self, request: StreamSink, message: Message | None) -> None:
        """Send the answer to a request in its turn; None: the request has no answer."""
        self._request_bytes -= request.kept
        request.kept = 0
        if message is not None and not self.outbox.book(message):
            message = self.failure(request.encoder, NoRoomError())
            if message is not None:
                self.outbox.held += len(message)  # even without room
        request.is_over, request.message = True, message
        if request.sending_done is not None:
            wake(request.sending_done)
        self._take_turns()

    def end(self, request: StreamSink) -> None:
        """Forget a request whose answers are all in the outbox."""
        self._request_bytes -= request.kept
        if request in self._answering:
            del self._answering[request]
            self._bytes -= request.size
            self._shares.end(was_last=not self._answering)
        if self._held.held and self._request_bytes <= FREE_REQUEST_BYTES:
            self._held.release()
        if self._room is not None:
            wake(self._room)
        if not self._answering and self._reading.done():
            self._end()

    def responses(
        self, checked: CheckedRequest
    ) -> tuple[AsyncGenerator[StreamItem, None], Arrivals]:
        """Send a request to a decoupled model; return its responses, and the room for them."""
        arrivals = Arrivals(self._arrived)
        return self._entrance.responses(checked, arrivals), arrivals

    def _take_turns(self) -> None:
        """Send the answers whose turn it is."""
        while self._turns and self._turns[0].is_over and not self._is_waiting:
            request = self._turns.popleft()
            admitted = None if request.message is None else self.outbox.offer(request.message)
            if admitted is None:
                self.end(request)
            else:
                self._is_waiting = True
                admitted.add_done_callback(partial(self._admitted, request))

    def _admitted(self, request: StreamSink, _: object) -> None:
        self._is_waiting = False
        self.end(request)
        self._take_turns()

    def copy(self, message: Pieces) -> None:
        """Copy a message out of the model's memory, in steps, if it waits for others."""
        if self.outbox.held:
            self._call.work(message.steps_of_copy())

    def failure(self, encoder: StreamEncoder, error: Exception) -> bytes | None:
        """Return the message of an error; None if the error ends the stream."""
        return self.error_message(encoder, client_error("ModelStreamInfer", error))

    def error_message(
        self, encoder: StreamEncoder, error: ZmqTritonError, *, is_final: bool = True
    ) -> bytes | None:
        """Return the message of an error; None if the error ends the stream."""
        if self._ends_at_error:
            self.outbox.end(error)
            return None
        return encoder.error(error.text, is_final=is_final)


class StreamSink(Sink):
    """A request of a stream; receives its one response in turn, or many as they come."""

    __slots__ = (
        "_exchange",
        "encoder",
        "is_over",
        "kept",
        "message",
        "pending",
        "sending_done",
        "size",
        "wants_empty_final",
    )

    sending = "GRPC_SEND"

    def __init__(
        self,
        exchange: _Exchange,
        encoder: StreamEncoder,
        size: int,
        kept: int,
        sending_done: asyncio.Future[None] | None,
    ) -> None:
        """Set up for a message of this size; `kept` of its bytes are kept until the response.

        `sending_done` is resolved if the request is never sent to the broker.
        """
        self._exchange = exchange
        self.encoder = encoder
        self.size, self.kept = size, kept
        self.sending_done = sending_done
        #: The client of a stream of responses wants a final one in any case.
        self.wants_empty_final = False
        self.pending = Pending(exchange.gateway, self)
        self.is_over = False
        #: The answer in order; None if there is none, or not yet.
        self.message: Message | None = None

    # ------------------------------------------------------ an answer in order

    def respond(self, pending: Pending, response: ResponseBody, /) -> None:
        if pending.form:
            response = pending.classified(response)
        exchange, outbox = self._exchange, self._exchange.outbox
        message = self.encoder.response(
            response, is_final=True, admits=outbox.admits, in_pieces=not outbox.held
        )
        if type(message) is Pieces:
            exchange.copy(message)
        exchange.answer(self, message)

    def refuse(self, error: Exception, /) -> None:
        self._exchange.answer(self, self._exchange.failure(self.encoder, error))

    # -------------------------------------------------------- many, as they come

    async def follow(self, pending: Pending, checked: CheckedRequest, /) -> None:
        exchange = self._exchange
        try:
            responses = exchange.responses(checked)
            del checked  # the request's tensors are not kept for as long as there are responses
            await self._send_all(pending, *responses)
        except Exception as error:  # noqa: BLE001 - an edge: the others of this stream go on
            message = exchange.failure(self.encoder, error)
            if message is not None:
                await exchange.outbox.send(message, needs_room=False)
        finally:
            if self.sending_done is not None:
                wake(self.sending_done)
            exchange.end(self)

    async def _send_all(
        self, pending: Pending, generator: AsyncGenerator[StreamItem, None], arrivals: Arrivals
    ) -> None:
        outbox = self._exchange.outbox
        async with aclosing(generator) as items:
            async for item in items:
                if pending.form:
                    item = item.changed(partial(classify, pending.model, classes=pending.form))
                # while this waits nothing more of the model's stream is taken
                if item.body is not None:
                    size = 0
                    for tensor in item.body.outputs:
                        size += len(tensor.data)
                    if size > FREE_BYTES:
                        await outbox.wait_for_room(size, arrivals)
                message = self._encode(item)
                del item  # its memory is the model's
                if message is not None:
                    sending = outbox.send(message)
                    del message  # as well
                    await sending

    def _encode(self, item: StreamItem) -> Message | None:
        exchange, encoder = self._exchange, self.encoder
        if item.error is not None:
            return exchange.error_message(encoder, item.error, is_final=item.is_final)
        if item.body is None:
            return encoder.empty_final() if self.wants_empty_final else None
        try:
            # one that need not wait for others is sent from where it lies
            in_pieces = not exchange.outbox.held
            message = encoder.response(item.body, is_final=item.is_final, in_pieces=in_pieces)
            if type(message) is Pieces:
                exchange.copy(message)
            return message
        except ZmqTritonError as unsendable:
            return exchange.error_message(encoder, unsendable, is_final=item.is_final)
