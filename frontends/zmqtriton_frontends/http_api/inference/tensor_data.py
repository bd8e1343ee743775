"""The data of tensors in a body: as lists in its JSON, or as the bytes after the JSON.

Elements are checked against their datatype, and their number against the shape; whether they fit a
model is checked later. A size that a client names is only compared with the arrived bytes.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np

from zmqtriton_floor.datatypes import (
    BY_CONFIG_NAME,
    BY_NAME,
    BY_NUMBER,
    BYTES,
    DATATYPES,
    Datatype,
    count_elements,
)
from zmqtriton_floor.documents import STEP
from zmqtriton_floor.errors import InternalError, InvalidArgument
from zmqtriton_floor.tensors import decode_bytes, encode_elements
from zmqtriton_floor.wire import RequestBody, Tensor
from zmqtriton_frontends.inference.model_version import ModelVersion

_BOOL = BY_NAME["BOOL"].number
_FP32 = BY_NAME["FP32"].number
#: Most elements with which a list is faster than an array that orjson has to inspect.
_LIST_UP_TO = 256
#: Codes of the array module, which checks types and ranges in C. It accepts true as 1.
_CODES = {d.number: d.array_code for d in DATATYPES if d.array_code and d.json_kind != "boolean"}
_NUMBERS = frozenset({bool, int, float})
_NUMPY: dict[int, Any] = {d.number: np.dtype(d.numpy) for d in DATATYPES if d.number in _CODES}
JSON_LENGTH_HEADER = "Inference-Header-Content-Length"
JSON_LENGTH = JSON_LENGTH_HEADER.lower().encode()

# int() would also accept '+5', '1_0' and digits of other scripts.
_INTEGER = re.compile(r"-?[0-9]{1,19}")


def json_to_bytes(name: str, datatype: Datatype, count: int, data: Any) -> bytes:
    """Return the bytes of an input; `count` is the product of its shape. Raises InvalidArgument."""
    number = datatype.number
    if not datatype.json_kind:
        raise InvalidArgument(
            f"receiving {datatype.name} data via JSON is not supported. "
            f"Please use the binary data format for input {name}"
        )
    if type(data) is not list:
        raise InvalidArgument("Unable to parse 'data': attempt to access JSON non-array as array")
    if data and (list in (type(data[0]), type(data[-1])) or len(data) != count):
        data = _flatten(data)
    if len(data) != count:
        raise InvalidArgument(
            "Unable to parse 'data': Shape does not match true shape of 'data' field "
            f"(input '{name}' has {len(data)} elements in 'data' and {count} in 'shape')"
        )
    code = _CODES.get(number)
    if code is None:
        return _other_bytes(name, datatype, data)
    try:
        if len(data) <= STEP:
            return array(code, data).tobytes()
        steps = range(0, len(data), STEP)  # other threads run between them
        return b"".join([array(code, data[at : at + STEP]).tobytes() for at in steps])
    except TypeError:
        raise _other_kind(name, datatype) from None
    except OverflowError:
        is_unsigned = datatype.json_kind == "unsigned-integer"
        # the element that is out of range is not the only one
        if not types_of(data) <= _NUMBERS or (is_unsigned and any(each < 0 for each in data)):
            raise _other_kind(name, datatype) from None
        raise InvalidArgument(
            f"Unable to parse 'data': a number is out of range for {datatype.name} (input '{name}')"
        ) from None


def _other_bytes(name: str, datatype: Datatype, data: list[Any]) -> bytes:
    """Return the bytes of an input of booleans or strings."""
    is_bool, types = datatype.number == _BOOL, types_of(data)
    if not types <= ({bool} if is_bool else {str, bytes}):  # bytes are generate's
        raise _other_kind(name, datatype, "'data'" if is_bool else "JSON bytes array")
    return bytes(data) if is_bool else encode_elements(data)


def types_of(data: list[Any]) -> set[type]:
    """Return the types of elements, in steps: other threads run between two steps."""
    if len(data) <= STEP:
        return set(map(type, data))
    return {kind for at in range(0, len(data), STEP) for kind in {*map(type, data[at : at + STEP])}}


def _other_kind(name: str, datatype: Datatype, where: str = "'data'") -> InvalidArgument:
    kind = datatype.json_kind
    actual = "double" if kind == "number" else kind
    return InvalidArgument(
        f"Unable to parse {where}: attempt to access JSON non-{kind} as {actual} "
        f"(input '{name}' is {datatype.name})"
    )


def _flatten(data: list[Any]) -> list[Any]:
    """Return the elements in row-major order.

    Rows may be ragged: only the number of elements matters.
    """
    while data:
        kinds = types_of(data)
        if list not in kinds:
            return data
        if len(kinds) > 1:
            return list(_walk(data))
        flat: list[Any] = []
        for row in data:
            flat += row
        data = flat
    return data


def _walk(data: list[Any]) -> Iterator[Any]:
    stack = [iter(data)]
    while stack:
        for element in stack[-1]:
            if type(element) is list:
                stack.append(iter(element))
                break
            yield element
        else:
            stack.pop()


def json_from_bytes(name: str, number: int, data: bytes) -> Any:
    """Return the flat `data` of an output: a list, or a numpy array if it is long.

    Raises InvalidArgument for values that JSON cannot carry, InternalError for malformed BYTES.
    """
    kind = _NUMPY.get(number)
    if kind is None:
        return _other_list(name, number, data)
    elements = np.frombuffer(data, kind)
    if len(elements) <= _LIST_UP_TO:
        return elements.tolist()
    # as 64-bit, so that a long tensor is written with the same digits as a short one
    return elements.astype(np.float64) if number == _FP32 else elements


def _other_list(name: str, number: int, data: bytes) -> list[Any]:
    if number == _BOOL:
        return [byte != 0 for byte in data]
    if number != BYTES:
        raise InvalidArgument(
            f"sending {BY_NUMBER[number].name} data via JSON is not supported. "
            "Please use the binary data format for output"
        )
    try:
        return [element.decode() for element in decode_bytes(data)]
    except UnicodeDecodeError:
        raise InvalidArgument(
            "sending BYTES data that is not UTF-8 via JSON is not supported. "
            "Please use the binary data format for output"
        ) from None
    except ValueError:
        raise InternalError(f"output '{name}' holds malformed BYTES") from None


def json_length(text: str, body_length: int) -> int:
    """Return the length in the header; 0: a raw request.

    Raises InvalidArgument if the body is shorter.
    """
    if not _INTEGER.fullmatch(text):
        raise InvalidArgument(f"Unable to parse {JSON_LENGTH_HEADER}, got: {text[:64]}")
    length = int(text)
    if not 0 <= length <= body_length:
        raise InvalidArgument(
            f"inference header size should be in range (0, {body_length}), got: {length}"
        )
    return length


def tensors_at(text: str, body_length: int) -> int:
    """Return the tensors' position; the end for a wrong header, whose error is raised later."""
    try:
        return json_length(text, body_length)
    except InvalidArgument:
        return body_length


