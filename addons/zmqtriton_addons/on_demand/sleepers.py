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
        self._asked_s: dict[str, float] = {}
        self._asleep_s: dict[str, float] = {}
        #: When one that did not sleep may be asked again.
        self._not_before_s: dict[str, float] = {}

    def is_asleep(self, name: str) -> bool:
        """True until it has a request, which wakes it up."""
        return self._last_used_s(name) <= self._asleep_s.get(name, -math.inf)

    def can_sleep(self, name: str) -> bool:
        """True if it is worth asking."""
        is_early = self._plan.now_s < self._not_before_s.get(name, -math.inf)
        return not (is_early or self.is_asleep(name))

    def sleep_asked(self, name: str) -> None:
        """Note that it is asked to sleep."""
        self._asked_s[name] = self._plan.now_s

    def sleep_ended(self, name: str, error: ZmqTritonError | None) -> None:
        """Note that it sleeps since it was asked, or why it does not."""
        asked_s = self._asked_s.pop(name)
        if error is None:
            self._asleep_s[name] = asked_s
        else:
            is_busy = error.number == Unavailable.number
            self._not_before_s[name] = self._plan.now_s + (_PAUSE_S if is_busy else math.inf)

    def forget(self, name: str) -> None:
        """Forget a model whose instances are new ones."""
        self._asleep_s.pop(name, None)
        self._not_before_s.pop(name, None)
