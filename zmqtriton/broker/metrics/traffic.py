"""Counters of the broker's sockets."""

from __future__ import annotations


class Traffic:
    def __init__(self) -> None:
        self.received_bytes = 0
        self.sent_bytes = 0
        #: Messages that were dropped: malformed, or not allowed from where they came.
        self.malformed = 0
