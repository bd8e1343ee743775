"""A model in simulated time: requests arrive by chance, instances execute one each."""

from __future__ import annotations

import heapq
import math
import random
from collections import deque

from zmqtriton_extras.scaling.autoscaler import InstanceTarget, Reading

INTERVAL_S = 0.25


class ServiceStation:
    def __init__(self, target: InstanceTarget, *, seconds_each: float, seed: int = 1) -> None:
        self.target = target
        self.instances = target.limits.minimum
        self.now_s = 0.0
        #: Every change of the number of instances: when, and to how many.
        self.changes: list[tuple[float, int]] = []
        #: How long requests have waited, and when they came.
        self.waits: list[tuple[float, float]] = []
        self._seconds_each = seconds_each
        self._chance = random.Random(seed)
        self._queue: deque[float] = deque()
        self._ends: list[float] = []
        self._answered = 0
        self._busy_s = 0.0

    def run(self, seconds: float, *, per_second: float) -> None:
        """Let requests arrive for so long; the number of instances is decided on the way."""
        end_s = self.now_s + seconds
        arrival_s = self.now_s + self._pause_s(per_second)
        reading_s = self.now_s + INTERVAL_S
        while self.now_s < end_s:
            next_end_s = self._ends[0] if self._ends else end_s
            at_s = min(arrival_s, reading_s, next_end_s, end_s)
            self._busy_s += len(self._ends) * (at_s - self.now_s)
            self.now_s = at_s
            while self._ends and self._ends[0] <= at_s:
                heapq.heappop(self._ends)
                self._answered += 1
            if at_s >= arrival_s:
                self._queue.append(at_s)
                arrival_s += self._pause_s(per_second)
            self._begin()
            if at_s >= reading_s:
                self._decide()
                reading_s += INTERVAL_S

    def _pause_s(self, per_second: float) -> float:
        return self._chance.expovariate(per_second) if per_second else math.inf

    def _begin(self) -> None:
        while self._queue and len(self._ends) < self.instances:
            came_s = self._queue.popleft()
            self.waits.append((came_s, self.now_s - came_s))
            took_s = self._seconds_each * self._chance.uniform(0.8, 1.2)
            heapq.heappush(self._ends, self.now_s + took_s)

    def _decide(self) -> None:
        unanswered = len(self._queue) + len(self._ends)
        reading = Reading(self.now_s, self._answered, unanswered, len(self._queue), self._busy_s)
        count = self.target.decide(reading, self.instances)
        if count != self.instances:
            self.instances = count
            self.changes.append((self.now_s, count))
            self._begin()
