"""Turns protobuf requests into protocol-neutral ones: RequestBody and Options.

Knows no transport and no model: admission.prepare makes the checks that need the model's
configuration. Texts are Triton's.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.message import DecodeError

from zmqtriton_floor.datatypes import DATATYPES
from zmqtriton_floor.errors import InvalidArgument, Unsupported
from zmqtriton_floor.wire import SEQUENCE_END, SEQUENCE_START, RequestBody, Tensor, make
from zmqtriton_frontends.entrance.ask import Content
from zmqtriton_frontends.inference.admission import (
    NO_OPTIONS,
    SchedulingOptions,
    check_parameter_name,
)
from zmqtriton_frontends.inference.classification import NO_CLASSES, Classes
from zmqtriton_frontends.inference.client_regions import NO_PLACES, RegionSlice
from zmqtriton_frontends.inference.model_version import ModelVersion

_NUMBERS: dict[str, int] = {d.name: d.number for d in DATATYPES}
#: Places of the outputs of a request that has none in clients' regions.
_IN_NO_REGION: list[Any] = RequestBody._field_defaults["places"]
#: Our number for unknown names; the check against the model refuses it with Triton's text.
_NO_DATATYPE = 0
#: The largest number that the wire takes for an unsigned 64-bit value.
_MAX_COUNT = 2**63 - 1
#: Characters of the longest sequence id that is accepted, as by this Triton.
_MAX_CORRELATION_CHARACTERS = 128

#: Parameter that gives a client of a decoupled model a final response in any case.
EMPTY_FINAL = "triton_enable_empty_final_response"
#: Parameters of a request that are not the model's, and the fields that may hold them.
_RESERVED: dict[str, tuple[str, ...]] = {
    "sequence_id": ("int64_param", "string_param"),
    "sequence_start": ("bool_param",),
    "sequence_end": ("bool_param",),
    "priority": ("int64_param", "uint64_param"),
    "timeout": ("int64_param",),
    EMPTY_FINAL: ("bool_param",),
}
_REGION_PARAMETERS = {
    "shared_memory_region": "string_param",
    "shared_memory_offset": "int64_param",
    "shared_memory_byte_size": "int64_param",
}


def parse(kind: type[Any], data: bytes) -> Any:
    """Return the message. Raises InvalidArgument if the bytes are not of this type."""
    try:
        return kind.FromString(data)
    except DecodeError:
        raise malformed(kind) from None


def malformed(kind: Any) -> InvalidArgument:
    """Return the error for bytes that are no message of this type."""
    return InvalidArgument(f"failed to parse the request as {kind.DESCRIPTOR.full_name}")


def serialize(built: Any) -> bytes:
    """Return a message's bytes."""
    data: bytes = built.SerializeToString()
    return data


# ------------------------------------------------------------------ parameters


def read_options(request: Any) -> tuple[dict[str, Any], SchedulingOptions]:
    """Return the parameters for the model and those for the scheduler."""
    plain: dict[str, Any] = {}
    reserved: dict[str, Any] = {}
    for key, parameter in request.parameters.items():
        kind = parameter.WhichOneof("parameter_choice")
        if key in _RESERVED:
            if kind not in _RESERVED[key]:
                kinds = " or ".join(_RESERVED[key])
                raise InvalidArgument(
                    f"invalid value type for '{key}' parameter, expected {kinds}."
                )
            reserved[key] = getattr(parameter, kind)
        elif key.startswith("triton_"):
            raise InvalidArgument(
                "parameter keys starting with 'triton_' are reserved for Triton usage. Only the "
                "following keys starting with 'triton_' are allowed: "
                "triton_enable_empty_final_response"
            )
        else:
            check_parameter_name(key)
            if kind not in ("int64_param", "bool_param", "string_param", "double_param"):
                raise InvalidArgument(
                    f"invalid value type for '{key}' parameter, expected int64_param, bool_param, "
                    "or string_param."
                )
            plain[key] = getattr(parameter, kind)
    return plain, _options(reserved)


