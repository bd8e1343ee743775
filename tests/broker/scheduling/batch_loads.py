"""Loads of a batching queue on a simulated clock: when requests come, and how long executions take.

An open load comes whatever happens; of a closed one each client sends its next request after a
response. The queue is the broker's own, with fixed delay and size, or with `BATCH_DELAY`.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from tests.broker.world import request
from zmqtriton.broker.requests.inflight import InflightRequest
from zmqtriton.broker.scheduling.batching import BatchingQueue
from zmqtriton.broker.scheduling.fitting import queue_of

MS, SECOND = 1_000_000, 1_000_000_000
MOST = 16
#: Seconds at the begin that do not count: BATCH_DELAY learns.
SKIPPED_S = 2

#: Milliseconds of an execution by its rows.
LAWS: dict[str, Callable[[int], float]] = {
    "flat": lambda rows: 10,
    "linear": lambda rows: 2.0 * rows,
    "affine": lambda rows: 8 + rows,
    "step": lambda rows: 10.0 * -(-rows // 6),
}


def poisson(dice: random.Random, rate: float, seconds: float) -> Iterator[float]:
    at = dice.expovariate(rate)
    while at < seconds:
        yield at
        at += dice.expovariate(rate)


def bursts(dice: random.Random, rate: float, seconds: float) -> Iterator[float]:
    for at in poisson(dice, rate / 6, seconds):
        for n in range(dice.randrange(1, 12)):
            yield at + n * 2e-4


def on_off(dice: random.Random, rate: float, seconds: float) -> Iterator[float]:
    for at in poisson(dice, 1.4 * rate, seconds):
        if at % 6 < 3 or dice.random() < 0.2:
            yield at


def ramp(dice: random.Random, rate: float, seconds: float) -> Iterator[float]:
    for at in poisson(dice, 1.5 * rate, seconds):
        if dice.random() < at / seconds:
            yield at


ARRIVALS = {"poisson": poisson, "bursts": bursts, "on_off": on_off, "ramp": ramp}


@dataclass
class Result:
    """The times of the requests, in nanoseconds."""

    latencies: list[int] = field(default_factory=list)
    #: Their times of arrival.
    arrived: list[int] = field(default_factory=list)
    busy: int = 0
    begin: int = 0
    end: int = 0
    #: (time, delay, size) of each choice that differs from the one before.
    choices: list[tuple[int, int, int]] = field(default_factory=list)

    @property
    def mean(self) -> float:
        return sum(self.latencies) / len(self.latencies)

    @property
    def span(self) -> int:
        return self.end - self.begin

    def late(self, limit: int) -> float:
        return sum(one > limit for one in self.latencies) / len(self.latencies)


def config_of(delay_us: int, size: int, target: str = "") -> dict[str, Any]:
    """The configuration of a fixed pair, or for a target."""
    batching: dict[str, Any] = {"max_queue_delay_microseconds": delay_us}
    values = {"BATCH_DELAY": "auto", "BATCH_TARGET": target} if target else {}
    return {
        "max_batch_size": size,
        "dynamic_batching": batching,
        "parameters": {name: {"string_value": text} for name, text in values.items()},
    }


class LoadRun:
    """One run of a load."""

    def __init__(
        self,
        config: dict[str, Any],
        law: Callable[[int], float],
        instances: int,
        *,
        spread: float = 0.05,
        skipped: float = SKIPPED_S,
        slow_from: float = math.inf,
    ) -> None:
        """From `slow_from` seconds on, the executions take twice as long."""
        self.result = Result()
        queue = queue_of(config)
        assert isinstance(queue, BatchingQueue)
        self.queue = queue
        self._law = law
        self._spread, self._skipped_ns = spread, skipped * SECOND
        self._slow_from_ns = slow_from * SECOND
        self._idle = self._instances = instances
        self._dice = random.Random(1)
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count(1)
        self._generation: Any = SimpleNamespace(unanswered=0)
        self._now = 0
        self._waiting = 0
        self._think: Callable[[], None] | None = None

    def open(self, arrivals: Iterable[float]) -> Result:
        for at in arrivals:
            self._at(round(at * SECOND), self._arrive)
        return self._run()

    def closed(self, clients: int, seconds: float, later: Iterable[float] = ()) -> Result:
        """Clients that need up to a millisecond between response and request.

        After `seconds` they end; the requests of `later` come whatever happens.
        """

        def think() -> None:
            if self._now < seconds * SECOND:
                self._at(self._now + self._dice.randrange(MS // 10, MS), self._arrive)

        self._think = think
        for _ in range(clients):
            think()
        return self.open(later)

    def _at(self, when: int, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), event))

    def _run(self) -> Result:
        while self._events or self._waiting:
            due = self.queue.due_ns if self._idle and self._waiting else 0
            if due and (not self._events or due < self._events[0][0]):
                self._now = max(due, self._now)
            else:
                self._now, _, event = heapq.heappop(self._events)
                event()
            while self._idle and self._waiting and self._begin():
                pass
        self.result.end = self._now
        return self.result

    def _arrive(self) -> None:
        row = request(next(self._numbers))
        self.queue.levels.add(InflightRequest(1, row, b"", self._generation, self._now))
        self._waiting += 1
        self._generation.unanswered += 1

    def _begin(self) -> bool:
        batch = self.queue.pop_batch(self._now)
        if not batch:
            return False
        self._waiting -= len(batch)
        self._idle -= 1
        chance = self._dice.uniform(1 - self._spread, 1 + self._spread)
        slowness = 2 if self._now >= self._slow_from_ns else 1
        took = round(self._law(len(batch)) * MS * chance * slowness)
        self.result.busy += took
        self._at(self._now + took, lambda: self._end(batch, took))
        return True

    def _end(self, batch: list[InflightRequest], took: int) -> None:
        self._idle += 1
        if self._now < self._skipped_ns:
            self.result = Result(begin=self._now, choices=self.result.choices)
        self._generation.unanswered -= len(batch)
        for one in batch:
            self.result.latencies.append(self._now - one.arrived_ns)
            self.result.arrived.append(one.arrived_ns)
            if self._think is not None:
                self._think()
        choice = self.queue.choice
        if choice is not None:
            before = choice.pair
            choice.learn(batch, took, self._instances, self._now)
            self.queue.choose_by(choice)
            if choice.pair != before:
                self.result.choices.append((self._now, *choice.pair))
