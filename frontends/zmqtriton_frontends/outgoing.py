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
        requests, bodies = self.requests, self.bodies
        rarer: tuple[tuple[Any, list[Any]], ...] = (
            (wire.Cancel, self.cancels),
            (wire.Consumed, self.grants),
        )
        self.__init__()  # type: ignore[misc]
        for i in range(0, len(requests), wire.MAX_ROWS):
            end = i + wire.MAX_ROWS
            yield [wire.encode(wire.Infer(requests[i:end])), *bodies[i:end]]
        for kind, rows in rarer:
            for i in range(0, len(rows), wire.MAX_ROWS):
                yield [wire.encode(kind(rows[i : i + wire.MAX_ROWS]))]
