"""Exports traces to a collector of OpenTelemetry, from a thread of its own.

Used by the service in place of a file. Never waits for the collector: what it does not take in time
waits in the backlog, and is lost when there is no more room. The log tells the begin and the end of
an outage, and how many spans were lost.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from zmqtriton.tracing import otlp
from zmqtriton.tracing.backlog import Backlog
from zmqtriton.tracing.destination import Destination
from zmqtriton.tracing.gathering import Span
from zmqtriton.tracing.posting import Post, PostError
from zmqtriton_floor import wall_clock

_log = logging.getLogger(__name__)

_ANSWER_WITHIN_S = 10.0
#: Between two attempts while there is an outage: the first pause, and the longest.
_PAUSE_S, _MOST_PAUSE_S = 1.0, 30.0
#: What is lost though there is no outage is told so often.
_TELL_EVERY_S = 60.0


class OpenTelemetry:
    def __init__(self, destination: Destination) -> None:
        self._where = destination.shown
        self._resource = destination.resource
        self._spans = otlp.Spans()
        self._backlog = Backlog(
            destination.most_waiting, destination.most_sent, destination.delay_s
        )
        self._post = Post(destination)
        #: How long an outage makes the next attempt wait; 0: there is none.
        self._pause_s = 0.0
        #: Spans that are being sent.
        self._under_way = 0
        #: When the thread must have ended.
        self._end_s = float("inf")
        self._told_s = -_TELL_EVERY_S
        self._thread = threading.Thread(target=self._run, name="exporter", daemon=True)
        self._thread.start()

    def keep(self, trace: Span) -> None:
        """Raises TypeError or ValueError for what cannot be sent."""
        self._backlog.put(self._spans.of(trace, wall_clock.offset_ns()))

    def close(self, within_s: float) -> None:
        """Sends what waits, as far as there is time."""
        self._end_s = time.monotonic() + within_s
        self._backlog.end()
        self._thread.join(within_s)
        lost = self._backlog.lost() + self._under_way + len(self._backlog)
        if lost:
            _log.warning("%d spans of traces were not exported to %s", lost, self._where)

    def _run(self) -> None:
        while batch := self._backlog.take():
            self._under_way = len(batch)
            left_s = max(0.1, self._end_s - time.monotonic())
            try:
                data = otlp.encode(batch, self._resource)
                self._heed(self._post(data, min(_ANSWER_WITHIN_S, left_s)))
            except PostError as failure:
                self._have_failed(batch, failure)
                if self._end_s < float("inf"):
                    return
            except Exception:  # noqa: BLE001 - an edge: nobody else exports what comes after
                self._backlog.lose(len(batch))
                _log.exception("%d spans of traces could not be exported", len(batch))
            else:
                self._have_sent()
            self._under_way = 0

    def _have_failed(self, batch: list[Any], failure: PostError) -> None:
        if not self._pause_s:
            _log.warning("traces cannot be exported to %s: %s", self._where, failure)
        self._pause_s = min(max(_PAUSE_S, self._pause_s * 2), _MOST_PAUSE_S)
        if failure.may_pass:
            self._backlog.give_back(batch, self._pause_s)
        else:
            self._backlog.lose(len(batch))
        self._under_way = 0

    def _have_sent(self) -> None:
        if self._pause_s:
            self._pause_s = 0.0
            lost = self._backlog.lost()
            _log.info("traces are exported to %s again; %d spans were lost", self._where, lost)
        elif time.monotonic() - self._told_s >= _TELL_EVERY_S and (lost := self._backlog.lost()):
            self._told_s = time.monotonic()
            _log.warning("%d spans of traces were lost, there were too many", lost)

    def _heed(self, answer: bytes) -> None:
        """Collectors may take a part of a message."""
        try:
            count, reason = otlp.refused(answer)
        except ValueError:
            return  # some answer in words, whatever they were sent
        if count > 0:
            self._backlog.lose(count)
            _log.warning("%s did not take %d spans of traces: %s", self._where, count, reason)
