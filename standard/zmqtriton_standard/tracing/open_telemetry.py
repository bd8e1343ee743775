"""Exports traces to an OpenTelemetry collector, from a thread of its own.

The rest of the process never waits for the collector: spans that it does not take in time wait in
the backlog, and are lost when there is no more room. The log reports the begin and the end of an
outage, and how many spans were lost.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from zmqtriton.sdk.process import Destination, offset_ns
from zmqtriton_standard.tracing import otlp
from zmqtriton_standard.tracing.gathering import RequestSpan
from zmqtriton_standard.tracing.posting import PostError, poster_to

_log = logging.getLogger(__name__)

_ANSWER_WITHIN_S = 10.0
#: The pause between two attempts during an outage: the first one, and the longest.
_PAUSE_S, _MAX_PAUSE_S = 1.0, 30.0
#: Minimum seconds between two log lines about lost spans, if the collector answers.
_WARN_INTERVAL_S = 60.0


class OpenTelemetryExporter:
    def __init__(self, destination: Destination) -> None:
        self._public_url = destination.public_url
        self._resource = destination.resource
        self._converter = otlp.SpanConverter()
        self._backlog = SpanBacklog(
            destination.max_queue_size, destination.max_batch_size, destination.export_delay_s
        )
        self._post = poster_to(destination)
        #: The pause before the next attempt in an outage; 0 without one.
        self._pause_s = 0.0
        #: Spans that are being sent.
        self._under_way = 0
        #: Time by which the thread must have ended.
        self._end_s = float("inf")
        self._last_warning_s = -_WARN_INTERVAL_S
        self._thread = threading.Thread(target=self._run, name="exporter", daemon=True)
        self._thread.start()

    def store(self, trace: RequestSpan) -> None:
        """Convert and queue a trace. Raises TypeError or ValueError for an unsendable one."""
        self._backlog.add(self._converter.convert(trace, offset_ns()))

    def close(self, within_s: float) -> None:
        """Send waiting traces, as far as there is time."""
        self._end_s = time.monotonic() + within_s
        self._backlog.close()
        self._thread.join(within_s)
        lost = self._backlog.pop_lost_count() + self._under_way + len(self._backlog)
        if lost:
            _log.warning("%d spans of traces were not exported to %s", lost, self._public_url)

    def _run(self) -> None:
        while batch := self._backlog.take_batch():
            self._under_way = len(batch)
            left_s = max(0.1, self._end_s - time.monotonic())
            try:
                self._check_partial_success(
                    self._post(otlp.encode(batch, self._resource), min(_ANSWER_WITHIN_S, left_s))
                )
            except PostError as failure:
                self._handle_failure(batch, failure)
                if self._end_s < float("inf"):
                    return
            except Exception:  # noqa: BLE001 - an edge: nobody else exports what comes after
                self._backlog.count_lost(len(batch))
                _log.exception("%d spans of traces could not be exported", len(batch))
            else:
                self._handle_success()
            self._under_way = 0

    def _handle_failure(self, batch: list[Any], failure: PostError) -> None:
        if not self._pause_s:
            _log.warning("traces cannot be exported to %s: %s", self._public_url, failure)
        self._pause_s = min(max(_PAUSE_S, self._pause_s * 2), _MAX_PAUSE_S)
        if failure.is_retryable:
            self._backlog.requeue(batch, self._pause_s)
        else:
            self._backlog.count_lost(len(batch))
        self._under_way = 0

    def _handle_success(self) -> None:
        if self._pause_s:
            self._pause_s = 0.0
            lost = self._backlog.pop_lost_count()
            _log.info("traces are exported to %s again; %d spans were lost", self._public_url, lost)
        elif time.monotonic() - self._last_warning_s >= _WARN_INTERVAL_S and (
            lost := self._backlog.pop_lost_count()
        ):
            self._last_warning_s = time.monotonic()
            _log.warning("%d spans of traces were lost, there were too many", lost)

    def _check_partial_success(self, answer: bytes) -> None:
        """Log the spans that the collector has rejected, if its answer names some."""
        count, reason = otlp.parse_rejected(answer)
        if count > 0:
            self._backlog.count_lost(count)
            _log.warning("%s did not take %d spans of traces: %s", self._public_url, count, reason)


class SpanBacklog:
    """Queue of spans for the export; beyond a limit the oldest are dropped.

    Two threads use it: one assembles traces, the other sends spans to the collector.
    """

    def __init__(self, max_waiting: int, max_sent: int, delay_s: float) -> None:
        self._max_waiting = max_waiting
        self._max_sent = max_sent
        self._delay_s = delay_s
        self._spans: deque[Any] = deque()
        self._condition = threading.Condition()
        #: When the first waiting span is sent, if there are not enough for a full message before.
        self._due_s = 0.0
        #: Nothing is sent before, however many wait.
        self._paused_until_s = 0.0
        self._is_over = False
        self._lost_count = 0

    def add(self, spans: Iterable[Any]) -> None:
        with self._condition:
            if not self._spans:
                self._due_s = time.monotonic() + self._delay_s
            self._spans.extend(spans)
            self._drop()
            self._condition.notify()

    def requeue(self, spans: list[Any], pause_s: float) -> None:
        """Put spans back that could not be sent, but may be accepted later."""
        with self._condition:
            self._spans.extendleft(reversed(spans))
            self._drop()
            self._paused_until_s = time.monotonic() + pause_s

    def close(self) -> None:
        """Let waiting spans be taken at once, and accept no more."""
        with self._condition:
            self._is_over = True
            self._condition.notify()

    def take_batch(self) -> list[Any]:
        """Wait for the next spans to send, and take them; an empty list at the end."""
        with self._condition:
            while not self._is_over and (wait_s := self._wait_s()) != 0:
                self._condition.wait(wait_s)
            taken = [self._spans.popleft() for _ in range(min(len(self._spans), self._max_sent))]
            self._due_s = time.monotonic() + self._delay_s
            return taken

    def count_lost(self, number: int) -> None:
        with self._condition:
            self._lost_count += number

    def pop_lost_count(self) -> int:
        """Return the number of spans that were lost since the last call."""
        with self._condition:
            lost, self._lost_count = self._lost_count, 0
            return lost

    def __len__(self) -> int:
        return len(self._spans)

    def _wait_s(self) -> float | None:
        """Return the seconds until the next message is due; None without spans."""
        if not self._spans:
            return None
        due_s = max(
            self._paused_until_s, 0.0 if len(self._spans) >= self._max_sent else self._due_s
        )
        return max(0.0, due_s - time.monotonic())

    def _drop(self) -> None:
        while len(self._spans) > self._max_waiting:
            self._spans.popleft()
            self._lost_count += 1
