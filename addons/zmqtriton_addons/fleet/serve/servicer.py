"""The methods of GRPCInferenceService, as Serve's proxies take them.

Requests and responses stay bytes from end to end: neither proxies nor replicas decode tensors.
"""

from __future__ import annotations

from typing import Any

import grpc

SERVICE = "inference.GRPCInferenceService"
UNARY = (
    "ServerLive",
    "ServerReady",
    "ServerMetadata",
    "ModelReady",
    "ModelMetadata",
    "ModelInfer",
    "ModelConfig",
    "ModelStatistics",
    "RepositoryIndex",
)
#: Serve passes on streams of requests from Ray 2.55 on.
STREAM = "ModelStreamInfer"
_FIRST_FIELD = 0x0A


class Message(bytes):
    """Bytes of a message, with the one method of messages that Serve calls."""

    def SerializeToString(self) -> bytes:
        return bytes(self)


def add_servicer(servicer: Any, server: Any) -> None:
    """Add the service to a server: one of the functions in Serve's `grpc_servicer_functions`."""
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(getattr(servicer, name)) for name in UNARY
    }
    handlers[STREAM] = grpc.stream_stream_rpc_method_handler(getattr(servicer, STREAM))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))


def model_of(request: bytes) -> str:
    """Return the name of the model, the first field of the messages that have one; "" without."""
    if not request or request[0] != _FIRST_FIELD:
        return ""
    size = shift = 0
    for position, byte in enumerate(request[1:6], 2):
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return request[position : position + size].decode("utf-8", "replace")
    return ""
