"""Fits batches to their model: their cost stays within a budget, and like requests go together.

A budget closes a batch before a request that would exceed it; a request above the budget is
executed alone. Likeness arranges the waiting requests, and `BatchingQueue` takes the first of
them as always, so all other settings hold. Three laws bound it (tests/broker/scheduling):

- The oldest waiting request of the highest priority is in the next batch. A request with n others
  before it is in one of the next n + 1 batches.
- A request goes before one of higher priority only if both are in the batch.
- No request overtakes one that has waited for half of the time to its deadline or queue timeout.

Measures are taken from a request's body when it is queued, for models with these parameters alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import groupby, islice, zip_longest
from math import prod
from typing import Any

from zmqtriton.broker.requests.inflight import NO_SIZE, InflightRequest, Size
from zmqtriton.broker.scheduling.batching import (
    BatchCandidate,
    BatchingQueue,
    Levels,
    PriorityLevel,
    Queue,
)
from zmqtriton.broker.scheduling.choosing import BatchChoice
from zmqtriton.config.batching import (
    BATCH_COST,
    BATCH_DELAY,
    BATCH_LIKE,
    BATCH_TARGET,
    MAX_BATCH_COST,
    USUAL,
    Measure,
    measure_of,
    target_of,
)
from zmqtriton_floor.datatypes import BY_NUMBER, BYTES, count_elements
from zmqtriton_floor.errors import ProtocolError
from zmqtriton_floor.signature import READABLE, config_parameter
from zmqtriton_floor.wire import Tensor, decode_request

#: The batches whose requests are looked at for one: sorting them costs less than padding.
_BATCHES_AHEAD = 4
#: Mask of the batch numbers that are measured for an estimate: one in 256, more at the beginning.
_SELDOM = 255
#: Maximum value of a number, above each budget; also of numbers that the body refers to.
_MOST = 1e15


class Meter:
    """Measures the requests of one model."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._cost = measure_of(config_parameter(config, BATCH_COST))
        self.likeness = measure_of(config_parameter(config, BATCH_LIKE))
        self.is_padded = self._cost is not None and self._cost.kind == "padded"
        #: Index of the first dimension that is not the batch's.
        self._start = 1 if config.get("max_batch_size") else 0

    def size(self, body: bytes) -> Size:
        """Return the size of a request; a body that the stub will refuse has none."""
        try:
            inputs = decode_request(body).inputs
            likeness = largest_row(inputs, self.likeness, self._start)
            if self.is_padded:
                return Size(0, largest_row(inputs, self._cost, self._start), likeness)
            return Size(max(0, _sum(inputs, self._cost)), (), likeness)
        except (ProtocolError, KeyError, TypeError, ValueError):
            return NO_SIZE


def _sum(inputs: Iterable[Tensor], measure: Measure | None) -> float:
    tensor = _find(inputs, measure)
    if measure is None or tensor is None:
        return 0
    if measure.kind == "bytes":
        return _bytes(tensor)
    return count_elements(tensor.shape) if measure.kind == "elements" else sum(_values(tensor))


def largest_row(inputs: Iterable[Tensor], measure: Measure | None, start: int) -> tuple[float, ...]:
    """Return the sizes of the largest row, from dimension `start` on; () without the input."""
    tensor = _find(inputs, measure)
    if measure is None or tensor is None:
        return ()
    if measure.kind == "value":
        return (max(_values(tensor), default=0),)
    if tensor.datatype == BYTES:
        return (_longest(tensor),)
    has_elements = count_elements(tensor.shape) > 0  # without any, a client may say any size
    return tuple(max(0, size) * has_elements for size in tensor.shape[start:])


def _find(inputs: Iterable[Tensor], measure: Measure | None) -> Tensor | None:
    return next((one for one in inputs if measure is not None and one.name == measure.input), None)


def _values(tensor: Tensor) -> Sequence[float]:
    """Return the numbers of a tensor, from 0 to _MOST."""
    if type(tensor.data) not in READABLE:
        return (_MOST,)
    form: Any = BY_NUMBER[tensor.datatype].array_code
    values: Iterable[float] = memoryview(tensor.data).cast(form)
    return [min(value, _MOST) if value > 0 else 0 for value in values]


