"""Timers in one heap, soonest first. Knows no clock."""

from __future__ import annotations

import heapq
import itertools
from typing import NamedTuple

from zmqtriton.broker.requests.inflight import InflightRequest, RequestState
from zmqtriton.broker.scheduling.instances import Instance
from zmqtriton.broker.scheduling.scheduler import Scheduler


class Timer(NamedTuple):
    """A time at which something is due.

    A timer is obsolete once its request is answered or has left its queue, its batch has returned,
    or its queue has another timer.
    """

    at_ns: int
    order: int  # so that equal times never compare what follows
    request: InflightRequest | None  # whose deadline passes, or
    in_queue: bool  # which has waited in its queue for as long as it may; or
    instance: Instance | None  # whose batch has had its time; or
    batch: int
    scheduler: Scheduler | None  # whose queue has waited long enough for a larger batch

    @property
    def is_running(self) -> bool:
        if self.request is not None and self.in_queue:
            return self.request.place is not None and not self.request.is_late
        if self.request is not None:
            return self.request.state is not RequestState.ANSWERED
        if self.scheduler is not None:
            return self.scheduler.timer_ns == self.at_ns
        return self.instance is not None and self.batch in self.instance.batches


class Timers:
    """Timers are started and never stopped: obsolete ones are skipped."""

    #: Number of timers below which obsolete ones are left in the heap.
    _FEW = 1024

    def __init__(self) -> None:
        #: Heap of the timers, the next one first; empty while nothing depends on the time.
        self.timed: list[Timer] = []
        self._order = itertools.count()
        self._clean_at = self._FEW

    def start(
        self,
        at_ns: int,
        *,
        request: InflightRequest | None = None,
        in_queue: bool = False,
        instance: Instance | None = None,
        batch: int = 0,
        scheduler: Scheduler | None = None,
    ) -> None:
        timer = Timer(at_ns, next(self._order), request, in_queue, instance, batch, scheduler)
        heapq.heappush(self.timed, timer)
        if len(self.timed) > self._clean_at:
            self.timed = [timer for timer in self.timed if timer.is_running]
            heapq.heapify(self.timed)
            self._clean_at = max(self._FEW, 2 * len(self.timed))

    def next_due_ns(self) -> int | None:
        """Return the time when pop_due() will have a timer, without other events."""
        while self.timed and not self.timed[0].is_running:
            heapq.heappop(self.timed)
        return self.timed[0].at_ns if self.timed else None

    def pop_due(self, now_ns: int) -> Timer | None:
        """Remove and return the next timer that is due."""
        at_ns = self.next_due_ns()
        if at_ns is None or at_ns > now_ns:
            return None
        return heapq.heappop(self.timed)
