"""The number of nodes that a model should have, by the requests that wait for it. Pure.

One more when more requests wait for each ready instance than may, for longer than a start takes.
One fewer when all are idle for most of the time, and have been for much longer. Between the two
lies room in which nothing changes, so that a steady load has a steady number.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from zmqtriton_floor.errors import InvalidArgument

_FORM = re.compile(r"(?P<model>[^=]+)=(?P<least>\d+)(?:-(?P<most>\d+))?")
#: Below this share of use on all nodes, one fewer would still be used by half.
_IDLE_SHARE = 1 / 3


class ReplicaLimits(NamedTuple):
    minimum: int
    maximum: int
    #: Requests that may wait for each ready instance.
    waiting: float = 4.0
    up_after_s: float = 5.0
    down_after_s: float = 60.0


def parse_replicas(text: str) -> tuple[str, ReplicaLimits]:
    """Parse MODEL=N or MODEL=LEAST-MOST. Raises InvalidArgument."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise InvalidArgument(f"'{text}' is neither MODEL=N nor MODEL=LEAST-MOST")
    minimum = int(match["least"])
    maximum = int(match["most"] or minimum)
    if not 1 <= minimum <= maximum:
        raise InvalidArgument(f"'{text}': the least is 1, and the most is not below it")
    return match["model"], ReplicaLimits(minimum, maximum)


class ModelLoad(NamedTuple):
    """The load of a model on one node, or on all of them."""

    queued: int = 0
    instances: int = 0
    utilization: float = 0.0

    def __add__(self, other: ModelLoad) -> ModelLoad:  # type: ignore[override]
        return ModelLoad(
            self.queued + other.queued,
            self.instances + other.instances,
            max(self.utilization, other.utilization),
        )


class ReplicaTarget:
    def __init__(self, limits: ReplicaLimits) -> None:
        self.limits = limits
        self.count = limits.minimum
        #: Since when the load is too much, or too little; None while it is not.
        self._crowded_since_s: float | None = None
        self._idle_since_s: float | None = None

    def decide(self, load: ModelLoad, ready: int, nodes: int, now_s: float) -> int:
        """Return on how many of the nodes it should be, when it is ready on so many."""
        if ready < min(self.count, nodes):
            # what was decided has not taken effect yet: the load says nothing about it
            self._crowded_since_s = self._idle_since_s = None
            return self.count
        is_crowded = load.queued > self.limits.waiting * max(1, load.instances)
        is_idle = not load.queued and load.utilization < _IDLE_SHARE
        self._crowded_since_s = _since(self._crowded_since_s, is_crowded, now_s)
        self._idle_since_s = _since(self._idle_since_s, is_idle, now_s)
        if _has_lasted(self._crowded_since_s, self.limits.up_after_s, now_s):
            self._change(1 if ready < nodes else 0)
        elif _has_lasted(self._idle_since_s, self.limits.down_after_s, now_s):
            self._change(-1)
        return self.count

    def _change(self, by: int) -> None:
        self.count = min(max(self.count + by, self.limits.minimum), self.limits.maximum)
        self._crowded_since_s = self._idle_since_s = None


def _since(known_s: float | None, is_so: bool, now_s: float) -> float | None:
    if not is_so:
        return None
    return now_s if known_s is None else known_s


def _has_lasted(since_s: float | None, for_s: float, now_s: float) -> bool:
    return since_s is not None and now_s - since_s >= for_s
