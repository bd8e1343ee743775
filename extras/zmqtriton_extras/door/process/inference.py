"""A request for inference through the door, and its response or stream of responses.

Does not check whether a request fits its model, but no name, number or count leaves this module
that the wire could not carry. A request to a model that is not decoupled needs no task; a stream
has one, which waits for credit from its client and for room among its unread responses.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from zmqtriton.sdk.frontend import (
    Arrivals,
    Ask,
    CheckedRequest,
    Content,
    Entrance,
    ModelVersion,
    OpenSequences,
    Pending,
    RegionSlice,
    Sink,
    StreamItem,
    admission,
    now_ns,
    refusals,
)
from zmqtriton.sdk.wire import INLINE_BYTES, InvalidArgument, ZmqTritonError, datatypes, wire
from zmqtriton_extras.door.process import responses
from zmqtriton_extras.door.process.fields import Fields
from zmqtriton_extras.door.process.responses import Message

#: Inputs and outputs of one request together; its parameters.
MAX_TENSORS = 1024
MAX_PARAMETERS = 1024
MAX_RANK = 32
MAX_SEQUENCE_ID = 128
_MAX_COUNT = 2**63 - 1


NO_HEADERS: Mapping[bytes, str] = MappingProxyType({})


class DoorRequest(NamedTuple):
    """A client's request for inference."""

    model: str
    version: str
    body: wire.RequestBody
    options: admission.SchedulingOptions
    places: Mapping[str, RegionSlice]
    classes: Mapping[str, int]
    #: Number of responses that may be sent before the client grants more; None is no limit.
    credit: int | None
    #: The span that the client has begun, as the headers of HTTP.
    headers: Mapping[bytes, str]


def read(fields: Fields, frames: Sequence[Any]) -> DoorRequest:
    """Read a request; its frames are buffers, which become the data of its inputs."""
    model, version = fields.name("model"), fields.text("version")
    request_id = fields.text("request_id", max_length=_MAX_COUNT)
    inputs = fields.items("inputs")
    outputs = fields.items("outputs")
    if len(inputs) + len(outputs) > MAX_TENSORS:
        raise InvalidArgument(f"a request cannot have more than {MAX_TENSORS} inputs and outputs")
    data = iter(frames)
    tensors = [_input(entry, data) for entry in inputs]
    if next(data, None) is not None:
        raise InvalidArgument(f"unexpected additional input data for model '{model}'")
    names, places, classes = _outputs(outputs) if outputs else ([], {}, {})
    parameters = _parameters(fields.map("parameters"))
    options = _options(fields)
    credit = fields.count("credit") if fields.has("credit") else None
    headers: Mapping[bytes, str] = NO_HEADERS
    if fields.has("traceparent"):
        span = fields.text("traceparent"), fields.text("tracestate")
        headers = {b"traceparent": span[0], b"tracestate": span[1]}
    fields.check_known()
    body = wire.RequestBody(request_id, parameters, names, tensors)
    return DoorRequest(model, version, body, options, places, classes, credit, headers)


def _input(entry: Any, data: Iterator[Any]) -> wire.Tensor:
    fields = Fields(entry, "an input")
    name = fields.name("name")
    datatype = datatypes.BY_NAME.get(fields.name("datatype"))
    if datatype is None:
        raise InvalidArgument(f"invalid datatype for input {name}")
    shape = _shape(name, fields.items("shape"))
    place = _place(fields)
    fields.check_known()
    content: Any = place
    if place is None:
        frame = next(data, None)
        if frame is None:
            raise InvalidArgument(f"unable to find data for input tensor '{name}' in request.")
        content = frame.buffer if len(frame) > INLINE_BYTES else frame.bytes
    return wire.Tensor(name, datatype.number, shape, content)


def _shape(name: str, shape: list[Any]) -> list[int]:
    if len(shape) > MAX_RANK:
        raise InvalidArgument(f"the shape of input '{name}' can have at most {MAX_RANK} dimensions")
    for dim in shape:
        if type(dim) is not int or not 0 <= dim <= _MAX_COUNT:
            raise InvalidArgument(f"the shape of input '{name}' must be of unsigned integers")
    return shape


