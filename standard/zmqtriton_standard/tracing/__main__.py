"""The tracing process, which the supervisor starts if requests may be traced.

Has the socket, the lifeline and the clock; hands complete traces to their destination.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import select
import signal
import time
from typing import Any, Protocol

import zmq

from zmqtriton.sdk.process import Lifeline, local_service_path, offset_ns, prctl, spans, zmq_sockets
from zmqtriton.sdk.wire import errors, logs, wire
from zmqtriton_standard.tracing.exemplars import EXEMPLARS, Exemplars, ExemplarSocket
from zmqtriton_standard.tracing.gathering import RequestSpan, TraceAssembler
from zmqtriton_standard.tracing.trace_file import TraceFile

_log = logging.getLogger(__name__)

#: Maximum number of spans that are read before complete traces are written.
_MAX_SPANS_PER_TURN = 1000
#: Maximum characters of a setting's name that is counted. Models can send any name to this
#: process; a real one contains a model's name.
_MAX_NAME = 4096
#: Minimum seconds between two log lines about the same failure.
_WARN_INTERVAL_S = 60.0
_TRACE_CONTEXT = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01( [ -~\t]+)?")
#: The limit for what is still exported at the end.
_CLOSE_WITHIN_S = 2.0


class Sink(Protocol):
    """A destination for traces."""

    def store(self, trace: RequestSpan) -> None:
        """Store a trace.

        Raises OSError if there is no room, TypeError or ValueError if it is malformed.
        """

    def close(self, within_s: float) -> None: ...


class Service:
    """Runs until its lifeline ends or the supervisor says Stop."""

    def __init__(self, lifeline: Lifeline) -> None:
        self._lifeline = lifeline
        self._gathering = TraceAssembler()
        self._socket: Any = None
        self._sink: Sink
        self._exemplars = Exemplars()
        #: None for traces that have no ids.
        self._exemplar_socket: ExemplarSocket | None = None
        self._is_over = False
        self._left_s = _CLOSE_WITHIN_S
        self._warned_at_s: dict[str, float] = {}
        self._failed = 0

    def run(self) -> int:
        poller = select.poll()
        poller.register(self._lifeline, select.POLLIN)
        while not self._is_over:
            due_s = self._gathering.next_due_s()
            wait_s = None if due_s is None else max(0.0, due_s - time.monotonic())
            if self._socket is None or not zmq_sockets.has_input(self._socket):
                poller.poll(None if wait_s is None else wait_s * 1000 + 1)
            self._receive_messages(poller)
            self._read()
            if self._exemplar_socket is not None:
                self._exemplar_socket.answer()
            self._report_counts()
            self._write(time.monotonic())
        if self._socket is not None:
            while self._read():
                pass
            self._write(float("inf"))
            self._sink.close(self._left_s)
        if self._exemplar_socket is not None:
            self._exemplar_socket.close()
        return 0

    def _receive_messages(self, poller: select.poll) -> None:
        for message, _ in self._lifeline.receive():
            if type(message) is wire.Bootstrap:
                self._take_bootstrap(message)
                poller.register(self._socket.get(zmq.FD), select.POLLIN)
                if self._exemplar_socket is not None:
                    poller.register(self._exemplar_socket.listener, select.POLLIN)
            elif type(message) is wire.Shutdown:
                self._is_over = True
                self._left_s = min(self._left_s, message.within_ms / 1000)
        self._is_over = self._is_over or self._lifeline.ended

    def _take_bootstrap(self, bootstrap: wire.Bootstrap) -> None:
        settings, self._socket = spans.open_receiver(bootstrap)
        logs.configure(settings.log)
        self._sink = _sink(settings.mode, settings.file, settings.opentelemetry)
        if settings.mode == "opentelemetry":
            self._exemplar_socket = ExemplarSocket(
                local_service_path(bootstrap.directory, EXEMPLARS), self._exemplars
            )

    def _read(self) -> bool:
        """Read some spans; False when no more are waiting."""
        for _ in range(_MAX_SPANS_PER_TURN if self._socket is not None else 0):
            if not zmq_sockets.has_input(self._socket):
                return False
            (frame,) = zmq_sockets.receive(self._socket)[:1]
            try:
                message = wire.decode(frame)
                if type(message) is not wire.Span or not _TRACE_CONTEXT.fullmatch(message.trace):
                    raise errors.ProtocolError("no span")
                self._gathering.add(
                    message.trace, json.loads(message.details), len(frame), time.monotonic()
                )
            except (errors.ProtocolError, ValueError, TypeError, KeyError, AttributeError) as error:
                # models may send here what they like
                self._warn("dropped an invalid part of a trace: %s", error)
        return self._socket is not None

    def _report_counts(self) -> None:
        """Report the number of traces to the supervisor; its settings show how many are left."""
        counts = self._gathering.pop_counts()
        counts = {name: count for name, count in counts.items() if len(name) <= _MAX_NAME}
        if counts:
            self._lifeline.send(wire.Call(0, "trace.counted", json.dumps({"counts": counts})))

    def _write(self, now_s: float) -> None:
        for trace in self._gathering.pop_complete(now_s):
            self._store_trace(trace)
        if self._gathering.lost_spans:
            lost, self._gathering.lost_spans = self._gathering.lost_spans, 0
            self._warn("parts of traces were lost, there were too many: %s", lost)

    def _store_trace(self, trace: RequestSpan) -> None:
        try:
            self._sink.store(trace)
            if self._exemplar_socket is not None:
                self._exemplars.add(trace, offset_ns())
        except OSError as error:
            self._warn("a trace could not be written: %s", error.strerror)
        except (TypeError, ValueError) as error:
            self._warn("dropped an invalid trace: %s", error)

    def _warn(self, text: str, what: object) -> None:
        now_s = time.monotonic()
        if now_s - self._warned_at_s.get(text, -_WARN_INTERVAL_S) >= _WARN_INTERVAL_S:
            self._warned_at_s[text] = now_s
            _log.warning(text, what)


def _sink(mode: str, file: str, opentelemetry: tuple[tuple[str, str], ...]) -> Sink:
    if mode == "triton":
        return TraceFile(file)
    # only now, since it costs memory
    from zmqtriton.sdk.process import Destination
    from zmqtriton_standard.tracing.open_telemetry import OpenTelemetryExporter

    return OpenTelemetryExporter(Destination.read(opentelemetry, os.environ))


def main() -> int:
    parser = argparse.ArgumentParser(prog="zmqtriton_standard.tracing")
    parser.add_argument("--lifeline", type=int, required=True)
    arguments = parser.parse_args()
    prctl.set_name("zmqtriton-tracer")
    prctl.hide_memory()
    prctl.die_with(os.getppid())
    # It ends when the supervisor says so or dies, never by a signal to the whole group.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return Service(Lifeline.inherited(arguments.lifeline)).run()


if __name__ == "__main__":
    prctl.run_program(main)