class Tail:
    """The bytes after the JSON, returned in the order of the inputs."""

    def __init__(self, data: memoryview, model: str) -> None:
        #: Bytes that no input has taken.
        self.rest = data
        self.model = model

    def take(self, name: str, size: int) -> memoryview:
        """Return the next bytes. Raises InvalidArgument if fewer are left."""
        rest = self.rest
        missing = size - len(rest)
        if missing > 0:
            raise InvalidArgument(
                f"unexpected size for input '{name}', expecting {missing} additional bytes "
                f"for model '{self.model}'"
            )
        self.rest = rest[size:]
        return rest[:size]


def raw_request(model: ModelVersion, data: bytes | bytearray | memoryview) -> RequestBody:
    """Read a body that is the data of the one input of its model.

    Raises InvalidArgument if the model does not determine the input, or the bytes do not fill its
    shape.
    """
    inputs = model.config.get("input", [])
    if len(inputs) != 1:
        raise _refused(
            "Raw request must only have 1 input (found 1) to be deduced but got "
            f"{len(inputs)} inputs in '{model.name}' model configuration"
        )
    datatype = BY_CONFIG_NAME[inputs[0]["data_type"]]
    shape = _deduced_shape(inputs[0], datatype.size, len(data))
    if datatype.number == BYTES:
        data = len(data).to_bytes(4, "little") + data
    else:
        expected = count_elements(shape) * datatype.size
        if len(data) != expected:
            raise _refused(
                f"input byte size mismatch for input 'raw_input' for model '{model.name}'. "
                f"Expected {expected}, got {len(data)}"
            )
    if model.config.get("max_batch_size", 0):
        shape = [1, *shape]
    return RequestBody("", {}, [], [Tensor(inputs[0]["name"], datatype.number, shape, data)])


def _deduced_shape(entry: dict[str, Any], element_size: int, size: int) -> list[int]:
    name, dims = entry["name"], list(entry["dims"])
    if element_size == 0:
        if count_elements(dims) != 1:
            raise _refused(
                f"For BYTE datatype raw input '{name}', the model must have input shape [1]"
            )
        return dims
    if dims.count(-1) > 1:
        raise _refused(
            f"The shape of the raw input '{name}' can not be deduced because there are more than "
            "one variable-sized dimension"
        )
    if -1 in dims:
        row = -count_elements(dims) * element_size
        dims[dims.index(-1)] = size // row if row else 0
    return dims


def _refused(text: str) -> InvalidArgument:
    return InvalidArgument(f"[request id: <id_unknown>] {text}")