def _options(reserved: dict[str, Any]) -> SchedulingOptions:
    priority, timeout_us = reserved.get("priority", 0), reserved.get("timeout", 0)
    if priority < 0:
        raise InvalidArgument("invalid value for 'priority', expected value >= 0.")
    if timeout_us < 0:
        raise InvalidArgument("invalid value for 'timeout', expected value >= 0.")
    correlation = reserved.get("sequence_id", 0)
    if isinstance(correlation, int):
        correlation %= 2**64  # Triton takes the 64 bits as unsigned
    elif len(correlation) > _MAX_CORRELATION_CHARACTERS:
        raise InvalidArgument(
            f"string correlation ID cannot be longer than {_MAX_CORRELATION_CHARACTERS} characters"
        )
    flags = SEQUENCE_START if reserved.get("sequence_start") else 0
    flags |= SEQUENCE_END if reserved.get("sequence_end") else 0
    return SchedulingOptions(flags, min(priority, _MAX_COUNT), timeout_us, 0, correlation)


# ---------------------------------------------------------------------- tensors


def read_content(
    request: Any, raw: Sequence[Any], takes_streams: bool, model: ModelVersion
) -> Content:
    """Return the content of a request, with raw tensors from the given buffers.

    Raises InvalidArgument if data are missing or given twice, and Unsupported for a model that may
    answer more than once unless its client takes streams.
    """
    if not takes_streams and model.signature.is_decoupled:
        raise one_response()
    parameters, options = read_options(request) if request.parameters else ({}, NO_OPTIONS)
    taken, available = 0, len(raw)
    inputs = []
    for tensor in request.inputs:
        place = _input_place(tensor, request.model_name) if tensor.parameters else None
        data: Any
        if place is not None:
            data = place
        elif tensor.HasField("contents"):
            if available:
                raise InvalidArgument(
                    "contents field must not be specified when using raw_input_contents for "
                    f"'{tensor.name}' for model '{request.model_name}'"
                )
            data = read_contents(tensor, request.model_name)
        elif taken < available:
            data = raw[taken]
            taken += 1
        else:
            raise InvalidArgument(
                f"unable to find data for input tensor '{tensor.name}' for model "
                f"'{request.model_name}' in request."
            )
        shape = list(tensor.shape)
        if shape and min(shape) < 0:
            raise InvalidArgument(
                f"[request id: {request.id or '<id_unknown>'}] All input dimensions should be "
                f"specified for input '{tensor.name}' for model '{request.model_name}', got "
                f"[{','.join(map(str, shape))}]"
            )
        inputs.append(
            make(Tensor, (tensor.name, _NUMBERS.get(tensor.datatype, _NO_DATATYPE), shape, data))
        )
    if taken < available:
        raise InvalidArgument(f"unexpected additional input data for model '{request.model_name}'")
    outputs = _output_names(request) if request.outputs else []
    places, classes = read_wishes(request) if outputs else (NO_PLACES, NO_CLASSES)
    body = make(RequestBody, (request.id, parameters, outputs, inputs, _IN_NO_REGION))
    return make(Content, (body, options, places, classes, False, None))


def one_response() -> Unsupported:
    """Return the error of a request to a decoupled model from a client that reads one response."""
    return Unsupported(
        "ModelInfer RPC doesn't support models with decoupled transaction policy. "
        "Use ModelStreamInfer"
    )


def _output_names(request: Any) -> list[str]:
    names: dict[str, None] = {}
    for output in request.outputs:
        if output.name in names:
            raise InvalidArgument(f"output '{output.name}' already exists in request")
        names[output.name] = None
    return list(names)


def read_wishes(request: Any) -> tuple[Mapping[str, RegionSlice], Classes]:
    """Return the places of outputs in shared memory, and the numbers of classes by output.

    Raises InvalidArgument if the parameters of an output make no sense.
    """
    places: dict[str, RegionSlice] = {}
    by_output: dict[str, int] = {}
    for output in request.outputs:
        if not output.parameters:
            continue
        classes = _read_classification(output)
        place = _place_of(output)
        if place is not None and classes:
            raise InvalidArgument(
                "output can't set both 'shared_memory_region' and 'classification'"
            )
        if place is not None:
            places[output.name] = place
        if classes:
            by_output[output.name] = classes
    return places or NO_PLACES, by_output or NO_CLASSES


