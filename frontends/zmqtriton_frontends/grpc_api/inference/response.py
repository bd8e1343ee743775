"""Writes responses as inference.ModelInferResponse, without building the message.

Also within a ModelStreamInferResponse. Parts that repeat (names, shapes, sizes) are kept; tensor
data are copied once, where protobuf copies them twice. Field numbers are grpc_service.proto's.

For a client that does not read, parts in other processes' memory are copied in steps, to free a
model's memory. In steps, because one copy of a large message would hold the loop for as long as a
hundred small requests take.
"""

from __future__ import annotations

from collections.abc import Callable, MutableSequence
from functools import lru_cache
from typing import Any, NamedTuple
from weakref import ref

from zmqtriton_floor.datatypes import BY_NUMBER
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.wire import ResponseBody
from zmqtriton_frontends.grpc_api.call import FREE_BYTES, NoRoomError
from zmqtriton_frontends.grpc_api.inference.convert import serialize
from zmqtriton_protos import message

#: gRPC's own limit of a message; the length travels in 32 bits.
MAX_MESSAGE_BYTES = 2**31 - 1

_RESPONSE = message("inference.ModelInferResponse")
# Tags: field number << 3 | 2, which is "length, then bytes".
_MODEL_NAME, _MODEL_VERSION, _ID, _OUTPUT, _RAW = (bytes([n << 3 | 2]) for n in (1, 2, 3, 5, 6))
#: Tags of the fields of ModelStreamInferResponse: its error, and its response.
_ERROR_MESSAGE, _INFER_RESPONSE = (bytes([n << 3 | 2]) for n in (1, 2))
_INT64 = range(-(2**63), 2**63)
#: Largest size of a response in bytes; the rest is for what may stand around it.
_MAX_BYTES = MAX_MESSAGE_BYTES - 16
_STEP_BYTES = 1 << 20


def encode_in_pieces(
    model: str, version: int, request_id: str, response: ResponseBody, end: bytes = b""
) -> tuple[list[bytes | memoryview], int]:
    """Return the message, cut where tensors' data begin and end, which are not copied; its size.

    Raises InvalidArgument if the message would be larger than gRPC allows.
    """
    pieces: list[bytes | memoryview] = [_head(model, version)]
    if request_id:
        pieces.append(field(_ID, request_id.encode()))
    if response.parameters:
        pieces.append(_parameters(response.parameters))
    raw: list[bytes | memoryview] = []
    for name, datatype, shape, data in response.outputs:
        pieces.append(_output(name, datatype, tuple(shape)))
        raw += (_RAW + varint(len(data)), data)
    pieces += raw
    if end:
        pieces.append(end)
    size = sum(map(len, pieces))
    if size > _MAX_BYTES:
        raise InvalidArgument(
            f"Response has byte size {size} which exceeds gRPC's byte size limit "
            f"{MAX_MESSAGE_BYTES}."
        )
    return pieces, size


class Pieces:
    """A large message in parts, which are in others' memory and must not be kept for long."""

    __slots__ = ("__weakref__", "_size", "parts")

    def __init__(self, parts: list[bytes | memoryview], size: int) -> None:
        self.parts = parts
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        return b"".join(self.parts)

    def steps_of_copy(self) -> Callable[[], bool]:
        """Return a function that copies a step of the message, unless the message is gone."""
        weak = ref(self)

        def step() -> bool:
            message = weak()
            return message is not None and copy_some(message.parts)

        return step


#: Largest response that is copied into one piece, in bytes: more would hold the loop for some
#: milliseconds.
_COPIED_BYTES = 1 << 20


class StreamEncoder(NamedTuple):
    """Writes the responses to one request of a stream."""

    request_id: str
    #: The name of the model; "" if the request did not get that far.
    model: str = ""
    version: int = 0
    #: The version in the request; "" if it named none.
    asked_version: str = ""

    def response(
        self,
        response: ResponseBody,
        *,
        is_final: bool,
        admits: Callable[[int], bool] | None = None,
        in_pieces: bool = False,
    ) -> bytes | Pieces:
        """Encode a response, if there is room for its bytes.

        `in_pieces` leaves a large response in pieces; a very large one always is.

        Raises InvalidArgument if the message would be larger than gRPC allows, and NoRoomError.
        """
        end = _IS_FINAL[is_final]
        pieces, size = encode_in_pieces(self.model, self.version, self.request_id, response, end)
        if admits is not None and size > FREE_BYTES and not admits(size):
            raise NoRoomError
        start = _INFER_RESPONSE + varint(size)
        if size > (FREE_BYTES if in_pieces else _COPIED_BYTES):
            return Pieces([start, *pieces], len(start) + size)
        return b"".join((start, *pieces))

    @property
    def _head_as_asked(self) -> bytes:
        """The head of an answer without a response.

        Triton then returns what the request said, so a client that named no version gets none.
        """
        id = field(_ID, self.request_id.encode()) if self.request_id else b""
        return _head(self.model, self.asked_version) + id if self.model else id

    def error(self, text: str, *, is_final: bool) -> bytes:
        error = field(_ERROR_MESSAGE, text.encode("utf-8", "replace"))
        return error + field(_INFER_RESPONSE, self._head_as_asked + _IS_FINAL[is_final])

    def empty_final(self) -> bytes:
        return field(_INFER_RESPONSE, self._head_as_asked + _IS_FINAL[True])


@lru_cache(maxsize=4096)
def varint(value: int) -> bytes:
    """Encode a non-negative integer in protobuf's form."""
    if value < 128:
        return bytes((value,))
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(tag: bytes, data: bytes) -> bytes:
    """Encode a field of bytes, a string or a message."""
    return tag + varint(len(data)) + data


@lru_cache(maxsize=1024)
def _head(model: str, version: int | str) -> bytes:
    text = str(version)
    return field(_MODEL_NAME, model.encode()) + (
        field(_MODEL_VERSION, text.encode()) if text else b""
    )


@lru_cache(maxsize=4096)
def _output(name: str, datatype: int, shape: tuple[int, ...]) -> bytes:
    tensor = _RESPONSE.InferOutputTensor(name=name, datatype=BY_NUMBER[datatype].name, shape=shape)
    return field(_OUTPUT, serialize(tensor))


def _parameters(parameters: dict[str, Any]) -> bytes:
    built = _RESPONSE()
    for key, value in parameters.items():
        parameter = built.parameters[key]
        if isinstance(value, bool):
            parameter.bool_param = value
        elif isinstance(value, int):
            setattr(parameter, "int64_param" if value in _INT64 else "uint64_param", value)
        elif isinstance(value, float):
            parameter.double_param = value
        else:
            parameter.string_param = value
    return serialize(built)


def _final_parameter(is_final: bool) -> bytes:
    built = _RESPONSE()
    built.parameters["triton_final_response"].bool_param = is_final
    return serialize(built)


#: The entry of the map `parameters` that every response of a stream has.
_IS_FINAL = (_final_parameter(False), _final_parameter(True))


def copy_some(parts: MutableSequence[Any]) -> bool:
    """Copy at most one step of the first part that is in the memory of others.

    Returns False if all parts are this process's own. Parts that are sent between two calls may be
    removed at the front.
    """
    for index, part in enumerate(parts):
        if type(part) is bytes or type(part.obj) is bytes:
            continue
        parts[index] = memoryview(bytes(part[:_STEP_BYTES]))
        if len(part) > _STEP_BYTES:
            parts.insert(index + 1, part[_STEP_BYTES:])
        return True
    return False
