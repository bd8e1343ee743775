"""The public gRPC interface as message classes: `inference` (KServe v2, Triton) and gRPC health.

The descriptors are in a private pool, so that a process may import tritonclient, whose generated
modules register the same names in the default pool, before or after this package. Sources are the
.proto files next to this file; `tools/build_protos.py` makes descriptors.pb. The `inference`
definitions are those of Triton's public protocol: BSD-3-Clause, Copyright (c) NVIDIA CORPORATION.
This package imports protobuf and the standard library only.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

__all__ = ["POOL", "SERVICES", "Method", "ModelConfig", "enum", "message"]


class Method(NamedTuple):
    """One RPC of a service."""

    name: str
    request: type[Any]
    response: type[Any]
    client_streaming: bool
    server_streaming: bool


_FILES = descriptor_pb2.FileDescriptorSet.FromString(
    Path(__file__).with_name("descriptors.pb").read_bytes()
)
#: Holds our descriptors only; needed wherever protobuf asks for a pool, as in json_format.
POOL: Any = descriptor_pool.DescriptorPool()
for _file in _FILES.file:
    POOL.AddSerializedFile(_file.SerializeToString())


@cache
def message(name: str) -> type[Any]:
    """Return the message class of a full name, as "inference.ModelInferRequest".

    Raises KeyError.
    """
    cls: type[Any] = message_factory.GetMessageClass(POOL.FindMessageTypeByName(name))
    return cls


def enum(name: str) -> Any:
    """Return the EnumDescriptor of a full name, as "inference.DataType". Raises KeyError."""
    return POOL.FindEnumTypeByName(name)


#: Full service name -> its methods, in the order of the .proto file.
SERVICES: dict[str, list[Method]] = {
    name: [
        Method(
            method.name,
            message(method.input_type.full_name),
            message(method.output_type.full_name),
            method.client_streaming,
            method.server_streaming,
        )
        for method in POOL.FindServiceByName(name).methods
    ]
    for name in (f"{f.package}.{s.name}" for f in _FILES.file for s in f.service)
}

ModelConfig = message("inference.ModelConfig")
