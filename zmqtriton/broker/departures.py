"""Deaths that the broker has been told of, held back until all that the dead have sent is here.

The supervisor's word may be faster than libzmq, which reads connections in a thread of its own. The
service asks each turn; knows no sockets.
"""

from __future__ import annotations

from collections.abc import Callable

from zmqtriton_floor.wire import Gone

#: A process that the dead one has forked keeps the connection open: its end is not waited for. Long
#: enough for libzmq's thread to get its turn on a machine that has little time.
WITHIN_NS = 1_000_000_000


class Departures:
    """By serial, in the order in which they were told."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[Gone, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._held)

    def hold(self, message: Gone, now_ns: int) -> None:
        self._held.setdefault(message.serial, (message, now_ns + WITHIN_NS))

    @property
    def next_ns(self) -> int:
        """When one is not to be held any longer; 0: there is none."""
        return min((until_ns for _, until_ns in self._held.values()), default=0)

    def take(self, has_all_of: Callable[[int], bool], now_ns: int) -> list[Gone]:
        """Those that have nothing more to say, or have had their time."""
        taken = [
            message
            for message, until_ns in self._held.values()
            if until_ns <= now_ns or has_all_of(message.serial)
        ]
        for message in taken:
            del self._held[message.serial]
        return taken
