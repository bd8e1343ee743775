"""A response's bytes as inference.ModelInferResponse, written without building the message.

Called by infer.py. The parts that repeat (names, versions, shapes) are kept; tensor data are copied
once, where protobuf copies them twice. Field numbers are grpc_service.proto's.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.tensors import BY_NUMBER
from zmqtriton_floor.wire import ResponseBody
from zmqtriton_frontends.grpc_api.convert import serialize
from zmqtriton_protos import message

#: gRPC's own limit of a message; the length travels in 32 bits.
MAX_MESSAGE_BYTES = 2**31 - 1

_RESPONSE = message("inference.ModelInferResponse")
# Tags: field number << 3 | 2, which is "length, then bytes".
_MODEL_NAME, _MODEL_VERSION, _ID, _OUTPUT, _RAW = (bytes([n << 3 | 2]) for n in (1, 2, 3, 5, 6))
_INT64 = range(-(2**63), 2**63)


def encode_response(model: str, version: int, request_id: str, response: ResponseBody) -> bytes:
    """Raises InvalidArgument where the message would be larger than gRPC allows."""
    pieces = [_head(model, version)]
    if request_id:
        pieces.append(field(_ID, request_id.encode()))
    if response.parameters:
        pieces.append(_parameters(response.parameters))
    outputs = response.outputs
    for tensor in outputs:
        pieces.append(_output(tensor.name, tensor.datatype, tuple(tensor.shape)))
    for tensor in outputs:
        pieces.append(_RAW + varint(len(tensor.data)))
        pieces.append(tensor.data)
    size = sum(map(len, pieces))
    if size > MAX_MESSAGE_BYTES:
        raise InvalidArgument(
            f"Response has byte size {size} which exceeds gRPC's byte size limit "
            f"{MAX_MESSAGE_BYTES}."
        )
    return b"".join(pieces)


def varint(value: int) -> bytes:
    """A non-negative integer in protobuf's form."""
    if value < 128:
        return bytes((value,))
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(tag: bytes, data: bytes) -> bytes:
    """A field of bytes, a string or a message."""
    return tag + varint(len(data)) + data


@lru_cache(maxsize=1024)
def _head(model: str, version: int) -> bytes:
    return field(_MODEL_NAME, model.encode()) + field(_MODEL_VERSION, str(version).encode())


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
