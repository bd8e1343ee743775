"""gRPC by Google's library, in place of our own HTTP/2."""

from __future__ import annotations

from zmqtriton.sdk import AddOn

ADDON = AddOn(
    "grpcio",
    transport=".server:Server",
)
