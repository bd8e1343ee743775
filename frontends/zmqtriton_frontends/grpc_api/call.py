"""What a handler is told of the RPC that it answers, whichever transport it came over.

That a client has gone or its deadline has passed is no flag here: the handler's task is cancelled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

#: Why an RPC is refused, or a stream of requests ends, while the server stops.
STOPPING = "GRPC server is shutting down and has stopped accepting new requests."


class Call(Protocol):
    """Made anew for each RPC by the transport; nothing is read before a handler asks."""

    @property
    def deadline_ns(self) -> int:
        """When the client stops waiting, on CLOCK_MONOTONIC; 0: never."""

    @property
    def metadata(self) -> Sequence[tuple[str, str | bytes]]:
        """The client's, keys in lower case; values of keys that end in -bin are bytes."""

    @property
    def is_cancelled(self) -> bool:
        """Whether the client no longer waits."""
