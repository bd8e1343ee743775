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
#: A client that reads what is made bit by bit may pause so long while no more than this waits for
#: it: a person at a debugger, a consumer that is slower than its stream. Where others lack the
#: room, the ledger ends it earlier.
PAUSE_S = 600.0
PAUSE_BYTES = 1 << 20


class Progress:
    def __init__(self) -> None:
        self._doing = ""
        #: How many bytes had gone or come when it moved last.
        self._done = 0
        self._moved_at = 0.0

    def is_stalled(self, now: float, doing: str, done: int, held: int) -> bool:
        """Return whether too little has moved for too long; "" is nothing that could."""
        return self._is_still(now, doing, done, max(MIN_BYTES, held // PART), STALL_S)

    def is_paused_too_long(self, now: float, done: int, held: int) -> bool:
        """Return whether a reader of messages that may be small, and seldom, has stopped."""
        max_s = STALL_S if held > PAUSE_BYTES else PAUSE_S
        return self._is_still(now, "reading" if held else "", done, max(1, held // PART), max_s)

    def _is_still(self, now: float, doing: str, done: int, enough: int, max_s: float) -> bool:
        if doing != self._doing or done - self._done >= enough:
            self._doing, self._done, self._moved_at = doing, done, now
        return bool(doing) and now - self._moved_at > max_s
