"""The metrics of this model on their way to the broker: changes are recorded, summed up and sent.

A change costs a few steps and mostly no message: any thread puts it into a queue, and it is sent
with the next results, or soon if nothing is executed; a few are sent at once. A new broker gets
everything again; until then local values are returned.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from bisect import bisect_left
from collections import deque
from typing import Any, Callable, Iterator, List, Protocol, Sequence

from zmqtriton_floor import metrics, wire
from zmqtriton_floor.errors import Unavailable, ZmqTritonError, from_number

#: One change as the broker reads it.
Row = List[Any]

#: Period of at most _SENT_AT_ONCE messages that leave at once, during an execution too, so that the
#: metrics page has what a model has just changed. Further changes are summed up.
_FLUSH_EVERY_S = 0.1
_SENT_AT_ONCE = 8
#: When this many changes are noted they are summed up.
MAX_CHANGES = 1000
#: Characters of JSON in one message; a row is far smaller.
_MAX_CHARACTERS = 256 << 10
_PATIENCE_S = 10.0
#: Another thread may take the message that a waiting one is waiting for.
_LOOK_MS = 5

_LATE = "the server did not answer in time"


class Measured:
    """A metric object, here a counter: the sum that this process has added to its series."""

    def __init__(
        self, number: int, family: int, labels: dict[str, str], buckets: Sequence[float]
    ) -> None:
        self.number = number
        self.family = family
        self.labels = labels
        self._buckets = buckets
        #: The value, as far as this process knows it.
        self.value = self._new = 0.0

    def begin(self) -> Row:
        return ["metric", self.number, self.family, self.labels, [*self._buckets]]

    def change(self, verb: str, value: float) -> None:
        """Add a change to the sums."""
        self.value += value
        self._new += value

    def row(self) -> Row:
        """Return the changes since the last sending."""
        new, self._new = self._new, 0.0
        return ["add", self.number, new]

    def whole(self) -> Row:
        """Return everything that the metric has ever sent, for a new broker."""
        self._new = 0.0
        return ["add", self.number, self.value]


class Gauged(Measured):
    """A gauge: the sum of additions, or the last set value and the additions since."""

    _set_ns = 0
    _is_set_anew = False

    def change(self, verb: str, value: float) -> None:
        if verb == "set":
            self.value = self._new = 0.0
            self._set_ns, self._is_set_anew = time.monotonic_ns(), True
        super().change(verb, value)

    def row(self) -> Row:
        is_set, self._is_set_anew = self._is_set_anew, False
        row = super().row()
        return ["set", self.number, row[2], self._set_ns] if is_set else row

    def whole(self) -> Row:
        self._is_set_anew = False
        row = super().whole()
        return ["was", self.number, self.value, self._set_ns] if self._set_ns else row


class Observed(Measured):
    """A histogram."""

    def __init__(
        self, number: int, family: int, labels: dict[str, str], buckets: Sequence[float]
    ) -> None:
        super().__init__(number, family, labels, buckets)
        self._counts = [0] * (len(buckets) + 1)
        self._new_counts = self._counts.copy()

    def change(self, verb: str, value: float) -> None:
        place = bisect_left(self._buckets, value)
        self._counts[place] += 1
        self._new_counts[place] += 1
        super().change(verb, value)

    def row(self) -> Row:
        counts, self._new_counts = self._new_counts, [0] * len(self._counts)
        return ["observed", self.number, counts, super().row()[2]]

    def whole(self) -> Row:
        self.row()
        return ["observed", self.number, self._counts, self.value]


_KINDS = {metrics.COUNTER: Measured, metrics.GAUGE: Gauged, metrics.HISTOGRAM: Observed}


class LinkToBroker(Protocol):
    """The connection to the broker, as seen by requests and metrics."""

    #: Runs a round of the loop, if none was run for a while.
    poll: Callable[[], None]

    @property
    def is_closed(self) -> bool:
        """True if nothing can be sent any more."""

    @property
    def descriptor(self) -> int:
        """The descriptor of the connection; -1 without a broker."""

    def put(self, item: Any) -> None: ...

    def turn(self, *, takes: bool = True) -> None: ...

    def wait(self, timeout_ms: int) -> None: ...

    def wake(self) -> None: ...

    def is_busy(self) -> bool:
        """True in the thread that executes, whose loop sends changes afterwards."""


class _Question:
    answer: wire.CallResult | None = None

    def __init__(self, number: int, verb: str, about: int) -> None:
        self.call = wire.Call(number, verb, json.dumps(about))


class ModelMetrics:
    """All families and metrics of this process."""

    def __init__(self) -> None:
        #: Held while changes are summed up and put into the link's queue. A thread that also needs
        #: the link's locks takes this one first. Destructors during its work do not wait for it.
        self.lock = threading.RLock()
        #: Gets what the broker has refused.
        self._complain: Callable[[str], object] = str
        self._link: LinkToBroker | None = None
        self._numbers = itertools.count(1)
        self._families: dict[int, Row] = {}
        self._metrics: dict[int, Measured] = {}
        #: Changes in order: a metric with a verb and a value, or None with "begin" or "drop" and a
        #: row.
        self.changes: deque[tuple[Measured | None, str, Any]] = deque()
        self._is_summing = False
        self._is_due = False
        #: End of the present period, and the number of messages that have left in it.
        self._flush_at_s = 0.0
        self._sent = 0
        self._open: dict[int, _Question] = {}

    def report_to(self, complain: Callable[[str], None]) -> None:
        """Let an instance log the refusals of the broker."""
        self._complain = complain

    # ------------------------------------------------------------- the model

    def add_family(self, name: str, description: str, kind: int) -> int:
        """Add a family and return its number. Raises a ZmqTritonError if the broker refuses it."""
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
        """Add a metric to the family."""
        metrics.check_metric(kind, labels, buckets)
        metrics.check_count(len(self._families) + len(self._metrics))
        number = next(self._numbers)
        measured = self._metrics[number] = _KINDS[kind](number, family, labels, buckets)
        self._put(None, "begin", measured.begin())
        return measured

    def find(self, number: int) -> Measured | None:
        """Return a metric by its number; None if its holder has released it."""
        return self._metrics.get(number)

    def change(self, measured: Measured, verb: str, value: float) -> None:
        self._put(measured, verb, value)

    def drop(self, number: int) -> None:
        """Drop a metric, or a family with its metrics; a destructor may call this."""
        self._put(None, "drop", ["drop", number])

    def value(self, measured: Measured) -> float:
        """Return the sum over all processes that have the series."""
        answer = self._ask("value", measured.number)
        if answer is not None:
            return float(answer)
        with self.lock:
            if not self._is_summing:
                self._sum_up()
            return measured.value

    # ---------------------------------------------------------------- the way

    def _put(self, measured: Measured | None, verb: str, what: Any) -> None:
        self.changes.append((measured, verb, what))
        is_many = len(self.changes) >= MAX_CHANGES
        link = self._link
        if link is None:
            if is_many and self.lock.acquire(False):
                try:
                    if not self._is_summing:
                        self._sum_up()  # a broker that is there later is told all at once
                finally:
                    self.lock.release()
        elif is_many or self._may_send():
            self.flush()
        elif not self._is_due:
            self._is_due = True
            if not link.is_busy():
                link.wake()

    def _may_send(self) -> bool:
        now_s = time.monotonic()
        if now_s >= self._flush_at_s:
            self._flush_at_s, self._sent = now_s + _FLUSH_EVERY_S, 0
        return self._sent < _SENT_AT_ONCE

    def flush(self) -> None:
        """Send changes; any thread may call this, and it never waits."""
        link = self._link
        if link is None or not self.changes:
            return
        while self.changes and self.lock.acquire(False):
            try:
                if self._is_summing:
                    # We are a destructor within the summing up, which will come to this, too.
                    return
                self._send(link)
            finally:
                self.lock.release()
        if self.changes:
            link.wake()  # another thread is at it, and may have just looked
        link.turn()

    def _send(self, link: LinkToBroker) -> None:
        self._is_due = False
        self._sent += 1
        for frames in _messages(self._sum_up()):
            link.put(frames)

    def _sum_up(self) -> list[Row]:
        """Return the rows that report all changes to the broker. The lock is held."""
        self._is_summing = True
        try:
            begun: list[Row] = []
            dropped: list[Row] = []
            changed: dict[int, Measured] = {}
            while self.changes:
                measured, verb, what = self.changes.popleft()
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

    def introduce(self, link: LinkToBroker) -> Iterator[list[bytes]]:
        """Introduce everything to a broker that knows nothing of it.

        The caller clears the link's queue, sends all messages, and holds the lock until then.
        """
        self._link = link
        self._sum_up()
        rows = [*self._families.values()]
        for measured in list(self._metrics.values()):
            rows += [measured.begin(), measured.whole()]
        yield from _messages(rows)
        yield from ([wire.encode(question.call)] for question in list(self._open.values()))

    def answered(self, answer: wire.CallResult) -> None:
        question = self._open.get(answer.id)
        if question is not None:
            question.answer = answer
        elif answer.code:
            self._complain(answer.text)

    def _ask(self, verb: str, about: int) -> Any:
        """Ask the broker, after all changes until now; None without a broker."""
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

    def _wait(self, link: LinkToBroker, question: _Question) -> Any:
        deadline_s = time.monotonic() + _PATIENCE_S
        while True:
            link.turn()
            answer = question.answer
            if answer is not None:
                break
            if time.monotonic() >= deadline_s or link.is_closed:
                raise Unavailable(_LATE)
            link.poll()
            if question.answer is None:
                link.wait(_LOOK_MS)
        if answer.code:
            raise from_number(answer.code, answer.text)
        return json.loads(answer.result)


def _messages(rows: list[Row]) -> Iterator[list[bytes]]:
    """Return as many messages as needed, so that none is too long."""
    texts: list[str] = []
    length = 0
    for row in rows:
        text = json.dumps(row, ensure_ascii=False)
        if length + len(text) > _MAX_CHARACTERS:
            yield _message(texts)
            texts, length = [], 0
        texts.append(text)
        length += len(text)
    if texts:
        yield _message(texts)


def _message(texts: list[str]) -> list[bytes]:
    return [wire.encode(wire.Call(0, "measure", "[" + ",".join(texts) + "]"))]