def _bytes(tensor: Tensor) -> int:
    """Return the bytes of a tensor, without the lengths before its strings."""
    size: int = len(tensor.data) if type(tensor.data) in READABLE else tensor.data.size
    return size - 4 * count_elements(tensor.shape) if tensor.datatype == BYTES else size


def _longest(tensor: Tensor) -> int:
    """Return the bytes of the longest string; of strings in shared memory their sum."""
    if type(tensor.data) not in READABLE:
        return _bytes(tensor)
    data, position, longest = tensor.data, 0, 0
    while position < len(data):
        length = int.from_bytes(data[position : position + 4], "little")
        longest, position = max(longest, length), position + 4 + length
    return longest


#: The rows of a request, and the sizes of its largest row.
_Rows = tuple[int, tuple[float, ...]]


def _row_of(request: InflightRequest) -> _Rows:
    return request.elements, request.measured.likeness


def _union(left: tuple[float, ...], right: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(map(max, zip_longest(left, right, fillvalue=0)))


class _Area:
    """The elements of requests that are padded to the largest of them."""

    def __init__(self) -> None:
        self.rows = 0
        self.elements = 0.0
        self._largest: tuple[float, ...] = ()

    def with_one(self, rows: int, size: tuple[float, ...]) -> float:
        """Return the elements if a request were added."""
        return (self.rows + rows) * prod(_union(self._largest, size))

    def add(self, rows: int, size: tuple[float, ...]) -> None:
        self.elements = self.with_one(rows, size)
        self.rows += rows
        self._largest = _union(self._largest, size)


def _padded(requests: Iterable[_Rows]) -> float:
    area = _Area()
    for rows, size in requests:
        area.add(rows, size)
    return area.elements


def _distance(one: Size, other: Size) -> float:
    """Return the padding if two requests of one row share a batch."""
    left, right = one.likeness, other.likeness
    return 2 * prod(_union(left, right)) - prod(left) - prod(right)


def _alike(
    batch: Iterable[InflightRequest], others: Iterable[InflightRequest]
) -> list[InflightRequest]:
    """Return the requests that may join a batch, in their order.

    A request joins if it adds no more padding than it has elements. Others wait for a batch of
    their size.
    """
    area, alike = _Area(), []
    for one in batch:
        area.add(one.elements, one.measured.likeness)
    for one in others:
        added = area.with_one(one.elements, one.measured.likeness) - area.elements
        if added <= 2 * one.elements * prod(one.measured.likeness):
            area.add(one.elements, one.measured.likeness)
            alike.append(one)
    return alike


class _MeasuredLevels(Levels):
    """Measures requests when they are queued, and has their sizes in the order of arrival."""

    def __init__(self, batching: dict[str, Any], meter: Meter) -> None:
        super().__init__(batching)
        self._meter = meter
        #: Rows and likeness of the requests that wait, and of some that have left, oldest first.
        self.arrived: deque[_Rows] = deque()

    def add(self, request: InflightRequest) -> PriorityLevel:
        request.measured = self._meter.size(request.body)
        level = super().add(request)
        if self._meter.likeness:
            self.arrived.append(_row_of(request))
            self._drop_left()
        return level

    def take_arrived(self, count: int) -> list[_Rows]:
        """Remove and return the oldest sizes, as many as a batch has requests."""
        oldest = [self.arrived.popleft() for _ in range(min(count, len(self.arrived)))]
        self._drop_left()
        return oldest

    def _drop_left(self) -> None:
        waiting = sum(level.size for level in self.by_priority.values())
        while len(self.arrived) > waiting:
            self.arrived.popleft()  # cancelled, or refused


class _Cost:
    """The cost of a batch that grows."""

    def __init__(self, *, is_padded: bool) -> None:
        self._is_padded = is_padded
        self._sum = 0.0
        self._area = _Area()

    @property
    def rows(self) -> int:
        return self._area.rows

    def add(self, request: InflightRequest) -> float:
        """Add a request, and return the cost of all of them."""
        self._sum += request.measured.cost
        self._area.add(request.elements, request.measured.largest)
        return self._area.elements if self._is_padded else self._sum


class Padding:
    """Elements of requests that were executed in batches, and of their padding."""

    def __init__(self, name: str) -> None:
        self.input = name
        #: Elements of the requests themselves.
        self.real = 0.0
        #: Elements of the batches as they were formed, with padding.
        self.padded = 0.0
        #: Elements with padding if the same requests had been put together in the other way: in
        #: the order of arrival, or by their likeness.
        self.otherwise = 0.0

    def add(self, batch: Sequence[_Rows], otherwise: float) -> None:
        self.real += sum(rows * prod(size) for rows, size in batch)
        self.padded += _padded(batch)
        self.otherwise += otherwise


class FittingQueue(BatchingQueue):
    """Forms batches by `BATCH_COST` and `BATCH_LIKE`."""

    levels: _MeasuredLevels

    def __init__(self, config: dict[str, Any], batching: dict[str, Any]) -> None:
        super().__init__(batching, config.get("max_batch_size") or 1)
        meter = Meter(config)
        self.levels = _MeasuredLevels(batching, meter)
        self._is_padded = meter.is_padded
        #: The maximum cost of a batch; 0: no limit.
        self._budget = int(config_parameter(config, MAX_BATCH_COST) or 0)
        #: Batches that ended at a request which would have exceeded the budget.
        self._spent = 0
        #: Number of waiting requests that a batch is chosen from; 0: it takes the first ones.
        self._window = _BATCHES_AHEAD * self._max_batch_size if meter.likeness else 0
        self._padding = Padding(meter.likeness.input if meter.likeness else "")

    def _find_candidate(self, waiting: Iterable[InflightRequest]) -> BatchCandidate | None:
        if not self._budget:
            return super()._find_candidate(waiting)
        within, closing = self._within_budget(waiting)
        candidate = super()._find_candidate(within)
        if candidate is None or candidate.closing is not None:
            return candidate
        return candidate._replace(closing=closing)

    def _within_budget(
        self, waiting: Iterable[InflightRequest]
    ) -> tuple[list[InflightRequest], InflightRequest | None]:
        """Return the first requests within the budget, at least one, and the next one."""
        within: list[InflightRequest] = []
        cost = _Cost(is_padded=self._is_padded)
        for request in waiting:
            is_above = cost.add(request) > self._budget or cost.rows > self._max_batch_size
            if within and is_above:
                return within, request
            within.append(request)
        return within, None

    def choose(self, waiting: Iterable[InflightRequest], now_ns: int) -> list[InflightRequest]:
        if not self._window:
            return super().choose(waiting, now_ns)
        looked = [*islice(waiting, self._window)]
        arranged = self._arrange(looked, now_ns)
        chosen = {*arranged[: self.size_of_batch(arranged, now_ns)]}
        return [request for request in looked if request in chosen]

    def pop_batch(self, now_ns: int) -> list[InflightRequest]:
        chosen = self.choose(self.levels, now_ns)
        return self.take(chosen) if chosen else []

    def put_back(self, requests: list[InflightRequest]) -> None:
        if self._window:
            self.levels.arrived.extendleft(map(_row_of, reversed(requests)))
        super().put_back(requests)

    def take(self, requests: list[InflightRequest]) -> list[InflightRequest]:
        closing = self._closing
        if closing is not None and self._budget and closing.batch_key == requests[0].batch_key:
            cost = _Cost(is_padded=self._is_padded)
            self._spent += [cost.add(one) for one in (*requests, closing)][-1] > self._budget
        if self._window:
            sizes = [*map(_row_of, requests)]
            self._padding.add(sizes, _padded(self.levels.take_arrived(len(requests))))
        return super().take(requests)

    def report(self) -> dict[str, Any]:
        own: dict[str, Any] = {"budget": self._budget, "spent": self._spent}
        if self._window:
            own["padding"] = vars(self._padding)
        return {**super().report(), **own}

    def _arrange(self, waiting: list[InflightRequest], now_ns: int) -> list[InflightRequest]:
        """Return requests that may share a batch, in the order of their choice.

        Of each priority this is the oldest, then all that none may overtake, then those that are
        alike, by their distance to the oldest of all. Lower priorities follow if none was left out.
        """
        arranged: list[InflightRequest] = []
        for _, group in groupby(waiting, lambda one: (one.place, one.is_late)):
            oldest, *others = group
            seed = arranged[0] if arranged else oldest
            if oldest.batch_key != seed.batch_key:
                break
            hurried: list[InflightRequest] = []
            free: list[InflightRequest] = []
            has_strange = False
            for request in others:
                is_hurried = self._is_hurried(request, now_ns)
                if request.batch_key == seed.batch_key:
                    (hurried if is_hurried else free).append(request)
                    continue
                has_strange = True
                if is_hurried:
                    break
            size = seed.measured
            free.sort(key=lambda one: _distance(size, one.measured))
            arranged += [oldest, *hurried]
            alike = _alike(arranged, free)
            arranged += alike
            if has_strange or len(alike) < len(free):
                break
        return arranged

    def _is_hurried(self, request: InflightRequest, now_ns: int) -> bool:
        """True if a request has waited for half of its time, so that none may overtake it."""
        return 0 < self.levels.end_ns(request) <= 2 * now_ns - request.arrived_ns


class WatchingQueue(BatchingQueue):
    """Forms batches in the order of arrival, and estimates what `BATCH_LIKE` would save.

    For models that take requests of unlike sizes in a batch. It measures few of their batches.
    """

    def __init__(self, config: dict[str, Any], batching: dict[str, Any], names: list[str]) -> None:
        super().__init__(batching, config.get("max_batch_size") or 1)
        self._start = 1 if config.get("max_batch_size") else 0
        self._estimates = [Padding(name) for name in names]

    def pop_batch(self, now_ns: int) -> list[InflightRequest]:
        batch = super().pop_batch(now_ns)
        number = self._counts.batches
        if len(batch) > 1 and not number & min(number - 1, _SELDOM):
            self._estimate(batch)
        return batch

    def _estimate(self, batch: list[InflightRequest]) -> None:
        count = len(batch)
        looked = [*batch, *islice(self.levels, (_BATCHES_AHEAD - 1) * count)]
        with suppress(ProtocolError):  # the stub will refuse it
            bodies = [(one.elements, decode_request(one.body).inputs) for one in looked]
            for estimate in self._estimates:
                measure = Measure("shape", estimate.input)
                rows = [(n, largest_row(inputs, measure, self._start)) for n, inputs in bodies]
                by_size = sorted(rows, key=lambda row: prod(row[1]))
                for at in range(0, len(rows), count):
                    estimate.add(rows[at : at + count], _padded(by_size[at : at + count]))

    def report(self) -> dict[str, Any]:
        estimate = max(self._estimates, key=lambda one: one.padded)
        return {**super().report(), "estimate": vars(estimate)}


def queue_of(config: dict[str, Any]) -> Queue:
    """Make the queue that a configuration requires."""
    batching = config.get("dynamic_batching")
    if batching is None:
        return Queue({})
    queue = _batching_queue(config, batching)
    if config_parameter(config, BATCH_DELAY):
        target = target_of(config_parameter(config, BATCH_TARGET) or USUAL)
        assert target is not None  # checked by the load
        sizes = batching.get("preferred_batch_size", ())
        queue.choose_by(BatchChoice(target, config.get("max_batch_size") or 1, sizes))
    return queue


def _batching_queue(config: dict[str, Any], batching: dict[str, Any]) -> BatchingQueue:
    if config_parameter(config, BATCH_COST) or config_parameter(config, BATCH_LIKE):
        return FittingQueue(config, batching)
    unlike = [
        entry["name"]
        for entry in config.get("input", [])
        if entry.get("allow_ragged_batch") or entry["data_type"] == "TYPE_STRING"
    ]
    if unlike:
        return WatchingQueue(config, batching, unlike)
    return BatchingQueue(batching, config.get("max_batch_size") or 1)
