"""Puts traces together from what several processes have seen of them. Does no I/O.

A trace is whole a moment after its frontend has said that its request is answered, for others may
still be telling of it; later where it shows that something is missing. What nobody ever ends, since
a frontend has died, goes when room is needed.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from zmqtriton_floor.spans import span_of

#: So long after its end more may come of a trace, and so long what it lacks is waited for.
LINGER_S = 0.3
MOST_LINGER_S = 5.0
#: Of spans that wait for their trace to be whole, in all.
MAX_SPANS = 50_000
MAX_BYTES = 64 << 20
#: Of names under which traces are counted; each change of settings makes one.
_MAX_NAMES = 1000


@dataclass
class Span:
    """One request as one process after the other has told of it."""

    trace: str
    parent: str = ""
    model: str = ""
    version: int = 0
    request_id: str = ""
    error: str = ""
    marks: dict[str, int] = field(default_factory=dict)
    tensors: list[dict[str, Any]] = field(default_factory=list)
    #: Requests that were made while it was executed, or its steps.
    children: list[Span] = field(default_factory=list)
    #: A stub has had it, and will tell when it began and ended.
    was_executed: bool = False
    #: Of a client's request: how long it may lack something, and of a file that has it.
    until_s: float = 0.0
    log_frequency: int = 0
    #: Of all that was told of it.
    bytes: int = 0

    @property
    def id(self) -> str:
        return span_of(self.trace)

    @property
    def begun_ns(self) -> int:
        return min(self.marks.values(), default=0)

    def add(self, told: dict[str, Any]) -> None:
        self.parent = told.get("parent", self.parent)
        self.model = told.get("model", self.model)
        self.version = told.get("version", self.version)
        self.request_id = told.get("request_id", self.request_id)
        self.error = told.get("error", self.error)
        self.was_executed = told.get("executed", self.was_executed)
        # A request that is executed in several steps was given to its model first, and left last.
        for name, ns in told.get("marks", ()):
            is_start = name.endswith("_START") and name in self.marks
            self.marks[name] = min(ns, self.marks[name]) if is_start else ns
        self.tensors += told.get("tensors", ())


class _Known:
    """All that is known under one trace id, which any number of requests of a client may have."""

    def __init__(self) -> None:
        self.spans: dict[str, Span] = {}
        #: The ids of those below a span.
        self.below: dict[str, list[str]] = {}

    def add(self, trace: str, told: dict[str, Any]) -> Span:
        span = self.spans.setdefault(span_of(trace), Span(trace))
        before = span.parent
        span.add(told)
        # What is above a client's request is no span of ours.
        if span.parent != before and "root" not in told:
            self.below.setdefault(span.parent, []).append(span.id)
        return span

    def is_complete(self, root: str) -> bool:
        """As far as what is known of it tells: a client's request has reached the broker, and each
        that was executed has its times."""
        todo = list(self.below.get(root, ()))
        seen = {root}  # a model may tell of circles
        while todo:
            own = todo.pop()
            span = self.spans.get(own)
            if span is None or own in seen:
                continue
            seen.add(own)
            if span.was_executed and "COMPUTE_END" not in span.marks:
                return False
            todo += self.below.get(own, ())
        return len(seen) > 1

    def take_out(self, root: str) -> Span:
        """With all that is below."""
        found = self.spans.pop(root)
        todo = [found]
        while todo:
            span = todo.pop()
            ids = self.below.pop(span.id, ())
            span.children = [self.spans.pop(own) for own in ids if own in self.spans]
            todo += span.children
        return found


class Gathering:
    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._spans = 0
        self._bytes = 0
        #: When which trace is whole: (time, order, trace id, span id).
        self._ends: list[tuple[float, int, str, str]] = []
        self._order = itertools.count()
        self._counts: dict[str, int] = {}
        #: Spans that had to go, here or on their way.
        self.lost = 0

    def take(self, trace: str, told: dict[str, Any], size: int, now_s: float) -> None:
        """What somebody knows of a span."""
        self.lost += told.get("lost", 0)
        if "root" in told and not self._is_counted(told):
            return
        known = self._known.setdefault(trace[3:35], _Known())
        before = len(known.spans)
        span = known.add(trace, told)
        self._spans += len(known.spans) - before
        span.bytes += size
        self._bytes += size
        if "root" in told:
            span.log_frequency = told["log_frequency"]
            span.until_s = now_s + MOST_LINGER_S
            self._look_at(now_s + LINGER_S, trace[3:35], span.id)
        while self._spans > MAX_SPANS or self._bytes > MAX_BYTES:
            self._drop(next(iter(self._known)))

    def _look_at(self, time_s: float, trace: str, root: str) -> None:
        heapq.heappush(self._ends, (time_s, next(self._order), trace, root))

    def _is_counted(self, told: dict[str, Any]) -> bool:
        """Whether as many are wanted; each frontend alone knows of its own only."""
        name, most = told["root"], told["count"]
        counted = self._counts.pop(name, 0)
        if 0 <= most <= counted:
            self._counts[name] = counted
            return False
        self._counts[name] = counted + (most >= 0)
        while len(self._counts) > _MAX_NAMES:
            del self._counts[next(iter(self._counts))]
        return True

    def next_s(self) -> float | None:
        """When whole() may have something."""
        return self._ends[0][0] if self._ends else None

    def whole(self, now_s: float) -> list[Span]:
        """The traces that are, in the order of their ends; they are forgotten here."""
        found = []
        while self._ends and self._ends[0][0] <= now_s:
            _, _, trace, root = heapq.heappop(self._ends)
            known = self._known.get(trace)
            if known is not None and root in known.spans:
                until_s = known.spans[root].until_s
                if now_s < until_s and not known.is_complete(root):
                    self._look_at(min(now_s + LINGER_S, until_s), trace, root)
                    continue
                found.append(known.take_out(root))
                self._forget(found[-1:])
                if not known.spans:
                    del self._known[trace]
        return found

    def _drop(self, trace: str) -> None:
        spans = self._known.pop(trace).spans.values()
        self._forget(spans)
        self.lost += len(spans)

    def _forget(self, spans: Iterable[Span]) -> None:
        """These, and what was found below them."""
        todo = list(spans)
        while todo:
            span = todo.pop()
            self._spans -= 1
            self._bytes -= span.bytes
            todo += span.children