def _place(fields: Fields) -> RegionSlice | None:
    """Return the slice of a client's shared memory that has a tensor; None if none has."""
    region = fields.text("region")
    offset, size = fields.count("offset"), fields.count("byte_size")
    if not region:
        if offset or size:
            raise InvalidArgument("'offset' and 'byte_size' need a 'region'")
        return None
    return RegionSlice(region, offset, size)


def _outputs(
    outputs: list[Any],
) -> tuple[list[str], Mapping[str, RegionSlice], Mapping[str, int]]:
    names: dict[str, None] = {}
    places: dict[str, RegionSlice] = {}
    classes: dict[str, int] = {}
    for entry in outputs:
        fields = Fields({"name": entry} if type(entry) is str else entry, "an output")
        name = fields.name("name")
        if name in names:
            raise InvalidArgument(f"output '{name}' already exists in request")
        names[name] = None
        place, count = _place(fields), fields.count("classes")
        fields.check_known()
        if place is not None and count:
            raise InvalidArgument(
                "an output cannot have both a 'region' and 'classes': leave one out"
            )
        if place is not None:
            places[name] = place
        if count:
            classes[name] = count
    return list(names), places, classes


def _parameters(members: Mapping[str, Any]) -> dict[str, Any]:
    if len(members) > MAX_PARAMETERS:
        raise InvalidArgument(f"a request cannot have more than {MAX_PARAMETERS} parameters")
    for name, value in members.items():
        if type(name) is not str or type(value) not in (bool, int, float, str):
            raise InvalidArgument("a parameter must be an integer, a float, a boolean or a string")
        admission.check_parameter_name(name)
        if name.startswith("triton_"):
            raise InvalidArgument(
                "parameter keys starting with 'triton_' are reserved for Triton usage and should "
                "not be specified."
            )
    return dict(members)


def _options(fields: Fields) -> admission.SchedulingOptions:
    flags = fields.flag("sequence_start") * wire.SEQUENCE_START
    flags |= fields.flag("sequence_end") * wire.SEQUENCE_END
    priority, timeout_us = fields.count("priority"), fields.count("timeout_us")
    deadline_us = fields.count("deadline_us")
    deadline_ns = 0
    if deadline_us:
        deadline_ns = min(time.monotonic_ns() + deadline_us * 1000, _MAX_COUNT)
    sequence = fields.take("sequence_id")
    if sequence is None:
        sequence = 0
    if type(sequence) is int:
        if not 0 <= sequence < 2**64:
            raise InvalidArgument("the sequence id must be from 1 to 2**64 - 1")
    elif type(sequence) is not str:
        raise InvalidArgument("'sequence_id' must be an integer or a string")
    elif len(sequence) > MAX_SEQUENCE_ID:
        raise InvalidArgument(
            f"string correlation ID cannot be longer than {MAX_SEQUENCE_ID} characters"
        )
    if not (flags or priority or timeout_us or deadline_ns or sequence):
        return admission.NO_OPTIONS
    return admission.SchedulingOptions(flags, priority, timeout_us, deadline_ns, sequence)


class Asker(Protocol):
    """The client of a request, as far as that request needs it."""

    #: Sequences that it has started and not ended.
    sequences: OpenSequences
    #: The name of the client in logs.
    name: str

    def answer(self, number: int, message: Message) -> None:
        """Send the final message of a request."""

    def arrivals(self) -> Arrivals:
        """Return the room for a stream's responses that wait to be sent."""

    def waiting(self) -> AbstractContextManager[None]:
        """Count a stream, in a `with` block, as waiting for its client to grant more messages."""

    async def send(self, message: Message, arrivals: Arrivals) -> None:
        """Send a message of a stream when there is room for it."""

    def hold_back(self, number: int) -> None:
        """Begin no further requests until this one has its place in the order of requests."""

    def let_go(self, number: int) -> None:
        """Let further requests begin: this one has its place, or has failed."""


