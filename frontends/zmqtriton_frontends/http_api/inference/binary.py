"""The binary tensor extension: where the JSON of a body ends, and what the bytes after it are.

A size that a client names is only ever compared with what has arrived.
"""

from __future__ import annotations

import re
from typing import Any

from zmqtriton_floor.datatypes import BY_CONFIG_NAME, BYTES, count_elements
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.wire import RequestBody, Tensor
from zmqtriton_frontends.inference.catalogue import ModelVersion

JSON_LENGTH_HEADER = "Inference-Header-Content-Length"

# int() would also accept '+5', '1_0' and digits of other scripts.
_INTEGER = re.compile(r"-?[0-9]{1,19}")


def json_length(text: str, body_length: int) -> int:
    """Return the length in the header, 0 for a raw request.

    Raises InvalidArgument unless the body has it.
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
    """Return where the tensors begin; the end if the header is wrong, which is reported later."""
    try:
        return json_length(text, body_length)
    except InvalidArgument:
        return body_length


class Tail:
    """The bytes after the JSON, given out in the order of the inputs."""

    def __init__(self, data: memoryview, model: str) -> None:
        #: What no input has taken.
        self.rest = data
        self.model = model

    def take(self, name: str, size: int) -> memoryview:
        """Take the next bytes. Raises InvalidArgument if fewer are left."""
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
    """Read a body that is nothing but the one input of its model.

    Raises InvalidArgument if the model leaves room for guesses, or the bytes don't fill its shape.
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
