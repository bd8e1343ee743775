"""The body of an inference, read into the protocol-neutral request and the output forms.

Raises InvalidArgument with Triton's texts. Whether the request fits its model is not checked here;
but every name, number and count that leaves this file fits the wire format.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from zmqtriton_floor.datatypes import BY_NAME, count_elements
from zmqtriton_floor.errors import InvalidArgument, closest_match
from zmqtriton_floor.wire import SEQUENCE_END, SEQUENCE_START, RequestBody, Tensor, make
from zmqtriton_frontends.http_api.inference.tensor_data import Tail, json_to_bytes
from zmqtriton_frontends.inference.admission import (
    MAX_NAME,
    NO_OPTIONS,
    SchedulingOptions,
    check_parameter_name,
)
from zmqtriton_frontends.inference.classification import NO_CLASSES, Classes
from zmqtriton_frontends.inference.client_regions import NO_PLACES, RegionSlice

#: Limits of one request: inputs and outputs together; parameters; dimensions of a tensor;
#: characters of a sequence id.
MAX_TENSORS = 1024
MAX_PARAMETERS = 1024
MAX_RANK = 32
MAX_SEQUENCE_ID = 128

_MAX_COUNT = 2**63 - 1
_RESERVED = ("sequence_id", "sequence_start", "sequence_end", "priority", "timeout")


class OutputForm(NamedTuple):
    """Names of the outputs that are sent as binary, and places of outputs in shared memory."""

    #: Outputs that the client listed, and whether each is sent as binary.
    listed: dict[str, bool]
    #: Whether all others are sent as binary.
    default: bool
    places: Mapping[str, RegionSlice] = NO_PLACES
    #: Number of classes by output, for outputs that become classes.
    classes: Classes = NO_CLASSES


#: The request, the wishes to the scheduler, and the outputs as the client wants them.
InferRequest = tuple[RequestBody, SchedulingOptions, OutputForm]

#: The outputs of a request that lists none, by whether they are sent as binary.
_ALL_OUTPUTS = {is_binary: OutputForm({}, is_binary) for is_binary in (False, True)}


def read(document: Any, tail: Tail | None) -> InferRequest:
    """Read the request of a document; `tail` is None if the body was JSON only."""
    if type(document) is not dict:
        document = {}
    own_id = request_id(document) if "id" in document else ""
    parameters: dict[str, Any] = {}
    options, default_binary = NO_OPTIONS, False
    members = document.get("parameters")
    if members is not None:
        parameters, options, default_binary = _parameters(members)

    entries = document.get("inputs")
    if type(entries) is not list:
        raise _no_array(document, "inputs")
    has_names = "outputs" in document
    form = _outputs(document, default_binary) if has_names else _ALL_OUTPUTS[default_binary]
    if len(entries) + len(form.listed) > MAX_TENSORS:
        raise InvalidArgument(f"a request cannot have more than {MAX_TENSORS} inputs and outputs")
    inputs = []
    for entry in entries:
        inputs.append(_input(entry, tail))
    if tail is not None and tail.rest:
        raise InvalidArgument(f"unexpected additional input data for model '{tail.model}'")
    body = make(RequestBody, (own_id, parameters, list(form.listed), inputs, []))
    return body, options, form


def request_id(document: dict[str, Any]) -> str:
    """Return the client's id of the request. Raises InvalidArgument."""
    own_id = document.get("id", "")
    if type(own_id) is not str:
        raise _mismatch("id", "string")
    return own_id


def _mismatch(key: str, kind: str) -> InvalidArgument:
    return InvalidArgument(f"Unable to parse '{key}': attempt to access JSON non-{kind} as {kind}")


def _no_array(owner: dict[str, Any], key: str) -> InvalidArgument:
    return _mismatch(key, "array") if key in owner else _absent(key)


def _absent(key: str) -> InvalidArgument:
    return InvalidArgument(
        f"Unable to parse '{key}': attempt to access non-existing object member '{key}'"
    )


def _name(entry: Any, key: str = "name") -> str:
    if type(entry) is not dict or key not in entry:
        raise _absent(key)
    name = entry[key]
    if type(name) is not str:
        raise _mismatch(key, "string")
    if len(name) > MAX_NAME:
        raise InvalidArgument(f"Unable to parse '{key}': longer than {MAX_NAME} characters")
    return name


# ------------------------------------------------------------------- inputs


def _input(entry: Any, tail: Tail | None) -> Tensor:
    if type(entry) is not dict:
        raise _other_than_one_source({}, {})
    name = _name(entry)
    try:
        datatype = BY_NAME[entry["datatype"]]
    except (KeyError, TypeError):
        typed = _name(entry, "datatype")  # raises for what is no name at all
        meant = closest_match(typed, BY_NAME)
        raise InvalidArgument(
            f"invalid datatype for input {name}"
            + (f" ('{typed}'; did you mean '{meant}'?)" if meant else "")
        ) from None
    shape = _shape(entry)
    parameters = entry.get("parameters")
    if type(parameters) is not dict:
        parameters = {}
    is_binary = "binary_data_size" in parameters
    is_placed = "shared_memory_region" in parameters
    if is_binary + is_placed + ("data" in entry) != 1:
        raise _other_than_one_source(entry, parameters)
    data: Any
    if is_binary:
        size = parameters["binary_data_size"]
        if type(size) is not int or size < 0:
            raise _mismatch("binary_data_size", "unsigned-integer")
        if tail is None:
            raise InvalidArgument(
                "must specify valid 'Infer-Header-Content-Length' in request header and "
                "'binary_data_size' when passing inputs in binary data format"
            )
        data = tail.take(name, size)
    elif is_placed:
        data = _place(parameters)
    else:
        data = json_to_bytes(name, datatype, count_elements(shape), entry["data"])
    return make(Tensor, (name, datatype.number, shape, data))


