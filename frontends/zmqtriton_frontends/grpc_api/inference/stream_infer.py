"""ModelStreamInfer: requests to any models come in on a stream, responses go out on it.

Models that are not decoupled are answered in the order of their requests, the responses of
decoupled ones as they come. An error of a request is a message on the stream and does not end it.
Knows no transport; closing the iterator that it returns cancels every request in flight.

The rules:

* Requests reach the broker in the order of the stream, so that a sequence stays in order. The
  next one is not read while one is parsed aside, waits for its model to be loaded, or waits for
  memory for large tensors.
* Reading pauses while too much of the stream is in flight: requests, their bytes, or bytes of
  answers that the client has not taken; or its share of the requests of all streams. gRPC's flow
  control then stops the client.
* An answer in order is a `_Turn`. It may be over long before its turn; only the first in the
  queue is offered to the outbox, and the next one once there was room for it. Decoupled responses
  have no turn: each request has a task that sends them, and that takes no more of the model's
  stream than the outbox has room for.
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
from zmqtriton_frontends.entrance.ask import TakesLong
from zmqtriton_frontends.entrance.entrance import Entrance
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.gateway.pending_request import PendingRequest
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
from zmqtriton_frontends.grpc_api.inference.gradual_parsing import LargeMessage, ParsedRequest
from zmqtriton_frontends.grpc_api.inference.infer import ask_of, parse_request
from zmqtriton_frontends.grpc_api.inference.outbox import Message, QuietEnd, StreamOutbox
from zmqtriton_frontends.grpc_api.inference.response import Pieces, StreamEncoder
from zmqtriton_frontends.inference.admission import CheckedRequest
from zmqtriton_frontends.inference.classification import NO_CLASSES, Classes, classify
from zmqtriton_frontends.inference.load_on_demand import NotLoaded
from zmqtriton_frontends.inference.model_version import ModelVersion
from zmqtriton_frontends.process.arrivals import Arrivals
from zmqtriton_frontends.process.futures import wake
from zmqtriton_frontends.process.turns import MAX_REQUESTS, RequestShares
from zmqtriton_frontends.tensors.references import is_large

#: Requests, and bytes of them, that may be in flight on one stream; at these limits its next
#: request is not read, and gRPC's flow control stops the client.
_MAX_REQUESTS = 1024
_MAX_REQUEST_BYTES = 64 << 20
#: Bytes of room for requests under way that are taken in one step.
_STEP_BYTES = 32 << 10
#: Bytes of answers that may have come and wait; at this limit the next request is not read,
#: either.
_MAX_ANSWER_BYTES = 4 << 20

_EMPTY_FINAL = "triton_enable_empty_final_response"


class Streaming:
    """ModelStreamInfer."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        pattern = gateway.settings.grpc.header_forward_pattern
        self._entrance = Entrance(gateway, "GRPC_WAITREAD", "GRPC_SEND", pattern)
        self._shares = RequestShares()
        self._exchanges: WeakSet[_Exchange] = WeakSet()

    def infer(self, requests: AsyncIterator[bytes], call: RpcCall) -> _Exchange:
        """Return the responses, which end when the requests have ended and all are answered.

        They raise the first error if the client wants that, and Unavailable if the server stops
        first. Raises InvalidArgument if metadata must not be forwarded.
        """
        self._entrance.check_headers(call.metadata)
        exchange = _Exchange(self._gateway, self._entrance, self._shares, call)
        self._exchanges.add(exchange)
        exchange.start(requests)
        return exchange

    def drain(self) -> None:
        """End streams from now on that have nothing to be answered, and are quiet for a while."""
        for exchange in list(self._exchanges):
            exchange.drain()


