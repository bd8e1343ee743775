"""A frontend's only way in: inferences to the broker, control calls over the lifeline.

Used on one asyncio loop; all requests of one turn travel in one message. Callers get a response or
a ZmqTritonError, and cancel by cancelling. Without a broker requests wait for one.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing, closing
from typing import Any
from weakref import WeakValueDictionary

from zmqtriton_floor import wire
from zmqtriton_floor.errors import ProtocolError, Unavailable, Unsupported, from_number
from zmqtriton_floor.lifeline import Lifeline
from zmqtriton_floor.settings.frontends import FrontendSettings
from zmqtriton_frontends.gateway.broker_link import BrokerLink, Steps
from zmqtriton_frontends.gateway.control_calls import ControlCalls
from zmqtriton_frontends.gateway.model_settings import apply_settings
from zmqtriton_frontends.gateway.pending import Pending
from zmqtriton_frontends.gateway.streams import ResponseStream, StreamItem, Streams
from zmqtriton_frontends.gateway.supervisor_line import SupervisorLine
from zmqtriton_frontends.gateway.token_marks import TokenMarks
from zmqtriton_frontends.inference.admission import CheckedRequest
from zmqtriton_frontends.inference.catalogue import CATALOGUE_MESSAGES, CUT, STOPPING, Catalogue
from zmqtriton_frontends.inference.stage_times import Stages
from zmqtriton_frontends.inference.trace_sampling import Traces
from zmqtriton_frontends.process import request_log
from zmqtriton_frontends.process.futures import Callbacks, wake
from zmqtriton_frontends.tensors.payload import BLOCK_MESSAGES, Payload, StubPayload
from zmqtriton_frontends.tensors.references import PlacedBody
from zmqtriton_frontends.tensors.segments import MESSAGES as SEGMENT_MESSAGES

_log = logging.getLogger(__name__)

#: Seconds after the order to stop during which sequences may still begin, if no other server has
#: the port.
NEW_SEQUENCES_S = 2.0
#: Replies of one message that are taken in one go; more are taken one by one, so that others have
#: their turns between them.
_FEW_REPLIES = 8


def _refuse_call(call: wire.Call) -> wire.CallResult:
    return wire.CallResult(
        call.id, Unsupported.number, f"'{call.verb}' cannot be asked here", "null"
    )


def _in_steps(
    rows: list[wire.Reply],
    bodies: list[bytes],
    take: Callable[[wire.Reply, bytes], None],
    drop: Callable[[ProtocolError], None],
) -> Steps:
    """Process replies one by one, and drop the body of each at once."""
    bodies.reverse()
    for row in rows:
        body = bodies.pop()
        try:
            take(row, PlacedBody(body) if row.flags & wire.HAS_REFERENCES else body)
        except ProtocolError as error:
            drop(error)
        yield


class Gateway:
    """One process's connection to the rest of the server."""

    #: Another server has the sockets, and serves them.
    has_successor = False
    #: State that the entrances of the process share; the first of them makes it.
    entrances: Any = None

    def __init__(
        self, lifeline: Lifeline, on_lost: Callable[[], None] = lambda: os._exit(1)
    ) -> None:
        """Set up; `on_lost` is called when the supervisor is gone."""
        self._supervisor = SupervisorLine(lifeline, self._take_from_supervisor, on_lost)
        self._loop: asyncio.AbstractEventLoop
        self._bootstrap: wire.Bootstrap
        self._next_id = self.serial = 0
        self._welcomed: asyncio.Future[None]
        #: Receivers of replies by request id; None if it was cancelled, or the broker abandoned it.
        self._replies: dict[int, Pending | ResponseStream | None] = {}
        #: Streams that are still read; and futures of requests whose large tensors are being
        #: placed, done when they are sent.
        self._streams, self._placing = set[ResponseStream](), set[asyncio.Future[None]]()
        self._broker = BrokerLink(self._take_from_broker, self._introduce, self._is_cancelled)
        self._control_calls = ControlCalls(self._supervisor.send, self._broker.send)
        self.call, self.statistics = self._control_calls.call, self._control_calls.statistics
        self.token_marks = TokenMarks(self._broker.send)
        self._stages: WeakValueDictionary[int, Stages] = WeakValueDictionary()
        # there from the Bootstrap on
        self.payload: Payload
        self.streams: Streams
        self.settings: FrontendSettings
        self.traces, self.catalogue = Traces(), Catalogue()
        send = self._supervisor.send
        self.catalogue.regions.on_left.append(lambda number: send(wire.RegionReleased(number)))
        #: The server stops; and later, no sequence is open any more.
        self.is_stopping = self.is_ending = False
        #: Requests are taken until the process ends, since it tells its clients to go: for so long
        #: also those that begin a sequence. None: only open sequences go on.
        self.begins_sequences_s: float | None = None
        self._refuses_at_s = math.inf
        self.malformed = 0  # Messages that did not decode, or that answered no question.
        #: Called when clients may come; when they are to go; with the milliseconds to the end.
        self.on_open, self.on_retire, self.on_stop = Callbacks(), Callbacks(), Callbacks()
        #: Answers what the supervisor asks of this process.
        self.on_call: Callable[[wire.Call], wire.CallResult] = _refuse_call
        #: Handlers of the broker's messages by type, but for Replies.
        self._of_broker: dict[type, Callable[[Any], object]] = {
            wire.CallResult: self._control_calls.settle,
            **dict.fromkeys((wire.StageTimes, wire.Progress), self._take_stages),
            wire.Welcome: self._take_welcome,
            **dict.fromkeys(BLOCK_MESSAGES, lambda message: self.payload.hear_of_blocks(message)),
        }
        #: Handlers of the supervisor's messages by type, but for those that come with descriptors.
        self._of_supervisor: dict[type, Callable[[Any], object]] = {
            **dict.fromkeys(CATALOGUE_MESSAGES, self.catalogue.apply),
            wire.RemoveRegion: lambda message: self.catalogue.regions.remove(message.number),
            wire.LogSettings: lambda message: request_log.change(message.settings),
            wire.TraceSettings: lambda message: self.traces.change(message.settings),
            wire.Sync: lambda sync: self._loop.call_soon(self._acknowledge, sync.number),
            wire.CallResult: self._control_calls.settle,
            wire.Call: lambda call: send(self.on_call(call)),
            wire.Bootstrap: self._take_bootstrap,
            wire.NewEpoch: lambda message: self._change_broker(message.epoch),
            wire.Listen: lambda _: self.on_open(),
            **dict.fromkeys((wire.Retire, wire.Shutdown), self._stop),
        }

    @property
    def in_flight(self) -> int:
        """The number of requests that the broker has not answered, cancelled ones included."""
        return len(self._replies)

    async def start(self) -> None:
        """Start, and return when the broker knows this process, however long that takes."""
        self._loop = asyncio.get_running_loop()
        self._welcomed = self._loop.create_future()
        self._broker.begin(self._loop)
        self._supervisor.begin(self._loop)
        await self._welcomed

    def close(self) -> None:
        if self.serial:
            self.payload.close()  # before the server sees that this process has left
            self.streams.close()
        self.catalogue.regions.close()
        self._supervisor.close()
        self._broker.close()
        self.traces.end()

    # ------------------------------------------------------------ inferences

    def begin(self, request: CheckedRequest, reply: Pending) -> int | None:
        """Begin a request whose places are claimed; `reply` gets the response's body.

        Returns its id; None if memory has to be made first, which begin_late() awaits.
        """
        if request.claim is not None or (not request.is_small and request.is_large):
            placed = self.payload.place_now(request)
            if placed is None:
                return None
            own_id = self._send_placed(request, placed, wire.KEEPS_INPUTS)
        else:
            own_id = self._ask(request, request.body, request.cache_key)
        self._replies[own_id] = reply
        return own_id

    async def begin_late(self, request: CheckedRequest, reply: Pending) -> int:
        """Begin a request when there is memory; a cancellation before it is sent cancels it."""
        own_id = await self._send(request, wire.KEEPS_INPUTS)
        self._replies[own_id] = reply
        return own_id

    async def stream(self, request: CheckedRequest) -> AsyncGenerator[StreamItem, None]:
        """Iterate over the responses, up to and with the final one; errors are items.

        Works for all models. The model may make responses as fast as the caller reads them, and as
        there is room for unread ones. Closing the iterator before its end cancels the request.
        """
        if request.places:
            with closing(self.catalogue.regions.claim(request.places)) as claim:
                claim.keep_inputs(request.body.inputs)
                lending = request._replace(places={})  # written here
                if claim.is_on_gpu:
                    lending = lending.with_claim(claim, lends_files=False)
                async with aclosing(self.stream(lending)) as items:
                    async for item in items:
                        yield item.changed(claim.store)
            return
        if request.copy is not None:
            request.copy.skip()
        own_id = await self._send(request)
        has_places = request.claim is not None
        stream = ResponseStream(
            self._loop, own_id, request.arrivals, has_places=has_places, cancel=self.cancel
        )
        del request  # its tensors may be large, and this may last
        self._replies[own_id] = stream
        self._streams.add(stream)
        ready = stream.reader.ready
        try:
            while not stream.has_ended:
                if not ready:
                    await stream.wait()
                # kept in no variable: its memory is free when its reader has let go of it
                yield await stream.pop().opened(self.payload.open)
                self.streams.taken(stream)
        finally:
            self.cancel(own_id)  # if it is not answered
            for body in stream.reader.left():
                self.payload.discard(body)
            self.streams.left(stream)
            self._streams.discard(stream)
            stream.reader.arrivals.release()

    async def _send(self, request: CheckedRequest, flags: int = 0) -> int:
        """Return the request's id, once its large tensors are in shared memory and it is sent."""
        if request.claim is None and not request.is_large:
            return self._ask(request, request.body, request.cache_key)
        placing = self._loop.create_future()
        self._placing.add(placing)
        try:
            return self._send_placed(request, await self.payload.place(request), flags)
        finally:
            self._placing.discard(placing)
            placing.set_result(None)

    def _send_placed(self, request: CheckedRequest, placed: StubPayload, flags: int) -> int:
        try:
            own_id = self._ask(request, placed.body, placed.cache_key, flags)
        except BaseException:
            placed.take_back()
            raise
        self.payload.placed[own_id] = placed
        return own_id

    def _ask(
        self,
        request: CheckedRequest,
        body: wire.RequestBody,
        cache_key: bytes,
        more_flags: int = 0,
    ) -> int:
        """Queue a request with this body for the next message, and return its id."""
        if self.is_stopping and not self._goes_on(request):
            raise Unavailable(STOPPING)
        options, observer = request.options, request.observer
        batch_size, batch_key = request.admission
        self._next_id = own_id = self._next_id + 1
        flags, priority, timeout_us, deadline_ns, correlation, token, placement = options
        row = (
            own_id,
            request.model.generation,
            "",  # model, by the generation
            -1,  # version
            flags | more_flags,
            priority,
            timeout_us,
            deadline_ns,
            batch_size,
            batch_key,
            correlation,
            cache_key,
            "" if observer is None else observer.context,
            0,  # peer of a caller that is a model
            token,
            placement,
        )
        self._broker.request(wire.make(wire.Request, row), wire.encode_body(body))
        if request.on_asked is not None:
            request.on_asked()
        if request.copy is not None:
            request.copy.send()
        if request.stages is not None:
            self._stages[own_id] = request.stages
        return own_id

    def _goes_on(self, request: CheckedRequest) -> bool:
        """Return whether a request is accepted although the server stops."""
        if self.begins_sequences_s is None:
            return request.continues_sequence and not self.is_ending
        return not request.begins_sequence or self._loop.time() < self._refuses_at_s

    def cancel(self, own_id: int) -> None:
        if own_id in self._replies:
            self._replies[own_id] = None
            self._broker.cancel(own_id)

    def _is_cancelled(self, own_id: int) -> bool:
        return self._replies.get(own_id, self) is None

    def give_up(self) -> None:
        """Cancel all open requests and answer them with an error, as the process ends."""
        for own_id, reply in list(self._replies.items()):
            self.cancel(own_id)
            if isinstance(reply, ResponseStream):
                reply.end(Unavailable(CUT))
            elif reply is not None:
                reply.set_exception(Unavailable(CUT))

    def _acknowledge(self, number: int) -> None:
        """Confirm a Sync one turn later, when tasks that were made before have begun.

        Requests that were checked against older states are sent first: their versions may end
        afterwards.
        """
        if self._placing:
            placed = asyncio.gather(*self._placing)
            placed.add_done_callback(lambda _: self._confirm(number))
        else:
            self._confirm(number)

    def _confirm(self, number: int) -> None:
        self._broker.flush()
        self._supervisor.send(wire.Synced(number))

    def _take_from_broker(self, frames: list[bytes]) -> Steps | None:
        try:
            message = wire.decode(frames[0], wire.MAX_CONTROL_BYTES)  # statistics may be long
            kind = type(message)
            if kind is not wire.Replies:
                if kind not in self._of_broker:
                    raise ProtocolError(f"{kind.__name__} is unexpected in a frontend")
                self._of_broker[kind](message)
                return None
            rows, bodies = message.replies, frames[1:]
            if len(bodies) != len(rows):
                raise ProtocolError("Replies: number of bodies and of replies differ")
            if len(rows) > _FEW_REPLIES:
                return _in_steps(rows, bodies, self._take_reply, self._drop_malformed)
            for row, body in zip(rows, bodies, strict=True):
                self._take_reply(row, PlacedBody(body) if row.flags & wire.HAS_REFERENCES else body)
        except ProtocolError as error:
            self._drop_malformed(error)
        return None

    def _drop_malformed(self, error: ProtocolError) -> None:
        self.malformed += 1
        _log.warning("dropped a message from the broker: %s", error.text)

    def _take_welcome(self, welcome: wire.Welcome) -> None:
        self.catalogue.has_broker = True
        self._broker.welcome_epoch = welcome.epoch
        wake(self._welcomed)

    def _take_stages(self, message: wire.StageTimes | wire.Progress) -> None:
        stages = self._stages.get(message.id)
        if stages is not None:
            stages.take(message)

    def _take_reply(self, row: wire.Reply, body: bytes) -> None:
        if row.id not in self._replies:
            self.malformed += 1  # or a second answer, from a broker that has taken over
            self._discard(row, body)
            return
        reply, kept = self._replies[row.id], None
        if row.flags & wire.FINAL:
            del self._replies[row.id]
            self._broker.unanswered.pop(row.id, None)
            if row.id in self.payload.placed:
                if row.flags & wire.FORWARDED:
                    kept = self.payload.keep(row.id)
                else:
                    self.payload.answered(row.id)
        elif row.flags & wire.ABANDONED:
            self._replies[row.id] = None
        if isinstance(reply, ResponseStream):
            self.streams.take_reply(reply, row, body)
        elif reply is None:
            self._discard(row, body)
        elif row.code:
            error = from_number(row.code, row.text)
            error.retry_after_ms = 0 if row.source else row.number
            reply.set_exception(error)
        else:
            reply.set_result(body, kept)

    def _discard(self, row: wire.Reply, body: bytes) -> None:
        if not row.flags & wire.FORWARDED:  # else nothing is leased
            self.payload.discard(body)

    # --------------------------------------------------------------- control

    def opened(self, services: Iterable[tuple[str, str]]) -> None:
        """Report to the supervisor that this process works, and where clients can connect."""
        self._supervisor.watch_loop(self.call)
        self._supervisor.send(wire.Opened([wire.ServiceAddress(*each) for each in services]))

    def _take_from_supervisor(self, message: Any, descriptors: list[int]) -> None:
        kind = type(message)
        if kind is wire.AddRegion and (descriptors or message.gpu >= 0):
            self.catalogue.regions.add(message, descriptors.pop() if descriptors else -1)
        elif kind in SEGMENT_MESSAGES:
            self.payload.segments.receive(message, descriptors)
        elif kind in self._of_supervisor:
            self._of_supervisor[kind](message)
        else:
            self.malformed += 1

    def _stop(self, message: Any) -> None:
        if type(message) is wire.Retire and message.has_successor:
            self.has_successor, self.begins_sequences_s = True, math.inf
        if not self.is_stopping:
            self._refuses_at_s = self._loop.time() + (self.begins_sequences_s or 0.0)
        self.is_stopping, self.is_ending = True, type(message) is wire.Shutdown
        if self.is_ending:
            self.on_stop(message.within_ms)
        else:
            self.on_retire()

    def _take_bootstrap(self, bootstrap: wire.Bootstrap) -> None:
        self._bootstrap, self.serial = bootstrap, bootstrap.serial
        self.settings = settings = FrontendSettings.decode(bootstrap.settings)
        request_log.follow(settings.log)
        apply_settings(self.catalogue, settings, self.call)
        self.payload = Payload(
            bootstrap.serial, settings.memory, self._supervisor.send, self._broker.send
        )
        self.streams = Streams(
            self._loop,
            bootstrap.serial,
            bootstrap.directory,
            self._replies,
            tell=self._broker.grant,
            cancel=self.cancel,
            discard=self.payload.discard,
        )
        self.catalogue.keys = self.payload.keys
        self.traces.begin(bootstrap.directory, settings.tracing)
        self._broker.connect(bootstrap.epoch, bootstrap.directory, self.payload.releases)

    # ------------------------------------------------------------ the broker

    def _introduce(self, epoch: int) -> tuple[Iterable[Any], Iterable[Any]]:
        bootstrap = self._bootstrap
        hello = wire.Hello(bootstrap.serial, bootstrap.token, epoch)
        unread = (body for stream in self._streams for body in stream.reader.left())
        self.streams.renew()
        first = [hello, *self.payload.change_broker(unread), *self.token_marks.for_next_broker()]
        return first, self._control_calls.for_next_broker()

    def _change_broker(self, epoch: int) -> None:
        self._broker.change(epoch)
        self.catalogue.has_broker = False


def is_followed(gateway: Gateway) -> bool:
    """Return whether the server stops, and another one accepts clients that connect from now on."""
    return gateway.is_stopping and gateway.begins_sequences_s == math.inf
