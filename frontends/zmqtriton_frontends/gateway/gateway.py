"""A frontend's only door: inferences to the broker, control calls and news over the lifeline.

Lives on one asyncio loop; what arises in one turn of it travels in one message. Callers get a
response or a ZmqTritonError, and cancel by cancelling. Without a broker requests wait for one.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from zmqtriton_floor import endpoints, logs, wire
from zmqtriton_floor.errors import InvalidArgument, ProtocolError, Unavailable, from_number
from zmqtriton_floor.lifeline import Lifeline
from zmqtriton_frontends.gateway.broker_connection import BrokerConnection, Outgoing, Reply
from zmqtriton_frontends.gateway.streams import ResponseStream, StreamItem, Streams
from zmqtriton_frontends.gateway.unanswered import Unanswered
from zmqtriton_frontends.inference import load_on_demand
from zmqtriton_frontends.inference.admission import CheckedRequest
from zmqtriton_frontends.inference.catalogue import STOPPING, Catalogue
from zmqtriton_frontends.inference.client_regions import NO_PLACES
from zmqtriton_frontends.inference.trace_sampling import Traces
from zmqtriton_frontends.tensors.payload import Payload
from zmqtriton_frontends.tensors.placement import Placement
from zmqtriton_frontends.tensors.references import PlacedBody, is_large, read_response
from zmqtriton_frontends.tensors.segments import MESSAGES as SEGMENT_MESSAGES

_log = logging.getLogger(__name__)


class Gateway:
    """One process's connection to the rest of the server."""

    def __init__(self, lifeline: Lifeline) -> None:
        self._lifeline = lifeline
        self._loop: asyncio.AbstractEventLoop
        self._bootstrap: wire.Bootstrap
        #: None while there is no broker.
        self._line: BrokerConnection | None = None
        self._epoch = self._next_id = 0
        self._welcomed: asyncio.Future[None]
        #: What waits for a reply; None where nobody does any more.
        self._replies: dict[int, Reply | ResponseStream | None] = {}
        #: Those of them whose responses are still read.
        self._streams: set[ResponseStream] = set()
        self._answers: dict[int, asyncio.Future[str]] = {}
        #: Those of them that the broker will answer.
        self._questions: dict[int, wire.AskStatistics] = {}
        self._unanswered, self._outgoing, self._flush_due = Unanswered(), Outgoing(), False
        self.payload: Payload  # there from the Bootstrap on
        self.serial = 0
        self.settings: dict[str, Any] = {}
        self.traces, self.catalogue = Traces(), Catalogue()
        self.catalogue.regions.on_left = lambda number: self._tell(wire.RegionReleased(number))
        self.streams = Streams(self._replies, self._grant)
        #: The server stops: nothing new is taken, only sequences go on; and not even these.
        self.is_stopping = self.is_ending = False
        self.malformed = 0  # messages that did not decode, or that answered nothing that was asked
        self.on_open: Callable[[], None] = lambda: None
        self.on_retire: Callable[[], None] = lambda: None
        self.on_stop: Callable[[int], None] = lambda within_ms: None
        self.on_end: Callable[[], None] = lambda: os._exit(1)  # the supervisor is gone

    @property
    def in_flight(self) -> int:
        """Requests that the broker has not answered, cancelled ones too."""
        return len(self._replies)

    async def start(self) -> None:
        """Returns when the broker knows this process. Raises nothing; waits as long as it takes."""
        self._loop = asyncio.get_running_loop()
        self._welcomed = self._loop.create_future()
        self._loop.add_reader(self._lifeline.fileno(), self._read_lifeline)
        self._read_lifeline()
        await self._welcomed

    def close(self) -> None:
        self.catalogue.regions.close()
        self._loop.remove_reader(self._lifeline.fileno())
        self._lifeline.close()
        self.streams.close()
        if self.serial:
            self.payload.close()
        self._disconnect()

    # ------------------------------------------------------------ inferences

    async def infer(self, request: CheckedRequest) -> wire.ResponseBody:
        """The one response. Raises the error that it became instead."""
        if request.places:
            with self.catalogue.regions.claim(request.places) as claim:
                return claim.store(await self.infer(request._replace(places=NO_PLACES)))
        own_id = await self._send(request)
        reply = self._replies[own_id] = self._loop.create_future()
        try:
            data = await reply
        except asyncio.CancelledError:
            self.cancel(own_id)
            self.payload.discard_unread(reply)
            raise
        finally:
            del reply  # the error in it knows this frame: both would stay until a collection
        return await self.payload.open(read_response(data))

    def begin(self, request: CheckedRequest, reply: Reply) -> int | None:
        """Only without places; the reply gets the response's body. Its id; None where memory has
        to be made first, which infer() waits for."""
        if is_large(request.body):
            placed = self.payload.place_now(request)
            if placed is None:
                return None
            own_id = self._send_placed(request, placed)
        else:
            own_id = self._ask(request)
        self._replies[own_id] = reply
        return own_id

    async def stream(self, request: CheckedRequest) -> AsyncGenerator[StreamItem, None]:
        """The responses, up to and with the final one; works for all models. Errors are items.

        The model is let go on as far as the caller is with iterating. Closing the iterator before
        its end cancels the request.
        """
        if request.places:
            with self.catalogue.regions.claim(request.places) as claim:
                async with aclosing(self.stream(request._replace(places=NO_PLACES))) as items:
                    async for item in items:
                        yield item.stored(claim.store)
            return
        own_id = await self._send(request)
        self._replies[own_id] = stream = ResponseStream(self._loop, own_id)
        self._streams.add(stream)
        ready = stream.reader.ready
        try:
            while True:
                if not ready:
                    await stream.wait()
                item = await stream.pop().opened(self.payload.open)
                self.streams.taken(stream)
                yield item
                if item.is_final:
                    return
        finally:
            self.cancel(own_id)  # if it is not answered
            for body in stream.reader.left():
                self.payload.discard(body)
            self.streams.left(stream)
            self._streams.discard(stream)

    async def _send(self, request: CheckedRequest) -> int:
        """The id of the request, which is sent when its large tensors are in shared memory."""
        if not is_large(request.body):
            return self._ask(request)
        return self._send_placed(request, await self.payload.place(request))

    def _send_placed(self, request: CheckedRequest, placed: Placement) -> int:
        try:
            own_id = self._ask(request._replace(body=placed.body, cache_key=placed.cache_key))
        except BaseException:
            placed.take_back()
            raise
        self.payload.sent(own_id, placed)
        return own_id

    def _ask(self, request: CheckedRequest) -> int:
        """Sends it with the next message; its id."""
        if self.is_stopping and (self.is_ending or not request.goes_on):
            raise Unavailable(STOPPING)
        model, body, admission, options, _, on_asked, _, cache_key, trace = request
        self._next_id = own_id = self._next_id + 1
        row = wire.Request(
            *(own_id, model.generation, "", -1, options.flags, options.priority),
            *(options.timeout_us, options.deadline_ns, admission.batch_size, admission.batch_key),
            *(options.correlation, cache_key, trace.context if trace is not None else ""),
        )
        self._outgoing.requests.append(row)
        self._outgoing.bodies.append(wire.encode_body(body))
        on_asked()
        self._flush_soon()
        return own_id

    def cancel(self, own_id: int) -> None:
        if own_id in self._replies:
            self._replies[own_id] = None
            self._unanswered.cancelled(own_id)
            self._outgoing.cancels.append(own_id)
            self._flush_soon()

    def _grant(self, grant: wire.StreamAck) -> None:
        self._outgoing.grants.append(grant)
        self._flush_soon()

    async def statistics(self, model: str = "", version: int = -1) -> dict[str, Any]:
        """The counters of a model, or of all; raises for an unknown one."""
        self._next_id = own_id = self._next_id + 1
        answer = self._answers[own_id] = self._loop.create_future()
        self._questions[own_id] = question = wire.AskStatistics(own_id, model, version)
        self._tell_broker(question)
        try:
            return dict(json.loads(await answer))
        finally:
            self._answers.pop(own_id, None)
            del self._questions[own_id]

    def _flush_soon(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        line = self._line
        if line is None:
            return
        self._flush_due = False
        self._unanswered.sent(self._outgoing.requests, self._outgoing.bodies)
        # Before the requests: who executes them may need the room.
        for release in self.payload.releases.take():
            line.put([wire.encode(release)])
        for frames in self._outgoing.messages():
            line.put(frames)
        line.flush()

    def _tell_broker(self, message: Any) -> None:
        if self._line is not None:
            self._line.put([wire.encode(message)])
            self._line.flush()

    def _read_broker(self) -> None:
        for header, *bodies in self._line.messages() if self._line is not None else ():
            try:
                message = wire.decode(header, wire.MAX_CONTROL_BYTES)  # statistics may be long
                self._take(message, bodies)
            except ProtocolError as error:
                self.malformed += 1
                _log.warning("dropped a message from the broker: %s", error.text)

    def _take(self, message: Any, bodies: list[bytes]) -> None:
        kind = type(message)
        if kind is wire.Replies:
            if len(bodies) != len(message.replies):
                raise ProtocolError("Replies: number of bodies and of replies differ")
            for row, body in zip(message.replies, bodies, strict=True):
                self._take_reply(row, PlacedBody(body) if row.flags & wire.HAS_REFERENCES else body)
        elif kind is wire.Statistics:
            self._settle(message)
        elif kind is wire.Welcome:
            self.catalogue.has_broker = True
            if not self._welcomed.done():
                self._welcomed.set_result(None)
        elif not self.payload.hear_of_blocks(message):
            raise ProtocolError(f"{kind.__name__} is unexpected in a frontend")

    def _take_reply(self, row: wire.Reply, body: bytes) -> None:
        if row.id not in self._replies:
            self.malformed += 1  # or a second answer, from a broker that has taken over
            self.payload.discard(body)
            return
        reply = self._replies[row.id]
        if row.flags & wire.FINAL:
            del self._replies[row.id]
            self._unanswered.answered(row.id)
            self.payload.answered(row.id)
        if isinstance(reply, ResponseStream):
            self.streams.take_reply(reply, row, body)
        elif reply is None or reply.done():
            self.payload.discard(body)
        elif row.code:
            reply.set_exception(from_number(row.code, row.text))
        else:
            reply.set_result(body)

    # --------------------------------------------------------------- control

    async def call(self, verb: str, arguments: dict[str, Any]) -> Any:
        """What the supervisor answers to a control call; raises its error."""
        if len(document := json.dumps(arguments)) > wire.MAX_DOCUMENT:
            raise InvalidArgument(f"the request is too large: {len(document)} bytes")
        self._next_id = own_id = self._next_id + 1
        answer = self._answers[own_id] = self._loop.create_future()
        self._tell(wire.Call(own_id, verb, document))
        try:
            return json.loads(await answer)
        finally:
            self._answers.pop(own_id, None)

    def listening(self, service: str, address: str) -> None:
        """Clients can connect."""
        self._tell(wire.Listening(service, address))

    def _tell(self, message: Any) -> None:
        self._lifeline.send(message)
        if self._lifeline.is_backed_up:
            self._loop.add_writer(self._lifeline.fileno(), self._write_lifeline)

    def _write_lifeline(self) -> None:
        self._lifeline.flush()
        if not self._lifeline.is_backed_up:
            self._loop.remove_writer(self._lifeline.fileno())

    def _read_lifeline(self) -> None:
        for message, descriptors in self._lifeline.receive():
            if type(message) is wire.AddRegion and descriptors:
                self.catalogue.regions.add(message, descriptors.pop())
            elif type(message) in SEGMENT_MESSAGES:
                self.payload.segments.receive(message, descriptors)
            elif type(message) is wire.LogSettings:
                self.settings.update(logs.change(logs.LogOptions.of(json.loads(message.settings))))
            elif type(message) is wire.TraceSettings:
                self.traces.change(json.loads(message.settings))
            else:
                self._hear(message)
            for unexpected in descriptors:
                os.close(unexpected)
        if self._lifeline.ended:
            self._loop.remove_reader(self._lifeline.fileno())
            self.on_end()

    def _hear(self, message: Any) -> None:
        kind = type(message)
        if kind is wire.VersionInfo:
            self.catalogue.update(message)
        elif kind is wire.ForgetModel:
            self.catalogue.forget(message.model)
        elif kind is wire.RemoveRegion:
            self.catalogue.regions.remove(message.number)
        elif kind is wire.Sync:
            self._loop.call_soon(self._see, message)
        elif kind is wire.CallResult:
            self._settle(message)
        elif kind is wire.Bootstrap:
            self._take_bootstrap(message)
        elif kind is wire.NewEpoch:
            self._change_broker(message.epoch)
        elif kind is wire.Listen:
            self.on_open()
        elif kind is wire.Retire or kind is wire.Shutdown:
            self._stop(message)
        else:
            self.malformed += 1

    def _stop(self, message: Any) -> None:
        self.is_stopping, self.is_ending = True, type(message) is wire.Shutdown
        if self.is_ending:
            self.on_stop(message.within_ms)
        else:
            self.on_retire()

    def _see(self, message: wire.Sync) -> None:
        self._flush()  # what was checked against older news goes before the word
        self._tell(wire.Synced(message.number))

    def _settle(self, message: Any) -> None:
        """Gives an Answer or Statistics to who asked, if that one still waits."""
        waiting = self._answers.get(message.id)
        if waiting is None or waiting.done():
            return
        if message.code:
            waiting.set_exception(from_number(message.code, message.text))
        else:
            waiting.set_result(message.result)

    def _take_bootstrap(self, bootstrap: wire.Bootstrap) -> None:
        self._bootstrap, self.serial = bootstrap, bootstrap.serial
        self.settings = json.loads(bootstrap.settings)
        self.catalogue.strict_readiness = bool(self.settings.get("strict_readiness", True))
        self.catalogue.demand = load_on_demand.of(self.settings, self.call)
        self.streams.take_bootstrap(self._loop, bootstrap.serial, bootstrap.directory)
        self.payload = Payload(bootstrap.serial, self.settings, self._tell, self._tell_broker)
        self.catalogue.keys = self.payload.keys
        self.traces.begin(bootstrap.directory, self.settings)
        self._connect(bootstrap.epoch)

    # ------------------------------------------------------------ the broker

    def _connect(self, epoch: int) -> None:
        bootstrap = self._bootstrap
        address = endpoints.requests_address(bootstrap.directory, epoch)
        self._line = line = BrokerConnection(self._loop, address, self._read_broker)
        line.put([wire.encode(wire.Hello(bootstrap.serial, bootstrap.token, epoch))])
        unread = (body for stream in self._streams for body in stream.reader.left())
        for held in self.payload.change_broker(unread):
            line.put([wire.encode(held)])
        for message, bodies in self._unanswered.again():
            line.put([wire.encode(message), *bodies])
        for question in self._questions.values():
            line.put([wire.encode(question)])
        line.flush()

    def _disconnect(self) -> None:
        if self._line is not None:
            self._read_broker()  # what has come is valid
            self._line.close()
            self._line = None

    def _change_broker(self, epoch: int) -> None:
        """The broker is dead, and this is the next one; 0: there is none yet."""
        self._disconnect()
        self.catalogue.has_broker = False
        self._epoch = epoch
        if epoch:  # Not now: who got a response in this turn opens it first, so that it is known.
            self._loop.call_soon(self._follow, epoch)

    def _follow(self, epoch: int) -> None:
        if epoch != self._epoch:
            return
        self._connect(epoch)
        self.streams.renew()
        self._flush()
