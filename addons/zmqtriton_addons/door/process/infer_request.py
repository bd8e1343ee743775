"""The header of an inference: turns it and its frames into the protocol-neutral request.

Raises InvalidArgument. Whether the request fits its model is not checked here, but no name, number
or count leaves this file that the wire could not carry.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from zmqtriton_addons.door.process.fields import Fields
from zmqtriton_floor.arena import INLINE_BYTES
from zmqtriton_floor.datatypes import BY_NAME
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.wire import SEQUENCE_END, SEQUENCE_START, RequestBody, Tensor
from zmqtriton_frontends.inference import (
    NO_CLASSES,
    NO_OPTIONS,
    NO_PLACES,
    Classes,
    Options,
    RegionSlice,
    check_parameter_name,
)

#: Inputs and outputs of one request together; its parameters.
MAX_TENSORS = 1024
MAX_PARAMETERS = 1024
MAX_RANK = 32
MAX_SEQUENCE_ID = 128
_MAX_COUNT = 2**63 - 1


NO_HEADERS: Mapping[bytes, str] = MappingProxyType({})


class DoorRequest(NamedTuple):
    """An inference as a client wants it."""

    model: str
    version: str
    body: RequestBody
    options: Options
    places: Mapping[str, RegionSlice]
    classes: Classes
    #: How many responses may be sent before the client grants more; None without such a limit.
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
    names, places, classes = _outputs(outputs) if outputs else ([], NO_PLACES, NO_CLASSES)
    parameters = _parameters(fields.map("parameters"))
    options = _options(fields)
    credit = fields.count("credit") if fields.has("credit") else None
    headers: Mapping[bytes, str] = NO_HEADERS
    if fields.has("traceparent"):
        span = fields.text("traceparent"), fields.text("tracestate")
        headers = {b"traceparent": span[0], b"tracestate": span[1]}
    fields.check_known()
    body = RequestBody(request_id, parameters, names, tensors)
    return DoorRequest(model, version, body, options, places, classes, credit, headers)


def _input(entry: Any, data: Iterator[Any]) -> Tensor:
    fields = Fields(entry, "an input")
    name = fields.name("name")
    datatype = BY_NAME.get(fields.name("datatype"))
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
    return Tensor(name, datatype.number, shape, content)


def _shape(name: str, shape: list[Any]) -> list[int]:
    if len(shape) > MAX_RANK:
        raise InvalidArgument(f"the shape of input '{name}' has more than {MAX_RANK} dimensions")
    for dim in shape:
        if type(dim) is not int or not 0 <= dim <= _MAX_COUNT:
            raise InvalidArgument(f"the shape of input '{name}' must be of unsigned integers")
    return shape


def _place(fields: Fields) -> RegionSlice | None:
    """Return where in clients' shared memory a tensor lies; None if it does not."""
    region = fields.text("region")
    offset, size = fields.count("offset"), fields.count("byte_size")
    if not region:
        if offset or size:
            raise InvalidArgument("'offset' and 'byte_size' need a 'region'")
        return None
    return RegionSlice(region, offset, size)


def _outputs(
    outputs: list[Any],
) -> tuple[list[str], Mapping[str, RegionSlice], Classes]:
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
            raise InvalidArgument("an output cannot have both a 'region' and 'classes'")
        if place is not None:
            places[name] = place
        if count:
            classes[name] = count
    return list(names), places or NO_PLACES, classes or NO_CLASSES


def _parameters(members: Mapping[str, Any]) -> dict[str, Any]:
    if len(members) > MAX_PARAMETERS:
        raise InvalidArgument(f"a request cannot have more than {MAX_PARAMETERS} parameters")
    for name, value in members.items():
        if type(name) is not str or type(value) not in (bool, int, float, str):
            raise InvalidArgument("a parameter must be an integer, a float, a boolean or a string")
        check_parameter_name(name)
        if name.startswith("triton_"):
            raise InvalidArgument(
                "parameter keys starting with 'triton_' are reserved for Triton usage and should "
                "not be specified."
            )
    return dict(members)


def _options(fields: Fields) -> Options:
    flags = fields.flag("sequence_start") * SEQUENCE_START
    flags |= fields.flag("sequence_end") * SEQUENCE_END
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
            raise InvalidArgument("the sequence id is out of range")
    elif type(sequence) is not str:
        raise InvalidArgument("'sequence_id' must be an integer or a string")
    elif len(sequence) > MAX_SEQUENCE_ID:
        raise InvalidArgument(
            f"string correlation ID cannot be longer than {MAX_SEQUENCE_ID} characters"
        )
    if not (flags or priority or timeout_us or deadline_ns or sequence):
        return NO_OPTIONS
    return Options(flags, priority, timeout_us, deadline_ns, sequence)