class DoorSink(Sink):
    """A request from its header to its last response."""

    __slots__ = ("_asker", "_credit", "_entrance", "_granted", "_number", "_pending", "_request")

    sending = "DOOR_SEND"
    admits = True

    def __init__(self, entrance: Entrance, asker: Asker, number: int, request: DoorRequest) -> None:
        self._pending = Pending(entrance.gateway, self, asker.sequences)
        self._entrance = entrance
        self._asker = asker
        self._number = number
        self._request = request
        #: Number of responses of a stream that may be sent now; None is no limit.
        self._credit = request.credit
        #: Future that the stream waits for while it has no credit.
        self._granted: asyncio.Future[None] | None = None

    def begin(self) -> None:
        """Begin the request; it may be answered before this returns."""
        request = self._request
        ask = Ask(
            (request.model, request.version),
            partial(_read, request),
            request.headers.get,
            deadline_ns=request.options.deadline_ns,
            begun_ns=now_ns(),
            source=partial(refusals.Source, "zmq", self._asker.name, "infer"),
        )
        self._entrance.begin(ask, self._pending)

    def cancel(self) -> None:
        """Cancel the request, unless it was answered."""
        self._pending.cancel()

    def grant(self, responses: int) -> None:
        """Allow a number of further responses."""
        if self._credit is not None:
            self._credit += responses
        if self._granted is not None and not self._granted.done():
            self._granted.set_result(None)

    def admit(self, checked: CheckedRequest, /) -> CheckedRequest:
        """Hold back further requests until a large one, or a stream, has its place."""
        if checked.model.signature.is_decoupled or checked.is_large:
            # room for its tensors may have to be made; what comes next must not overtake it
            self._asker.hold_back(self._number)
            checked = checked._replace(on_asked=lambda: self._asker.let_go(self._number))
            # they are where they are to be, or will be
            request = self._request
            self._request = request._replace(body=request.body._replace(inputs=[]))
        return checked

    # --------------------------------------------------------- a response

    def respond(self, pending: Pending, response: wire.ResponseBody, /) -> None:
        self._asker.answer(self._number, self._message(pending, response, is_final=True))

    def refuse(self, error: Exception, /) -> None:
        problem = responses.failure("infer", error)
        self._asker.answer(self._number, responses.error(self._number, problem))

    def _message(self, pending: Pending, response: wire.ResponseBody, *, is_final: bool) -> Message:
        places, model = self._request.places, pending.model
        if pending.form:
            response = pending.classified(response)
        return responses.response(
            self._number, model, pending.request_id, response, places, is_final=is_final
        )

    # ----------------------------------------------------------- a stream

    async def follow(self, pending: Pending, checked: CheckedRequest, /) -> None:
        arrivals = self._asker.arrivals()
        items = self._entrance.responses(checked, arrivals)
        del checked  # its tensors may be large, and this may last
        async with aclosing(items):
            async for item in items:
                message = self._item(pending, item)
                if item.is_final:
                    arrivals.pass_on()
                    self._asker.answer(self._number, message)
                    return
                del item
                # while this waits nothing more of the model's stream is taken
                if self._credit is not None:
                    await self._spend_credit()
                await self._asker.send(message, arrivals)
                del message  # its memory may be the model's

    async def _spend_credit(self) -> None:
        while not self._credit:
            self._granted = asyncio.get_running_loop().create_future()
            with self._asker.waiting():
                await self._granted
        self._credit -= 1

    def _item(self, pending: Pending, item: StreamItem) -> Message:
        number = self._number
        if item.error is not None:
            return responses.error(number, item.error, is_final=item.is_final)
        if item.body is None:
            return responses.end(number)
        try:
            return self._message(pending, item.body, is_final=item.is_final)
        except ZmqTritonError as unsendable:
            return responses.error(number, unsendable, is_final=item.is_final)


def _read(request: DoorRequest, model: ModelVersion) -> Content:
    return Content(request.body, request.options, request.places, request.classes)
