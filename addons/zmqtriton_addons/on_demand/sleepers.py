"""The models that sleep or could, so that each is asked once. Does no I/O."""

from __future__ import annotations

import math
from collections.abc import Callable

from zmqtriton.supervisor import Plan
from zmqtriton_floor.errors import Unavailable, ZmqTritonError

#: One that had requests is not asked again for this time.
_PAUSE_S = 5.0


class Sleepers:
    """Which models sleep, by the requests since, and which cannot.

    That a model has no `sleep`, or fails in it, is known when it was asked, and holds until it is
    loaded again.
    """

    def __init__(self, plan: Plan, last_used_s: Callable[[str], float]) -> None:
        """Set up; `last_used_s` returns when a model had its last request or was loaded."""
        self._plan = plan
        self._last_used_s = last_used_s
        self._asleep_s: dict[str, float] = {}
        #: Models of which instances may sleep.
        self._names: set[str] = set()
        #: When one that did not sleep may be asked again.
        self._not_before_s: dict[str, float] = {}

    def is_asleep(self, name: str) -> bool:
        """True until it has a request, which wakes it up."""
        return self._last_used_s(name) <= self._asleep_s.get(name, -math.inf)

    def can_sleep(self, name: str) -> bool:
        """True if it is worth asking."""
        is_early = self._plan.now_s < self._not_before_s.get(name, -math.inf)
        return not (is_early or self.is_asleep(name))

    def has_slept(self, name: str) -> bool:
        """True if some of its instances may sleep."""
        return name in self._names

    def slept(self, name: str, since_s: float) -> None:
        """Note that all of its instances sleep."""
        self._asleep_s[name] = since_s
        self._names.add(name)

    def woke_up(self, name: str) -> None:
        """Note that one of its instances no longer sleeps."""
        self._asleep_s.pop(name, None)

    def refused(self, name: str, error: ZmqTritonError) -> None:
        """Note that it does not sleep."""
        is_busy = error.number == Unavailable.number
        self._not_before_s[name] = self._plan.now_s + (_PAUSE_S if is_busy else math.inf)

    def forget(self, name: str) -> None:
        """Forget a model whose instances are new ones."""
        self._asleep_s.pop(name, None)
        self._names.discard(name)
        self._not_before_s.pop(name, None)
