"""Chooses the delay and the largest size of a model's batches (`BATCH_DELAY: "auto"`).

The rule: of many pairs of delay and size, take the one that would have been best for the requests
of the last seconds. `replay` passes their times of arrival through a queue that has the pair; an
execution of n rows takes what executions of n rows have taken. So a pair with a delay is chosen
only where the wait for the next requests saves more than it costs.

If clients wait for a response before the next request, the times of arrival follow from the pair,
and a replay says nothing. Then, while the queue is long, and always for `throughput`, the number of
unanswered requests says how large the batches can be, and the size is taken that executes the most
rows in a second.

Sizes that were never executed are taken to cost what those next to them suggest.
Every 25 ms some pairs are replayed, after an execution; a model that executes nothing costs
nothing. Knows no clock but the times that it gets.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from math import inf
from statistics import median
from typing import NamedTuple

from zmqtriton.broker.requests.inflight import InflightRequest
from zmqtriton.config.batching import THROUGHPUT, BatchTarget
from zmqtriton_floor.wire import make

#: Requests of a replay: the time that it looks back, and the minimum and maximum number.
_SECONDS_NS, _LEAST, _MOST = 2_000_000_000, 32, 512
#: Time between two looks, and the batches that are replayed in one.
_PAUSE_NS, _BATCHES = 25_000_000, 200
#: Durations that are kept of each size, and the time after which a size is tried again.
_DURATIONS, _KEPT_NS = 9, 600_000_000_000
#: Another pair is taken if it costs less than this share of the present one.
_BETTER = 0.98
#: The rows in a second that a size must be able to execute: this share of the most that any size
#: can, or this multiple of those that come; and the share below which a long queue changes it.
_ENOUGH, _ROOM, _WIDE = 0.9, 6.0, 0.95
#: Sizes without a power of two that are tried because their rows take less time each.
_PEAKS = 3
#: Delays to try, as shares of an execution, and of the time that a target leaves for it.
_SHARES, _OF_TARGET = (0.05, 0.1, 0.2, 0.35, 0.6, 1.0), (0.15, 0.3, 0.5, 0.7, 0.85, 1.0)
#: Change of the part of the target that is used, at each response: down if it is late, up if not.
#: They are in balance if as many are late as may be, less a fifth.
_STEP, _FEWER = 0.01, 0.8
#: A load is closed if this share of the requests come within an execution divided by so many.
_CLOSED, _SOON = 0.6, 8
#: A queue is long if so many of the largest batches are unanswered for each instance.
_QUEUED = 2
#: The delay of a closed load as a multiple of an execution, and where instances are left over.
_WAIT, _SHORT_WAIT = 1.25, 0.1
#: A delay leaves this share of the time until a request is refused, and the time of an execution.
_LEFT = 0.25
#: Hope for a size below all that were executed, as a share of their time for each row, and the
#: least gain over the best size.
_HOPE, _HOPEFUL = 0.9, 1.05
#: Share of the number of unanswered requests that is left at each look, if fewer come.
_FADES = 0.99
#: Sizes that have durations of their own; larger ones share them with their neighbours.
_EACH = 64


class Pair(NamedTuple):
    """The delay of a batch, and the rows that it has at most."""

    delay_ns: int
    size: int


class Durations(dict[int, int]):
    """The time of an execution by its rows: learned, or computed for sizes that were not executed.

    Between two sizes it is on the line between them, above all on the line from the smallest to the
    largest, and below all as for the smallest.
    """

    def __init__(self, learned: dict[int, int]) -> None:
        super().__init__(learned)
        self._learned = sorted(learned.items())

    def __missing__(self, rows: int) -> int:
        learned = self._learned
        at = bisect_left(learned, (rows, 0))
        if not at:
            took = learned[0][1]
        else:
            is_above = at == len(learned)
            few, low = learned[0 if is_above else at - 1]
            many, high = learned[-1 if is_above else at]
            slope = (high - low) / max(1, many - few)
            took = round(high + (max(0.0, slope) if is_above else slope) * (rows - many))
        self[rows] = took
        return took

    def hope(self, sizes: Iterable[int], rate: float) -> int:
        """Return a size that was not executed, and whose rows may take less time; 0 if none may.

        Until it is executed, its time is what is hoped.

        An execution takes at least as long as one of fewer rows. The farther from executed sizes,
        the more is learned.
        """
        best = farthest = hope = 0
        learned = [(0, 0), *self._learned]
        for rows in sizes:
            at = bisect_left(learned, (rows, 0))
            (few, least), (many, high) = learned[at - 1], learned[min(at, len(learned) - 1)]
            if not few:
                least = round(high * rows / many * _HOPE) or 1
            far = min(rows - few, abs(many - rows))
            if far > farthest and rows > _HOPEFUL * rate * least:
                best, farthest, hope = rows, far, least
        if best:
            self[best] = hope
        return best


class ExecutionTimes:
    """Durations of the last executions of each size."""

    def __init__(self) -> None:
        self._by_size: dict[int, tuple[deque[int], int]] = {}

    def add(self, rows: int, took_ns: int, now_ns: int) -> None:
        if rows > _EACH:
            step = 1 << (rows.bit_length() - 5)
            rows = rows // step * step
        durations = self._by_size[rows][0] if rows in self._by_size else deque(maxlen=_DURATIONS)
        durations.append(max(1, took_ns))
        self._by_size[rows] = durations, now_ns

    def learned(self, now_ns: int) -> Durations:
        """Return the usual time of each size; sizes of long ago are forgotten."""
        kept = {n: one for n, one in self._by_size.items() if now_ns - one[1] < _KEPT_NS}
        self._by_size = kept or self._by_size
        return Durations({n: int(median(one[0])) for n, one in self._by_size.items()})


class ReplayCost(NamedTuple):
    """The costs of a replay."""

    waited_ns: int
    late: int
    busy_ns: int
    batches: int


class PastArrivals:
    """Requests in the order of arrival."""

    def __init__(self, requests: Iterable[tuple[int, int]]) -> None:
        ordered = sorted(requests)
        self.arrived = [at_ns for at_ns, _ in ordered]
        self.rows = [0, *accumulate(rows for _, rows in ordered)]
        self._sums = [0, *accumulate(self.arrived)]

    def replay(
        self,
        pair: Pair,
        durations: dict[int, int],
        instances: int,
        limit_ns: int = 0,
        most_ns: float = inf,
    ) -> ReplayCost:
        """Return the cost of these requests with a pair; it ends when they have waited longer."""
        arrived, rows, sums = self.arrived, self.rows, self._sums
        free = [0] * instances
        waited = late = busy = batches = first = 0
        count = len(arrived)
        while first < count and waited <= most_ns:
            # the batch takes requests before `bound`, and has all of them when it is full
            bound = max(first + 1, bisect_right(rows, rows[first] + pair.size, first) - 1)
            start = max(free[0], arrived[first])
            due = arrived[first] + pair.delay_ns
            if start < due:
                is_full = bound < count or rows[bound] - rows[first] >= pair.size
                start = max(start, min(due, arrived[bound - 1]) if is_full else due)
            end = bisect_right(arrived, start, first, bound)
            took = durations[rows[end] - rows[first]]
            heapq.heapreplace(free, start + took)
            waited += (start + took) * (end - first) - sums[end] + sums[first]
            if limit_ns:
                late += bisect_left(arrived, start + took - limit_ns, first, end) - first
            busy += took
            batches += 1
            first = end
        return make(ReplayCost, (waited, late, busy, batches))


class BatchChoice:
    """The pair that one model's queue has now, and what it is chosen by."""

    def __init__(self, target: BatchTarget, max_batch_size: int, sizes: Sequence[int]) -> None:
        self.target = target
        self.pair = Pair(0, max_batch_size)
        self._max_batch_size = max_batch_size
        powers = (1 << n for n in range(max_batch_size.bit_length()))
        self._sizes = {*powers, *sizes, max_batch_size}
        #: All sizes that may have a duration of their own.
        self._all = {*range(1, min(max_batch_size, _EACH) + 1), *self._sizes}
        self._times = ExecutionTimes()
        #: The same at the last choice.
        self._durations = Durations({1: 0})
        self._arrivals: deque[tuple[int, int]] = deque(maxlen=_MOST)
        #: Number of requests that were unanswered at once, of late.
        self._unanswered = 0.0
        #: True if the queue was long after the last execution, as `_QUEUED` says.
        self._is_long = False
        #: Times when executions ended, oldest first, and the sizes that were tried for their times.
        self._ends: deque[int] = deque(maxlen=_MOST)
        self._tried: set[int] = set()
        #: The part of the target's limit that replays use.
        self._used = 1.0
        self._next_ns = 0
        self._round: Iterator[int] = iter(())

    def note(self, batch: list[InflightRequest]) -> None:
        """Note the requests of a batch that begins."""
        self._arrivals.extend([(one.queued_ns, one.elements) for one in batch])

    def latest_ns(self, arrived_ns: int, end_ns: int) -> int:
        """Return the end of any delay of a request that is refused at `end_ns`."""
        return end_ns - round((end_ns - arrived_ns) * _LEFT) - self._durations[self.pair.size]

    def learn(self, batch: list[InflightRequest], took_ns: int, slots: int, now_ns: int) -> None:
        """Learn from the end of a batch, and choose again if it is time for it."""
        if not batch:
            return  # it was an earlier broker's
        self._times.add(sum(one.elements for one in batch), took_ns, now_ns)
        self._ends.append(now_ns)
        unanswered = batch[0].generation.unanswered + len(batch)
        self._unanswered = max(self._unanswered, unanswered)
        target = self.target
        if target.limit_ns:
            for one in batch:
                is_late = now_ns - one.arrived_ns > target.limit_ns
                self._used += _STEP * (target.late * _FEWER - is_late)
            self._used = min(max(self._used, 0.2), 1.0)
        was_long = self._is_long
        self._is_long = unanswered >= _QUEUED * slots * self._max_batch_size
        if self._is_long and not was_long:
            self._widen(now_ns)
        if now_ns < self._next_ns:
            return
        self._next_ns = now_ns + _PAUSE_NS
        replayed = 0
        while replayed < _BATCHES:
            batches = next(self._round, None)
            if batches is None:
                self._round = self._choose(slots, now_ns)
                return
            replayed += batches

    def _choose(self, slots: int, now_ns: int) -> Iterator[int]:
        """Replay each pair, and take the best at the end; yields the batches of each replay."""
        durations = self._durations = self._times.learned(now_ns)
        arrivals = sorted(self._arrivals)
        recent = bisect_left(arrivals, (arrivals[-1][0] - _SECONDS_NS, 0))
        trace = PastArrivals(arrivals[max(0, min(recent, len(arrivals) - _LEAST)) :])
        target = self.target
        is_closed = not target.limit_ns and self._is_closed(trace, durations, slots)
        if is_closed or target.text == THROUGHPUT:
            self._fill(durations, slots)
            yield _BATCHES
            return
        best, least = self.pair, None
        span_ns = max(1, trace.arrived[-1] - trace.arrived[0])
        load = trace.rows[-1] / span_ns / slots
        for pair in (best, *self._pairs(durations, load)):
            most_ns = inf if least is None or target.limit_ns else least[1]
            outcome = trace.replay(pair, durations, slots, self._limit_ns, most_ns)
            cost = self._cost(outcome, len(trace.arrived))
            if least is None:
                least = cost[0], cost[1] * _BETTER
            elif cost < least:
                best, least = pair, cost
            yield outcome.batches
        self.pair = best

    @property
    def _limit_ns(self) -> int:
        return round(self.target.limit_ns * self._used)

    def _pairs(self, durations: Durations, load: float) -> Iterator[Pair]:
        """Yield the pairs to try, large batches first.

        Their sizes execute many more rows than come, or nearly as many as the best size, so that
        a load which grows meets no pair that is overloaded where another is not.
        """
        rates = {rows: rows / durations[rows] for rows in self._candidates(durations)}
        highest = max(rates.values())
        # by what is known: the hope for one size is no reason to leave out the others
        enough = min(_ENOUGH * highest, _ROOM * load)
        hope = durations.hope(self._all - self._tried, highest)
        self._tried = {*self._tried, hope} if hope else set()
        if hope:
            rates[hope] = hope / durations[hope]
        limit_ns = self._limit_ns
        for size in sorted((rows for rows, rate in rates.items() if rate >= enough), reverse=True):
            took = durations[size]
            yield Pair(0, size)
            for share in (_OF_TARGET if limit_ns else _SHARES) if size > 1 else ():
                delay_ns = (limit_ns - took if limit_ns else took) * share
                if delay_ns > 0:
                    yield Pair(round(delay_ns), size)

    def _candidates(self, durations: Durations) -> set[int]:
        """Return the sizes to try.

        With the neighbours of the present one, and some that execute more rows in a second than
        their neighbours.
        """
        few = range(1, min(self._max_batch_size, _EACH) + 1)
        near = {self.pair.size - 1 or 1, min(self.pair.size + 1, self._max_batch_size)}
        rates = [0.0, *(rows / durations[rows] for rows in few), 0.0]
        peaks = [rows for rows in few if rates[rows - 1] <= rates[rows] > rates[rows + 1]]
        return {*self._sizes, *near, *sorted(peaks, key=rates.__getitem__)[-_PEAKS:]}

    def _widen(self, now_ns: int) -> None:
        """Choose the size that executes the most rows, for a queue that has just become long.

        It would grow until all pairs are replayed; then they are, with the requests of now.
        """
        durations = self._times.learned(now_ns)
        size = max(self._candidates(durations), key=lambda rows: rows / durations[rows])
        if self.pair.size / durations[self.pair.size] < _WIDE * size / durations[size]:
            self.pair = Pair(self.pair.delay_ns, size)
            self._round = iter(())

    def _cost(self, replay: ReplayCost, requests: int) -> tuple[int, float]:
        """Return by how many requests a replay misses the target, and what it costs besides."""
        if not self.target.limit_ns:
            return 0, replay.waited_ns
        late = max(0, replay.late - int(requests * self.target.late))
        return late, replay.waited_ns if late else replay.busy_ns

    def _is_closed(self, trace: PastArrivals, durations: Durations, slots: int) -> bool:
        """True if most requests come so soon after a response that clients have waited for it."""
        ends = [-_SECONDS_NS, *self._ends]
        begin_ns = trace.arrived[0]
        # the executions were perhaps of smaller batches: then most requests come soon after an end
        gap_ns = (ends[-1] - begin_ns) / max(1, len(ends) - bisect_right(ends, begin_ns))
        soon_ns = min(durations[self.pair.size] / slots, 2 * gap_ns) / _SOON
        lags = (at_ns - ends[bisect_right(ends, at_ns) - 1] for at_ns in trace.arrived)
        return sum(lag <= soon_ns for lag in lags) > _CLOSED * len(trace.arrived)

    def _fill(self, durations: Durations, slots: int) -> None:
        """Choose the size that executes the most rows in a second, and wait for as many.

        A size that was never executed, and that may be better, is tried once.
        """
        unanswered = max(1, round(self._unanswered))
        self._unanswered *= _FADES
        largest = min(self._max_batch_size, unanswered)
        sizes = {rows for rows in self._all if rows <= largest}

        def rate(rows: int) -> float:
            full, rest = divmod(unanswered, rows)
            alone = rest / durations[rest] if rest and full < slots else 0
            return min(full, slots) * rows / durations[rows] + alone

        size = max(sizes, key=rate)
        hopeful = durations.hope(sizes - self._tried, size / durations[size])
        if hopeful:
            self._tried.add(hopeful)
            size = hopeful
        # the delay counts from a request's arrival, which was perhaps a whole execution ago
        share = _WAIT if unanswered >= size * slots else _SHORT_WAIT
        delay_ns = round(durations[size] * share)
        if size != self.pair.size or abs(delay_ns - self.pair.delay_ns) > delay_ns / 4:
            self.pair = Pair(delay_ns, size)