def _shape(entry: dict[str, Any]) -> list[int]:
    shape = entry.get("shape")
    if type(shape) is not list:
        raise _no_array(entry, "shape")
    if len(shape) > MAX_RANK:
        raise InvalidArgument(f"Unable to parse 'shape': more than {MAX_RANK} dimensions")
    for dim in shape:
        if type(dim) is not int or not 0 <= dim <= _MAX_COUNT:
            raise _mismatch("shape", "unsigned-integer")
    return shape


def _other_than_one_source(entry: dict[str, Any], parameters: dict[str, Any]) -> InvalidArgument:
    sources = ["data"] if "data" in entry else []
    sources += [k for k in ("binary_data_size", "shared_memory_region") if k in parameters]
    said = "But no field is set"
    if sources:
        said = "But set " + " ".join(f"'{key}'" for key in sources)
    return InvalidArgument(
        "Input must set only one of the following fields: 'data', 'binary_data_size' in "
        f"'parameters', 'shared_memory_region' in 'parameters'. {said}"
    )


def _place(parameters: dict[str, Any]) -> RegionSlice:
    region = _name(parameters, "shared_memory_region")
    numbers = []
    for key in ("shared_memory_offset", "shared_memory_byte_size"):
        value = parameters.get(key, 0)
        if type(value) is not int or value < 0:
            raise _mismatch(key, "unsigned-integer")
        numbers.append(value)
    return RegionSlice(region, *numbers)


# ------------------------------------------------------------------ outputs


def _outputs(document: dict[str, Any], default_binary: bool) -> OutputForm:
    entries = document["outputs"]
    if type(entries) is not list:
        raise _mismatch("outputs", "array")
    if len(entries) > MAX_TENSORS:
        raise InvalidArgument(f"a request cannot have more than {MAX_TENSORS} inputs and outputs")
    listed: dict[str, bool] = {}
    places: dict[str, RegionSlice] = {}
    classes: dict[str, int] = {}
    for entry in entries:
        name = _name(entry)
        if name in listed:
            raise InvalidArgument(f"output '{name}' already exists in request")
        is_binary = False
        parameters = entry.get("parameters")
        if type(parameters) is dict:
            is_binary = parameters.get("binary_data", False)
            if type(is_binary) is not bool:
                raise _mismatch("binary_data", "boolean")
            count = _class_count(parameters) if "classification" in parameters else 0
            if count:
                classes[name] = count
            if "shared_memory_region" in parameters:
                places[name] = _place(parameters)
        listed[name] = is_binary
    return OutputForm(listed, default_binary, places, classes or NO_CLASSES)


def _class_count(parameters: dict[str, Any]) -> int:
    """Return the number of classes; 0: the output itself."""
    count = parameters["classification"]
    if type(count) is not int or not 0 <= count <= _MAX_COUNT:
        raise InvalidArgument(
            "Unable to set 'classification': attempt to access JSON non-unsigned-integer as "
            "unsigned-integer"
        )
    if count and "shared_memory_region" in parameters:
        raise InvalidArgument("Output can't set both 'shared_memory_region' and 'classification'")
    return count


# --------------------------------------------------------------- parameters


def _parameters(members: Any) -> tuple[dict[str, Any], SchedulingOptions, bool]:
    """Return the parameters for the model, and the options for the scheduler.

    The third value is True if outputs are sent as binary by default.
    """
    if type(members) is not dict:
        raise InvalidArgument(
            "failed to get request params.: attempt to get members for non-object"
        )
    if len(members) > MAX_PARAMETERS:
        raise InvalidArgument(f"a request cannot have more than {MAX_PARAMETERS} parameters")
    default_binary = members.get("binary_data_output", False)
    if type(default_binary) is not bool:
        raise _mismatch("binary_data_output", "boolean")
    options = NO_OPTIONS
    if not members.keys().isdisjoint(_RESERVED):
        options = _options(members)
    parameters = {}
    for key, value in members.items():
        if key in _RESERVED or key == "binary_data_output":
            continue
        check_parameter_name(key)
        if key.startswith("triton_"):
            raise InvalidArgument(
                "parameter keys starting with 'triton_' are reserved for Triton usage and should "
                "not be specified."
            )
        if type(value) not in (bool, int, float, str):
            raise InvalidArgument(
                f"parameter '{key[:MAX_NAME]}' has invalid type. It should be either 'int', "
                "'bool', or 'string'."
            )
        parameters[key] = value
    return parameters, options, default_binary


def _options(members: dict[str, Any]) -> SchedulingOptions:
    flags = 0
    for key, flag in (("sequence_start", SEQUENCE_START), ("sequence_end", SEQUENCE_END)):
        value = members.get(key, False)
        if type(value) is not bool:
            raise _mismatch(key, "boolean")
        flags |= flag * value
    for key in ("priority", "timeout"):
        value = members.get(key, 0)
        if type(value) is not int or not 0 <= value <= _MAX_COUNT:
            raise _mismatch(key, "unsigned-integer")
    return SchedulingOptions(
        flags=flags,
        priority=members.get("priority", 0),
        timeout_us=members.get("timeout", 0),
        correlation=_sequence_id(members.get("sequence_id", 0)),
    )


def _sequence_id(value: Any) -> int | str:
    if type(value) is int and 0 <= value < 2**64:
        return value
    if type(value) is not str:
        raise _mismatch("sequence_id", "string")
    if len(value) > MAX_SEQUENCE_ID:
        raise InvalidArgument(
            f"string correlation ID cannot be longer than {MAX_SEQUENCE_ID} characters"
        )
    return value