def _read_classification(output: Any) -> int:
    """Return the number of requested classes; 0: the output itself."""
    if "classification" not in output.parameters:
        return 0
    parameter = output.parameters["classification"]
    if parameter.WhichOneof("parameter_choice") != "int64_param":
        raise InvalidArgument(
            "invalid value type for 'classification' parameter, expected int64_param"
        )
    count: int = parameter.int64_param
    if count <= 0:
        raise InvalidArgument("invalid value for 'classification' parameter, expected >= 0")
    return count


def _input_place(tensor: Any, model: str) -> RegionSlice | None:
    place = _place_of(tensor)
    if place is not None and tensor.HasField("contents"):
        raise InvalidArgument(
            "unexpected 'content' provided when using shared memory for input tensor "
            f"'{tensor.name}' for model '{model}'"
        )
    return place


def _place_of(tensor: Any) -> RegionSlice | None:
    """Return the place of a tensor in shared memory, with its parameters checked.

    None if the tensor is in the message.
    """
    parameters, tail = tensor.parameters, f"parameter for tensor '{tensor.name}'"
    keys = [key for key in _REGION_PARAMETERS if key in parameters]
    if not keys:
        return None
    for key in keys:
        if "shared_memory_region" not in keys:
            raise InvalidArgument(
                f"'{key}' can not be specified without 'shared_memory_region' {tail}"
            )
        kind = _REGION_PARAMETERS[key]
        if parameters[key].WhichOneof("parameter_choice") != kind:
            raise InvalidArgument(f"invalid value type for '{key}' {tail}, expected {kind}.")
    if "shared_memory_byte_size" not in keys:
        raise InvalidArgument(
            "'shared_memory_byte_size' must be specified along with 'shared_memory_region' " + tail
        )
    numbers = []
    for key in ("shared_memory_offset", "shared_memory_byte_size"):
        # Triton takes the 64 bits as unsigned, so that a negative offset is beyond every region
        numbers.append(parameters[key].int64_param % 2**64 if key in keys else 0)
    return RegionSlice(parameters["shared_memory_region"].string_param, *numbers)


# --------------------------------------------------------------- typed contents


#: The type codes of `array`, which costs this process nothing, while numpy takes 7 MB. Small
#: integers are masked, so unsigned.
_CODES = {
    d.name: d.array_code.upper() if d.size < 4 else d.array_code for d in DATATYPES if d.array_code
}
_MASKS = {d.name: (1 << 8 * d.size) - 1 for d in DATATYPES if d.array_code and d.size < 4}
#: The datatypes that each field of InferTensorContents carries, the widest first.
_BY_WIDTH = sorted(DATATYPES, key=lambda d: -d.size)
_CARRIED = {
    field: [d.name for d in _BY_WIDTH if d.contents == field]
    for field in {d.contents for d in DATATYPES}
}


def _encoded(values: Any, datatype: str, widest: str) -> bytes:
    """Return the bytes of a field's values; `widest` is the widest datatype that it carries."""
    if datatype == "BYTES":
        return b"".join(len(value).to_bytes(4, "little") + value for value in values)
    if datatype != widest:
        # the low bytes of what is too large, as in Triton
        values = [value & _MASKS[datatype] for value in values]
    return array(_CODES[datatype], values).tobytes()


def read_contents(tensor: Any, model: str) -> bytes:
    """Return the typed contents as a tensor's bytes; empty if no field has values."""
    data = b""
    for field, values in tensor.contents.ListFields():
        carried = _CARRIED[field.name]
        if data:
            raise supplied_twice(tensor, model)
        datatype = tensor.datatype
        if datatype not in carried:
            expected = datatype if datatype in _NUMBERS else "<invalid>"
            raise InvalidArgument(
                f"{_unexpected(tensor, model)} of type '{carried[0]}', "
                f"expected datatype '{expected}'"
            )
        data = _encoded(values, datatype, carried[0])
    return data


def supplied_twice(tensor: Any, model: str) -> InvalidArgument:
    """Return the error of an input with two kinds of contents."""
    return InvalidArgument(f"{_unexpected(tensor, model)}, binary data was already supplied.")


def _unexpected(tensor: Any, model: str) -> str:
    return f"unexpected explicit tensor data for input tensor '{tensor.name}' for model '{model}'"
