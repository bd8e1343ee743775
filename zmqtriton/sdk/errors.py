"""Errors for clients, each with its status of HTTP and of gRPC."""

from zmqtriton_floor.errors import (
    InternalError,
    InvalidArgument,
    NotFound,
    Unavailable,
    Unsupported,
    ZmqTritonError,
)

__all__ = [
    "InternalError",
    "InvalidArgument",
    "NotFound",
    "Unavailable",
    "Unsupported",
    "ZmqTritonError",
]
