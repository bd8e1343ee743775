"""One drain as a state machine: its waits, and the step after it.

    event       DRAINING  DRAINED   ENDING
    held        DRAINED
    followed    ENDING
    again       DRAINING  DRAINING
    undrained   OVER      OVER
    ended       OVER      OVER      OVER

While it drains, clients are told to go elsewhere, and those that come all the same are answered.
Knows no clock and none of the processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from zmqtriton_floor.errors import InvalidArgument

#: Nobody may have come for so long.
QUIET_S = 1.0
_MAX_S = 86_400.0


class Follow(str, Enum):
    """The deed that follows a drain."""

    NOTHING = "nothing"  # it stays drained until it is undrained
    UNLOAD = "unload"
    RESTART = "restart"
    STOP = "stop"


class DrainPhase(str, Enum):
    DRAINING = "draining"  # what is under way ends
    DRAINED = "drained"  # nothing is under way, or the time is over; it stays so
    ENDING = "ending"  # what follows is being done
    OVER = "over"


class DrainEvent(Enum):
    HELD = "held"  # it has drained, and nothing follows
    FOLLOWED = "followed"  # it has drained, or the time is over, and something follows
    AGAIN = "again"  # it is asked for again, perhaps with another wish
    UNDRAINED = "undrained"
    ENDED = "ended"  # what follows is done, or somebody else has ended what it is of


_P, _E = DrainPhase, DrainEvent
DRAIN_TRANSITIONS: Mapping[tuple[DrainPhase, DrainEvent], DrainPhase] = {
    (_P.DRAINING, _E.HELD): _P.DRAINED,
    (_P.DRAINING, _E.FOLLOWED): _P.ENDING,
    (_P.DRAINING, _E.AGAIN): _P.DRAINING,
    (_P.DRAINING, _E.UNDRAINED): _P.OVER,
    (_P.DRAINING, _E.ENDED): _P.OVER,
    (_P.DRAINED, _E.AGAIN): _P.DRAINING,
    (_P.DRAINED, _E.UNDRAINED): _P.OVER,
    (_P.DRAINED, _E.ENDED): _P.OVER,
    (_P.ENDING, _E.ENDED): _P.OVER,
}


class DrainWish(NamedTuple):
    follow: Follow = Follow.NOTHING
    #: None: however long it takes.
    within_s: float | None = None
    quiet_s: float = QUIET_S

    @classmethod
    def parse(cls, arguments: Mapping[str, Any], allowed: tuple[Follow, ...]) -> DrainWish:
        """Read the arguments of a call. Raises InvalidArgument."""
        names = [follow.value for follow in allowed]
        follow = arguments.get("then", Follow.NOTHING.value)
        if follow not in names:
            raise InvalidArgument(f"'then' must be one of {', '.join(names)}")
        within_s = arguments.get("within_s")
        return cls(
            Follow(follow),
            None if within_s is None else _seconds("within_s", within_s),
            _seconds("quiet_s", arguments.get("quiet_s", QUIET_S)),
        )


def _seconds(name: str, value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value <= _MAX_S:
        raise InvalidArgument(f"'{name}' must be a number of seconds, at most {_MAX_S:.0f}")
    return float(value)


class Drain:
    def __init__(self, wish: DrainWish, now_s: float) -> None:
        self.wish = wish
        self.phase = DrainPhase.DRAINING
        self.began_s = now_s
        #: Requests and open sequences; None until they were counted, and while nobody can.
        self.under_way: int | None = None
        #: The time was over before everything had ended.
        self.is_late = False
        self._last_busy_s = now_s

    def handle(self, event: DrainEvent) -> None:
        self.phase = DRAIN_TRANSITIONS[self.phase, event]

    def begin_again(self, wish: DrainWish, now_s: float) -> None:
        """Take another wish; its time begins now."""
        self.handle(DrainEvent.AGAIN)
        self.wish, self.began_s, self.is_late = wish, now_s, False

    def observe(self, under_way: int | None, last_arrival_s: float, now_s: float) -> None:
        """Take the count of open requests, and the time of the last one."""
        self.under_way = under_way
        if under_way != 0:
            self._last_busy_s = now_s
        self._last_busy_s = max(self._last_busy_s, min(last_arrival_s, now_s))

    def has_drained(self, now_s: float) -> bool:
        """True if no request is in flight and none arrived recently, or the time is over."""
        within_s = self.wish.within_s
        if self.under_way == 0 and now_s - self._last_busy_s >= self.wish.quiet_s:
            return True
        self.is_late = within_s is not None and now_s - self.began_s >= within_s
        return self.is_late
