"""The common part of every gRPC transport: the table of RPCs, memory, and errors.

Knows no transport.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from zmqtriton_floor.errors import (
    OVERLOADED,
    Unavailable,
)
from zmqtriton_floor.settings.frontends import Grpc
from zmqtriton_frontends.access.bearer_tokens import bearer_tokens_of
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.grpc_api.handlers import table
from zmqtriton_frontends.grpc_api.inference.gradual_parsing import tensors_at
from zmqtriton_frontends.process.ledger import Ledger
from zmqtriton_frontends.tensors.arena_body import ArenaBody, ArenaBuffer, ByteBudget

#: Largest text of a status, in bytes: it travels in the trailers, and clients drop trailers of
#: more than 8 KiB with an error of their own; a traceback must not become that.
_MAX_DETAILS_BYTES = 6000
#: Shortest and longest pause, in milliseconds, that clients with a retry policy are asked for;
#: others ignore it.
_PUSHBACK_MS, _MAX_PUSHBACK_MS = 1000, 300_000
#: Seconds to the farthest deadline that counts; a later one is none, and might not fit into 63
#: bits of nanoseconds.
FAR_S = 1e9
#: Open calls of one connection; its client keeps back what is more. Without a limit the server
#: would also keep whatever one connection begins and resets, which costs memory and other clients'
#: time.
MAX_STREAMS = 10_000
#: Bytes at the beginning of a request that show where its tensors begin, if any do.
_HEAD_BYTES = 4096
#: Name of the service, for the supervisor and users.
SERVICE = "GRPCInferenceService"
#: The category of the RPCs that infer.
INFERENCE = "inference"


class RpcLifecycle:
    """The RPCs of one server, and the memory for their requests."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        #: Bearer tokens of the clients; None if no call needs one.
        self.tokens = bearer_tokens_of(gateway.settings)
        self.table = table(gateway, self.tokens)
        self._announced = ByteBudget()
        settings = gateway.settings
        self.max_message: int = settings.grpc.max_input_size
        processes = settings.grpc.processes or max(1, len(os.sched_getaffinity(0)) // 2)
        self.ledger = Ledger(settings.memory.client_bytes // processes)

    def large_body(self, size: int) -> ArenaBody:
        """Make the body that receives a large inference request."""
        return ArenaBody(self.gateway.payload, size, self._announced, tensors_at)

    async def gather(self, message: bytes | bytearray, hold: Callable[[int], None]) -> ArenaBuffer:
        """Move an inference request to the arena; see Payload.gather()."""
        at, size = tensors_at(memoryview(message)[:_HEAD_BYTES]), len(message)
        return await self.gateway.payload.gather([message], size, at, hold)

    def drain(self) -> None:
        """End streams without unanswered requests; call this when the server ends."""
        for rpc in self.table:
            rpc.drain()


def compression_of(settings: Grpc) -> str:
    """Return the algorithm that compresses inference responses, or "".

    Triton's levels are mapped to algorithms that every gRPC client knows.
    """
    level = settings.infer_response_compression_level
    return {"low": "gzip", "medium": "deflate", "high": "deflate"}.get(level, "")


def pushback(code: int, text: str, retry_after_ms: int = 0) -> tuple[tuple[str, str], ...]:
    """Return trailers that keep a client with a retry policy from retrying at once."""
    if code != Unavailable.grpc_status or not text.endswith(OVERLOADED):
        return ()
    pause_ms = min(_MAX_PUSHBACK_MS, max(_PUSHBACK_MS, retry_after_ms))
    return (("grpc-retry-pushback-ms", str(pause_ms)),)


def details_of(text: str) -> str:
    """Return the text, cut if it would not fit into the trailers in gRPC's percent-encoding."""
    if len(text) * 3 <= _MAX_DETAILS_BYTES and text.isascii():
        return text
    size = 0
    for position, character in enumerate(text):
        is_plain = " " <= character <= "~" and character != "%"
        size += 1 if is_plain else 3 * len(character.encode("utf-8", "replace"))
        if size > _MAX_DETAILS_BYTES:
            return text[:position] + " [...]"
    return text
