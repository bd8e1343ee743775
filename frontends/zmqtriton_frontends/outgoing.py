"""What a frontend has for the broker in this turn of its loop: few messages of many rows.

The gateway fills it and sends what it makes. Does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zmqtriton_floor import wire


class Outgoing:
    def __init__(self) -> None:
        self.requests: list[wire.Request] = []
        #: Of the requests, one for each.
        self.bodies: list[bytes] = []
        self.cancels: list[int] = []
        self.grants: list[wire.Grant] = []

    def messages(self) -> Iterator[list[bytes]]:
        """The frames of each; empties this."""
        requests, self.requests = self.requests, []
        bodies, self.bodies = self.bodies, []
        cancels, self.cancels = self.cancels, []
        grants, self.grants = self.grants, []
        for i in range(0, len(requests), wire.MAX_ROWS):
            end = i + wire.MAX_ROWS
            yield [wire.encode(wire.Infer(requests[i:end])), *bodies[i:end]]
        rarer: tuple[tuple[Any, list[Any]], ...] = (wire.Cancel, cancels), (wire.Consumed, grants)
        for kind, rows in rarer:
            for i in range(0, len(rows), wire.MAX_ROWS):
                yield [wire.encode(kind(rows[i : i + wire.MAX_ROWS]))]
