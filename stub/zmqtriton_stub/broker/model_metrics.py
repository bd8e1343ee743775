"""What this model measures, on its way to the broker: changes are put down, summed up and sent.

A change costs a few steps and no message: any thread puts it into a queue, and what is there leaves
with the next results, or soon when nothing is executed. A new broker is told all of it again. Until
there is one, what is here is the answer. Called by metrics.py, the link and the loop.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from bisect import bisect_left
from collections import deque
from typing import Any, Callable, Iterator, List, Protocol

from zmqtriton_floor import metrics, wire
from zmqtriton_floor.errors import Unavailable, ZmqTritonError, from_number
from zmqtriton_floor.metrics import COUNTER, HISTOGRAM

#: One change as the broker reads it.
Row = List[Any]

#: Amid a long execution, what has changed leaves after so long.
_FLUSH_EVERY_S = 0.1
#: So many changes are summed up before more are put down.
_MOST_CHANGES = 1000
#: Characters of JSON in one message; a row is far smaller.
_MOST_CHARACTERS = 256 << 10
_PATIENCE_S = 10.0
#: Another thread may take the message that a waiting one is waiting for.
_LOOK_MS = 5

_LATE = "the server did not answer in time"


class Measured:
    """One metric object: what this process has added to its series."""

    def __init__(self, number: int, family: int, labels: dict[str, str]) -> None:
        self.number = number
        self.family = family
        self.labels = labels

    def begin(self) -> Row:
        return ["metric", self.number, self.family, self.labels, []]

    def change(self, verb: str, value: float) -> None:
        """Sums up one change."""
        raise NotImplementedError

    def row(self) -> Row:
        """What has changed since it was last told."""
        raise NotImplementedError

    def whole(self) -> Row:
        """All that it has ever told, for a broker that knows nothing."""
        raise NotImplementedError

    @property
    def value(self) -> float:
        """As far as this process knows."""
        raise NotImplementedError


class Counted(Measured):
    """Of a counter."""

    def __init__(self, number: int, family: int, labels: dict[str, str]) -> None:
        super().__init__(number, family, labels)
        self._total = self._new = 0.0

    def change(self, verb: str, value: float) -> None:
        self._total += value
        self._new += value

    def row(self) -> Row:
        new, self._new = self._new, 0.0
        return ["add", self.number, new]

    def whole(self) -> Row:
        self._new = 0.0
        return ["add", self.number, self._total]

    @property
    def value(self) -> float:
        return self._total


class Gauged(Counted):
    """Of a gauge: a sum of what was added, or what it was set to and what was added since."""

    def __init__(self, number: int, family: int, labels: dict[str, str]) -> None:
        super().__init__(number, family, labels)
        self._set_ns = 0
        self._is_set_anew = False

    def change(self, verb: str, value: float) -> None:
        if verb == "set":
            self._total = self._new = 0.0
            self._set_ns, self._is_set_anew = time.monotonic_ns(), True
        super().change(verb, value)

    def row(self) -> Row:
        is_set, self._is_set_anew = self._is_set_anew, False
        row = super().row()
        return ["set", self.number, row[2], self._set_ns] if is_set else row

    def whole(self) -> Row:
        self._is_set_anew = False
        row = super().whole()
        return ["was", self.number, self._total, self._set_ns] if self._set_ns else row


class Observed(Measured):
    """Of a histogram."""

    def __init__(
        self, number: int, family: int, labels: dict[str, str], buckets: list[float]
    ) -> None:
        super().__init__(number, family, labels)
        self._buckets = buckets
        self._total = self._new = 0.0
        self._counts = [0] * (len(buckets) + 1)
        self._new_counts = self._counts.copy()

    def begin(self) -> Row:
        return ["metric", self.number, self.family, self.labels, self._buckets]

    def change(self, verb: str, value: float) -> None:
        place = bisect_left(self._buckets, value)
        self._counts[place] += 1
        self._new_counts[place] += 1
        self._total += value
        self._new += value

    def row(self) -> Row:
        row = ["observed", self.number, self._new_counts, self._new]
        self._new_counts, self._new = [0] * len(self._counts), 0.0
        return row

    def whole(self) -> Row:
        self.row()
        return ["observed", self.number, self._counts, self._total]

    @property
    def value(self) -> float:
        return self._total


class MetricsLink(Protocol):
    """The connection to the broker, as seen by metrics."""

    is_closed: bool
    #: Attends to the loop's duties; for models that may be within a long execute().
    glance: Callable[[], None]

    def put(self, message: list[bytes]) -> None: ...

    def turn(self, *, takes: bool = True) -> None: ...

    def wait(self, timeout_ms: int) -> None: ...

    def wake(self) -> None: ...


class _Question:
    answer: wire.CallResult | None = None

    def __init__(self, number: int, verb: str, about: int) -> None:
        self.call = wire.Call(number, verb, json.dumps(about))


class ModelMetrics:
    """All families and metrics of this process."""

    def __init__(self, complain: Callable[[str], None] = lambda text: None) -> None:
        #: Held while changes are summed up and put into the link's queue. Whoever also needs the
        #: link's locks takes this one first. Destructors amid its work do not wait for it.
        self.lock = threading.RLock()
        #: Whether the loop looks after what changes in this thread, since it executes.
        self.is_busy: Callable[[], bool] = lambda: False
        #: Hears what the broker has refused.
        self._complain = complain
        self._link: MetricsLink | None = None
        self._numbers = itertools.count(1)
        self._families: dict[int, Row] = {}
        self._metrics: dict[int, Measured] = {}
        #: In order: a metric with a verb and a value, or None with "begin" or "drop" and a row.
        self._changes: deque[tuple[Measured | None, str, Any]] = deque()
        self._is_summing = False
        self._is_due = False
        self._flush_at_s = 0.0
        self._open: dict[int, _Question] = {}

    # ------------------------------------------------------------- the model

    def add_family(self, name: str, description: str, kind: int) -> int:
        """Its number. Raises a ZmqTritonError where it cannot be."""
        metrics.check_family(name, description, kind)
        metrics.check_count(len(self._families) + len(self._metrics))
        number = next(self._numbers)
        row = self._families[number] = ["family", number, name, description, kind]
        self._put(None, "begin", row)
        try:
            self._ask("family", number)
        except ZmqTritonError:
            self.drop(number)
            raise
        return number

    def add(self, family: int, kind: int, labels: dict[str, str], buckets: list[float]) -> Measured:
        """One more metric of the family."""
        metrics.check_metric(kind, labels, buckets)
        metrics.check_count(len(self._families) + len(self._metrics))
        number = next(self._numbers)
        measured: Measured
        if kind == HISTOGRAM:
            measured = Observed(number, family, labels, buckets)
        else:
            measured = (Counted if kind == COUNTER else Gauged)(number, family, labels)
        self._metrics[number] = measured
        self._put(None, "begin", measured.begin())
        return measured

    def change(self, measured: Measured, verb: str, value: float) -> None:
        self._put(measured, verb, value)

    def drop(self, number: int) -> None:
        """A metric, or a family with its metrics; by a destructor, too."""
        self._put(None, "drop", ["drop", number])

    def value(self, measured: Measured) -> float:
        """The sum over all who hold the series."""
        found = self._ask("value", measured.number)
        if found is not None:
            return float(found)
        with self.lock:
            if not self._is_summing:
                self._sum_up()
            return measured.value

    # ---------------------------------------------------------------- the way

    def _put(self, measured: Measured | None, verb: str, what: Any) -> None:
        self._changes.append((measured, verb, what))
        is_many = len(self._changes) >= _MOST_CHANGES
        link = self._link
        if link is None:
            if is_many and self.lock.acquire(False):
                try:
                    if not self._is_summing:
                        self._sum_up()  # a broker that is there later is told all at once
                finally:
                    self.lock.release()
        elif is_many or time.monotonic() >= self._flush_at_s:
            self.flush()
        elif not self._is_due:
            self._is_due = True
            if not self.is_busy():
                link.wake()

    def flush(self) -> None:
        """Sends what has changed; from any thread, and never waits."""
        link = self._link
        if link is None or not self._changes:
            return
        while self._changes and self.lock.acquire(False):
            try:
                if self._is_summing:
                    return  # we are a destructor amid it, and whoever sums up comes to this too
                self._send(link)
            finally:
                self.lock.release()
        if self._changes:
            link.wake()  # somebody else is at it, and may have just looked
        link.turn()

    def _send(self, link: MetricsLink) -> None:
        self._is_due = False
        self._flush_at_s = time.monotonic() + _FLUSH_EVERY_S
        for frames in _messages(self._sum_up()):
            link.put(frames)

    def _sum_up(self) -> list[Row]:
        """The lock is held. What the broker is to be told of all changes until now."""
        self._is_summing = True
        try:
            begun: list[Row] = []
            dropped: list[Row] = []
            changed: dict[int, Measured] = {}
            while self._changes:
                measured, verb, what = self._changes.popleft()
                if measured is not None:
                    measured.change(verb, what)
                    changed[measured.number] = measured
                elif verb == "begin":
                    begun.append(what)
                else:
                    self._forget(what[1], dropped)
            return [*begun, *(measured.row() for measured in changed.values()), *dropped]
        finally:
            self._is_summing = False

    def _forget(self, number: int, dropped: list[Row]) -> None:
        if self._families.pop(number, None) is not None:
            for metric in [m for m in list(self._metrics.values()) if m.family == number]:
                self._forget(metric.number, dropped)
        elif self._metrics.pop(number, None) is None:
            return  # with its family
        dropped.append(["drop", number])

    # ------------------------------------------------------------- the broker

    def introduce(self, link: MetricsLink) -> Iterator[list[bytes]]:
        """For a broker that knows nothing of it; the caller holds the lock until it has sent all,
        behind what it has cleared from the link's queue."""
        self._link = link
        self._sum_up()
        rows = [*self._families.values()]
        for measured in list(self._metrics.values()):
            rows += [measured.begin(), measured.whole()]
        yield from _messages(rows)
        for question in list(self._open.values()):
            yield [wire.encode(question.call)]

    def answered(self, answer: wire.CallResult) -> None:
        question = self._open.get(answer.id)
        if question is not None:
            question.answer = answer
        elif answer.code:
            self._complain(answer.text)

    def _ask(self, verb: str, about: int) -> Any:
        """What the broker says to it after all that has changed here; None where none is there."""
        link = self._link
        if link is None or link.is_closed:
            return None
        number = next(self._numbers)
        question = _Question(number, verb, about)
        with self.lock:
            if self._is_summing:
                return None
            self._send(link)
            self._open[number] = question
            link.put([wire.encode(question.call)])
        try:
            return self._wait(link, question)
        finally:
            del self._open[number]

    def _wait(self, link: MetricsLink, question: _Question) -> Any:
        deadline_s = time.monotonic() + _PATIENCE_S
        while True:
            link.turn()
            answer = question.answer
            if answer is not None:
                break
            if time.monotonic() >= deadline_s or link.is_closed:
                raise Unavailable(_LATE)
            link.glance()
            if question.answer is None:
                link.wait(_LOOK_MS)
        if answer.code:
            raise from_number(answer.code, answer.text)
        return json.loads(answer.result)


def _messages(rows: list[Row]) -> Iterator[list[bytes]]:
    """As many as needed, so that none is too long."""
    texts: list[str] = []
    length = 0
    for row in rows:
        text = json.dumps(row, ensure_ascii=False)
        if length + len(text) > _MOST_CHARACTERS:
            yield _message(texts)
            texts, length = [], 0
        texts.append(text)
        length += len(text)
    if texts:
        yield _message(texts)


def _message(texts: list[str]) -> list[bytes]:
    return [wire.encode(wire.Call(0, "measure", "[" + ",".join(texts) + "]"))]
