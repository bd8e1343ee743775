"""The number of instances that a model should have, by its load. Pure.

More at once, as many as the load needs, when requests would wait for longer than they may. Fewer
when fewer have been enough for a while: as many as were needed at the busiest moment of that time.
Between the two lies room in which nothing changes, so that a steady load has a steady number.
"""

from __future__ import annotations

import math
from collections import deque

from zmqtriton.config.autoscale import AutoscaleLimits
from zmqtriton.supervisor.features.scaling.workload import Reading, Workload

#: The share of their time that instances should be busy: new ones are to leave room for chance,
#: and none goes before the others would still have some.
_BUSY_SHARE = 0.8
_BUSY_SHARE_WITH_FEWER = 0.65
#: Requests that wait already are to be executed within so many times what they may wait.
_CATCH_UP_TIMES = 10


class InstanceTarget:
    def __init__(self, limits: AutoscaleLimits) -> None:
        self.limits = limits
        self.workload = Workload()
        #: Why the last number was chosen.
        self.reason = ""
        #: When how many were needed; the most of the time that counts comes first, and after each
        #: the most of what is later.
        self._needs: deque[tuple[float, int]] = deque()
        self._began_s: float | None = None
        #: Since when requests wait and nothing is known of how long.
        self._stuck_since_s: float | None = None

    def decide(self, reading: Reading, instances: int) -> int:
        """Return how many there should be, when there are so many."""
        self.workload.add(reading)
        now_s = reading.at_s
        self._began_s = now_s if self._began_s is None else self._began_s
        needed = self._needed(now_s, instances)
        self._note_need(now_s, max(needed, self._least_to_keep()))
        target = needed if needed > instances else self._fewer(now_s, instances)
        allowed = min(max(target, self.limits.minimum), self.limits.maximum)
        if allowed > target >= instances or allowed < target <= instances:
            self.reason = f"its limits are {self.limits.minimum} and {self.limits.maximum}"
        return allowed

    def _fewer(self, now_s: float, instances: int) -> int:
        """Return how many are left if some may go."""
        if self._began_s is None or now_s - self._began_s < self.limits.down_after_s:
            return instances
        enough = self._needs[0][1]
        if enough < instances:
            self.reason = f"{enough} were enough for {self.limits.down_after_s:g} s"
        return min(enough, instances)

    def _needed(self, now_s: float, instances: int) -> int:
        """Return how many are needed now; the present number, or less, if there are enough."""
        load, allowed_s = self.workload, self.limits.queue_s
        if not load.waiting:
            self._stuck_since_s = None
            return 0
        if not load.seconds_per_request:
            # nothing was answered yet, so one more is a guess
            self._stuck_since_s = now_s if self._stuck_since_s is None else self._stuck_since_s
            is_stuck = now_s - self._stuck_since_s > allowed_s
            self._stuck_since_s = now_s if is_stuck else self._stuck_since_s
            self.reason = f"{load.waiting} requests wait"
            return instances + is_stuck
        wait_s = load.expected_wait_s(instances)
        if wait_s <= allowed_s:
            return 0
        self.reason = f"requests wait about {1000 * wait_s:.0f} ms"
        backlog = load.waiting * load.seconds_per_request / (_CATCH_UP_TIMES * allowed_s)
        return max(instances + 1, math.ceil(load.offered_instances / _BUSY_SHARE + backlog))

    def _least_to_keep(self) -> int:
        """Return how many would be enough for the arriving requests, with room for chance."""
        busy = max(self.workload.busy_instances, self.workload.offered_instances)
        return max(1, math.ceil(busy / _BUSY_SHARE_WITH_FEWER))

    def _note_need(self, now_s: float, count: int) -> None:
        """Note how many are needed, for the largest number of the time that counts."""
        while self._needs and self._needs[-1][1] <= count:
            self._needs.pop()
        self._needs.append((now_s, count))
        while self._needs[0][0] < now_s - self.limits.down_after_s:
            self._needs.popleft()
