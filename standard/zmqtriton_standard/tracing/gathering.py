"""Assembles traces from the reports of several processes. Does no I/O.

A trace is complete a moment after its frontend has reported the answer, since other processes may
still report; later if a report is visibly missing. Traces that never end, because a frontend has
died, are dropped when room is needed.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from zmqtriton.sdk.process import spans as span_rows

#: Seconds between two checks whether a trace is complete; the first is this long after its end.
LINGER_S = 0.3
#: Maximum seconds after the end of a trace for its missing parts.
MAX_LINGER_S = 5.0
#: The number of spans in all unfinished traces.
MAX_SPANS = 50_000
MAX_BYTES = 64 << 20
#: The number of settings under which traces are counted; each change of settings adds one.
_MAX_COUNTED_SETTINGS = 1000


@dataclass
class RequestSpan:
    """A request, from the reports of several processes."""

    trace_context: str
    parent: str = ""
    model: str = ""
    version: int = 0
    request_id: str = ""
    error: str = ""
    marks: dict[str, int] = field(default_factory=dict)
    tensors: list[dict[str, Any]] = field(default_factory=list)
    #: Requests that were made while it was executed, or its steps.
    children: list[RequestSpan] = field(default_factory=list)
    #: A stub has had it, and will report when it began and ended.
    was_executed: bool = False
    #: Time until which missing parts of the trace may come; only set for a client's request.
    deadline_s: float = 0.0
    log_frequency: int = 0
    #: The size of all reports.
    size_bytes: int = 0

    @property
    def id(self) -> str:
        return span_rows.span_of(self.trace_context)

    @property
    def start_ns(self) -> int:
        return min(self.marks.values(), default=0)

    def merge(self, report: dict[str, Any]) -> None:
        self.parent = report.get("parent", self.parent)
        self.model = report.get("model", self.model)
        self.version = report.get("version", self.version)
        self.request_id = report.get("request_id", self.request_id)
        self.error = report.get("error", self.error)
        self.was_executed = report.get("executed", self.was_executed)
        # a request that is executed in steps was given to its model first, and left last
        for name, ns in report.get("marks", ()):
            is_start = name.endswith("_START") and name in self.marks
            self.marks[name] = min(ns, self.marks[name]) if is_start else ns
        self.tensors += report.get("tensors", ())


@dataclass
class _PendingTrace:
    """Everything known under a trace id, which any number of a client's requests may share."""

    spans: dict[str, RequestSpan] = field(default_factory=dict)
    #: The ids of the spans below a span.
    children_by_span: dict[str, list[str]] = field(default_factory=dict)

    def merge(self, trace: str, report: dict[str, Any]) -> RequestSpan:
        span = self.spans.setdefault(span_rows.span_of(trace), RequestSpan(trace))
        before = span.parent
        span.merge(report)
        # what is above a client's request is not our span
        if span.parent != before and "root" not in report:
            self.children_by_span.setdefault(span.parent, []).append(span.id)
        return span

    def is_complete(self, root: str) -> bool:
        """True if no report is known to be missing.

        A client's request must have reached the broker, and each executed request must have its
        times.
        """
        todo = list(self.children_by_span.get(root, ()))
        seen = {root}  # a model may report circles
        while todo:
            own = todo.pop()
            span = self.spans.get(own)
            if span is None or own in seen:
                continue
            seen.add(own)
            if span.was_executed and "COMPUTE_END" not in span.marks:
                return False
            todo += self.children_by_span.get(own, ())
        return len(seen) > 1

    def pop_tree(self, root: str) -> RequestSpan:
        """Take a span with all spans below it."""
        top = self.spans.pop(root)
        todo = [top]
        while todo:
            span = todo.pop()
            ids = self.children_by_span.pop(span.id, ())
            span.children = [self.spans.pop(own) for own in ids if own in self.spans]
            todo += span.children
        return top


class TraceAssembler:
    def __init__(self) -> None:
        self._pending: dict[str, _PendingTrace] = {}
        self._spans = 0
        self._bytes = 0
        #: When each trace is complete: (time, order, trace id, span id).
        self._due_traces: list[tuple[float, int, str, str]] = []
        self._tie_breaker = itertools.count()
        self._counts_by_setting: dict[str, int] = {}
        #: Settings with traces that were counted since the last pop_counts().
        self._counted_settings: set[str] = set()
        #: Spans that were dropped, here or on their way.
        self.lost_spans = 0

    def add(self, trace: str, report: dict[str, Any], size: int, now_s: float) -> None:
        """Add a process's report of a span."""
        self.lost_spans += report.get("lost", 0)
        if "root" in report and not self._count_trace(report):
            return
        pending = self._pending.setdefault(trace[3:35], _PendingTrace())
        before = len(pending.spans)
        span = pending.merge(trace, report)
        self._spans += len(pending.spans) - before
        span.size_bytes += size
        self._bytes += size
        if "root" in report:
            span.log_frequency = report["log_frequency"]
            span.deadline_s = now_s + MAX_LINGER_S
            self._schedule_check(now_s + LINGER_S, trace[3:35], span.id)
        while self._spans > MAX_SPANS or self._bytes > MAX_BYTES:
            self._drop(next(iter(self._pending)))

    def _schedule_check(self, time_s: float, trace: str, root: str) -> None:
        heapq.heappush(self._due_traces, (time_s, next(self._tie_breaker), trace, root))

    def _count_trace(self, report: dict[str, Any]) -> bool:
        """Count a trace; False if the setting allows no more.

        Frontends cannot count them, as each knows only its own traces.
        """
        name, limit = report["root"], report["count"]
        counted = self._counts_by_setting.pop(name, 0)
        if 0 <= limit <= counted:
            self._counts_by_setting[name] = counted
            return False
        self._counts_by_setting[name] = counted + (limit >= 0)
        if limit >= 0:
            self._counted_settings.add(name)
        while len(self._counts_by_setting) > _MAX_COUNTED_SETTINGS:
            del self._counts_by_setting[next(iter(self._counts_by_setting))]
        return True

    def pop_counts(self) -> dict[str, int]:
        """Return the number of traces of each setting that has new ones since the last call."""
        names, self._counted_settings = self._counted_settings, set()
        return {name: self._counts_by_setting.get(name, 0) for name in names}

    def next_due_s(self) -> float | None:
        """Return the time at which pop_complete() may have a trace; None without any."""
        return self._due_traces[0][0] if self._due_traces else None

    def pop_complete(self, now_s: float) -> list[RequestSpan]:
        """Remove and return the complete traces in the order of their ends."""
        spans = []
        while self._due_traces and self._due_traces[0][0] <= now_s:
            _, _, trace, root = heapq.heappop(self._due_traces)
            pending = self._pending.get(trace)
            if pending is not None and root in pending.spans:
                until_s = pending.spans[root].deadline_s
                if now_s < until_s and not pending.is_complete(root):
                    self._schedule_check(min(now_s + LINGER_S, until_s), trace, root)
                    continue
                spans.append(pending.pop_tree(root))
                self._uncount(spans[-1:])
                if not pending.spans:
                    del self._pending[trace]
        return spans

    def _drop(self, trace: str) -> None:
        spans = self._pending.pop(trace).spans.values()
        self._uncount(spans)
        self.lost_spans += len(spans)

    def _uncount(self, spans: Iterable[RequestSpan]) -> None:
        """Stop counting these spans and the spans below them."""
        todo = list(spans)
        while todo:
            span = todo.pop()
            self._spans -= 1
            self._bytes -= span.size_bytes
            todo += span.children
