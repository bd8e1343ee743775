"""Counters of the broker's sockets, and of its loop."""

from __future__ import annotations

from typing import Any


class Traffic:
    def __init__(self) -> None:
        self.received_bytes = 0
        self.sent_bytes = 0
        #: Messages that were dropped: malformed, or not allowed from where they came.
        self.malformed = 0
        #: How long the turns of the loop took, when somebody last asked.
        self.turns: dict[str, Any] = {}
