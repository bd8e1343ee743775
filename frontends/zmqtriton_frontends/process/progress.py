"""The progress of a client with what the server waits for: sending a request, reading an answer.

The more is held for it, the faster it has to be.
"""

from __future__ import annotations

#: The time in which so much has to move.
STALL_S = 30.0
MIN_BYTES = 30 * 1024
#: Or this part of what is held, if that is more: who makes the server hold 64 MiB has to move
#: 70 KB a second.
PART = 32


class Progress:
    def __init__(self) -> None:
        self._doing = ""
        #: How many bytes had gone or come when it moved last.
        self._done = 0
        self._moved_at = 0.0

    def is_stalled(self, now: float, doing: str, done: int, held: int, *, least: int = 0) -> bool:
        """Return whether too little has moved for too long; "" is nothing that could."""
        enough = max(least or MIN_BYTES, held // PART)
        if doing != self._doing or done - self._done >= enough:
            self._doing, self._done, self._moved_at = doing, done, now
        return bool(doing) and now - self._moved_at > STALL_S
