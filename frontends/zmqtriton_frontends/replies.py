"""What the gateway gives a response to: a future, or whatever else has these methods.

An object of one's own saves a task and a turn of the loop for each request.
"""

from __future__ import annotations

from typing import Protocol


class Reply(Protocol):
    def done(self) -> bool:
        """Nobody wants it any more."""

    def set_result(self, body: bytes, /) -> None:
        """Of the final response; called amid reading from the broker, so it must not raise."""

    def set_exception(self, error: Exception, /) -> None:
        """The ZmqTritonError that it became instead."""