class _Exchange:
    """One stream; its responses are iterated over until it is closed."""

    def __init__(
        self, gateway: Gateway, entrance: Entrance, shares: RequestShares, call: RpcCall
    ) -> None:
        self.outbox = StreamOutbox(call.answers, self._go_on)
        #: Share for responses that have come and are not encoded.
        self._arrived = call.answers.another()
        self._gateway = gateway
        self._entrance = entrance
        self._shares = shares
        self._call = call
        self._loop = asyncio.get_running_loop()
        self._ends_at_error = ("triton_grpc_error", "true") in call.metadata
        self._reading: asyncio.Task[None]
        #: Answers to the requests in flight, each a task or a turn, and the sizes of these
        #: requests.
        self._answering: dict[asyncio.Task[None] | _Turn, int] = {}
        self._bytes = 0
        #: Bytes of these requests that are kept, and the share for them.
        self.request_bytes = 0
        self._held = call.requests.another()
        self._quiet_end = QuietEnd(lambda: bool(self._answering), lambda: self._reading.cancel())
        #: Answers that keep the order of their requests, in that order.
        self._turns: deque[_Turn] = deque()
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
        """Read no more requests once the client has asked nothing for a while."""
        self._quiet_end.begin()

    async def aclose(self) -> None:
        """Cancel all requests in flight."""
        self.outbox.close()
        self._reading.cancel()
        self._quiet_end.close()
        for answering in self._answering:
            answering.cancel()
        if self._answering:
            self._shares.end(len(self._answering), was_last=True)
        self._answering.clear()
        self._turns.clear()
        self._held.release()

    # ---------------------------------------------------------------- requests

    async def _read(self, requests: AsyncIterator[bytes]) -> None:
        shares = self._shares
        async for data in requests:
            self._quiet_end.asked_s = self._loop.time()
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
        """Let the next request be read, if there is room for it."""
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
        """Begin a request; return False if it has to be read aside, or its model loaded."""
        self._sending = None
        request_id = ""
        try:
            request, raw = parse_request(data)
            request_id = request.id
            ask = ask_of(request, raw, self._call, takes_streams=True)
            self._start(request, data, self._entrance.enter(ask))
        except (LargeMessage, NotLoaded):
            return False
        except TakesLong as long:
            long.reading.close()
            return False
        except Exception as error:  # noqa: BLE001 - an edge: the others of this stream go on
            self._take_turn(StreamEncoder(request_id), data).set_exception(error)
        return True

    async def _begin_late(self, data: bytes) -> None:
        """Begin a request once it is parsed and its model is loaded."""
        request_id = ""
        parsed: ParsedRequest | None = None
        try:
            try:
                request, raw = parse_request(data)
            except LargeMessage as large:
                parsed = await large.read(self._call)
                request, raw = parse_request(parsed)
            request_id = request.id
            ask = ask_of(request, raw, self._call, takes_streams=True)
            self._start(request, parsed or data, await self._entrance.admit(ask))
        except Exception as error:  # noqa: BLE001 - an edge, as above
            self._take_turn(StreamEncoder(request_id), data).set_exception(error)
        finally:
            if parsed is not None:
                parsed.release()

    def _start(self, request: Any, data: bytes | ParsedRequest, checked: CheckedRequest) -> None:
        """Start the answering of a request. Raises NoRequestRoomError.

        Requests reach the broker in the order of the stream, so a sequence stays in order; of
        decoupled models, too, since their tasks begin in that order. Only large ones go later, see
        `_sending`.
        """
        model, kept = checked.model, len(data)
        if (
            kept > FREE_REQUEST_BYTES
            or self.request_bytes + kept > FREE_REQUEST_BYTES + self._held.held
        ):
            kept = self._hold(checked.body, kept)
        if is_large(checked.body):
            self._sending = sending = self._loop.create_future()
            checked = checked._replace(on_asked=partial(wake, sending))
        encoder = StreamEncoder(request.id, model.name, model.version, request.model_version)
        if not model.signature.is_decoupled:
            self._take_turn(encoder, data, kept).start(checked)
            return
        wants_empty_final = (
            _EMPTY_FINAL in request.parameters and request.parameters[_EMPTY_FINAL].bool_param
        )
        self._begin_stream(encoder, checked, (len(data), kept), wants_empty_final)

    def _begin_stream(
        self,
        encoder: StreamEncoder,
        checked: CheckedRequest,
        sizes: tuple[int, int],
        wants_empty_final: bool,
    ) -> None:
        """Start the sender of the responses of a decoupled model."""
        size, kept = sizes
        arrivals = Arrivals(self._arrived)
        responses = self._entrance.responses(checked, arrivals)
        # which does not keep the request's tensors for as long as there are responses
        following = self._follow(
            encoder, (responses, arrivals), (checked.model, checked.classes), wants_empty_final
        )
        answering = self._loop.create_task(following)
        self._shares.begin(is_first=not self._answering)
        self._answering[answering] = size
        self._bytes += size
        self.request_bytes += kept
        answering.add_done_callback(partial(self._have_followed, kept))
        if self._sending is not None:
            answering.add_done_callback(partial(wake, self._sending))

    def _hold(self, body: RequestBody, size: int) -> int:
        """Take room for a request; return how much of it is kept. Raises NoRequestRoomError."""
        kept = kept_bytes(body, size)
        missing = self.request_bytes + kept - FREE_REQUEST_BYTES - self._held.held
        if missing > 0 and not self._held.take(-(-missing // _STEP_BYTES) * _STEP_BYTES):
            raise NoRequestRoomError
        return kept

    def _take_turn(
        self, encoder: StreamEncoder, data: bytes | ParsedRequest, kept: int = 0
    ) -> _Turn:
        """Take a place in the order of answers."""
        turn = _Turn(self._gateway, self, encoder, self._sending, kept)
        self._turns.append(turn)
        self._shares.begin(is_first=not self._answering)
        self._answering[turn] = len(data)
        self._bytes += len(data)
        self.request_bytes += kept
        return turn

    def take_turns(self) -> None:
        """Send the answers whose turn it is."""
        while self._turns and self._turns[0].is_over and not self._is_waiting:
            turn = self._turns.popleft()
            admitted = None if turn.message is None else self.outbox.offer(turn.message)
            if admitted is None:
                self._have_answered(turn)
            else:
                self._is_waiting = True
                admitted.add_done_callback(partial(self._admitted, turn))

    def _admitted(self, turn: _Turn, _: object) -> None:
        self._is_waiting = False
        self._have_answered(turn)
        self.take_turns()

    def _have_followed(self, kept: int, answering: asyncio.Task[None]) -> None:
        self.request_bytes -= kept
        self._have_answered(answering)

    def _have_answered(self, answering: asyncio.Task[None] | _Turn) -> None:
        if answering in self._answering:
            self._bytes -= self._answering.pop(answering)
            self._shares.end(was_last=not self._answering)
        if self._held.held and self.request_bytes <= FREE_REQUEST_BYTES:
            self._held.release()
        if self._room is not None:
            wake(self._room)
        if not self._answering and self._reading.done():
            self._end()

    # ----------------------------------------------------------------- answers

    async def _follow(
        self,
        encoder: StreamEncoder,
        responses: tuple[AsyncGenerator[StreamItem, None], Arrivals],
        model_and_classes: tuple[ModelVersion, Classes],
        wants_empty_final: bool,
    ) -> None:
        try:
            await self._send_all(encoder, responses, model_and_classes, wants_empty_final)
        except Exception as error:  # noqa: BLE001 - an edge: the others of this stream go on
            message = self.failure(encoder, error)
            if message is not None:
                await self.outbox.send_anyway(message)

    async def _send_all(
        self,
        encoder: StreamEncoder,
        responses: tuple[AsyncGenerator[StreamItem, None], Arrivals],
        model_and_classes: tuple[ModelVersion, Classes],
        wants_empty_final: bool,
    ) -> None:
        (generator, arrivals), (model, classes) = responses, model_and_classes
        async with aclosing(generator) as items:
            async for item in items:
                if classes:
                    item = item.changed(partial(classify, model, classes=classes))
                # while this waits nothing more of the model's stream is taken
                if item.body is not None:
                    size = 0
                    for tensor in item.body.outputs:
                        size += len(tensor.data)
                    if size > FREE_BYTES:
                        await self.outbox.wait_for_room(size, arrivals)
                message = self._encode(encoder, item, wants_empty_final)
                del item  # its memory is the model's
                if message is not None:
                    sending = self.outbox.send(message)
                    del message  # as well
                    await sending

    def _encode(
        self, encoder: StreamEncoder, item: StreamItem, wants_empty_final: bool
    ) -> Message | None:
        if item.error is not None:
            return self._error_message(encoder, item.error, is_final=item.is_final)
        if item.body is None:
            return encoder.empty_final() if wants_empty_final else None
        try:
            # one that need not wait for others is sent from where it lies
            in_pieces = not self.outbox.held
            message = encoder.response(item.body, is_final=item.is_final, in_pieces=in_pieces)
            if type(message) is Pieces:
                self.copy(message)
            return message
        except ZmqTritonError as unsendable:
            return self._error_message(encoder, unsendable, is_final=item.is_final)

    def copy(self, message: Pieces) -> None:
        """Have a message copied out of the model's memory if it waits for others."""
        if self.outbox.held:
            self._call.work(message.steps_of_copy())

    def failure(self, encoder: StreamEncoder, error: Exception) -> bytes | None:
        """Return the error's message; None if it ends the stream instead."""
        return self._error_message(encoder, client_error("ModelStreamInfer", error))

    def _error_message(
        self, encoder: StreamEncoder, error: ZmqTritonError, *, is_final: bool = True
    ) -> bytes | None:
        """Return the error's message; None if it ends the stream instead."""
        if self._ends_at_error:
            self.outbox.end(error)
            return None
        return encoder.error(error.text, is_final=is_final)


class _Turn(PendingRequest):
    """A request to a model that is not decoupled, answered after those before it."""

    __slots__ = (
        "_classes",
        "_encoder",
        "_exchange",
        "_model",
        "_request_bytes",
        "_waiting",
        "is_over",
        "message",
    )

    SENDING = "GRPC_SEND"

    def __init__(
        self,
        gateway: Gateway,
        exchange: _Exchange,
        encoder: StreamEncoder,
        waiting: asyncio.Future[None] | None,
        kept: int,
    ) -> None:
        """Set up; `waiting` is settled if the request never goes to the broker.

        `kept` is the number of its bytes in memory until it is answered.
        """
        super().__init__(gateway)
        self._model: ModelVersion
        self._classes = NO_CLASSES
        self._exchange = exchange
        self._encoder = encoder
        self._waiting = waiting
        self._request_bytes = kept
        self.is_over = False
        #: The answer; None if there is none, or not yet.
        self.message: Message | None = None

    def start(self, checked: CheckedRequest) -> None:
        # and not its tensors, which need not be kept until it is answered
        self._model, self._classes = checked.model, checked.classes
        try:
            self._send(checked)
        except Exception as error:  # noqa: BLE001 - an edge: the others of this stream go on
            self._refuse(error)

    def cancel(self) -> None:
        if not self.is_over:
            super().cancel()

    def _respond(self, response: ResponseBody) -> None:
        if self._classes:
            response = classify(self._model, response, self._classes)
        outbox = self._exchange.outbox
        message = self._encoder.response(
            response, is_final=True, admits=outbox.admits, in_pieces=not outbox.held
        )
        if type(message) is Pieces:
            self._exchange.copy(message)
        if self._observer is not None:
            self._end_observed()
        self._finish(message)

    def _refuse(self, error: Exception) -> None:
        self._finish(self._exchange.failure(self._encoder, error))

    def _finish(self, message: Message | None) -> None:
        if self.is_over:
            return
        exchange = self._exchange
        exchange.request_bytes -= self._request_bytes
        outbox = exchange.outbox
        size = 0 if message is None else len(message)
        if outbox.held + size > outbox.room and not outbox.admits(size):
            message = exchange.failure(self._encoder, NoRoomError())
        if message is not None:
            outbox.held += len(message)
        self.is_over, self.message = True, message
        if self._waiting is not None:
            wake(self._waiting)
        exchange.take_turns()
