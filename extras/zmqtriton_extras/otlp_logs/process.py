"""The process that pushes the log: `python -m zmqtriton_extras.otlp_logs.process`."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from zmqtriton.sdk.frontend import Gateway, Threads
from zmqtriton.sdk.process import Destination, prctl, run_local
from zmqtriton.sdk.wire import ZmqTritonError
from zmqtriton_extras.otlp_logs.options import LOGS, SERVICE, url
from zmqtriton_extras.otlp_metrics.pusher import POST_WITHIN_S, Exporter, Pusher
from zmqtriton_protos import message
from zmqtriton_standard.metrics.model_metrics import head
from zmqtriton_standard.tracing.otlp import add_attribute, name_source
from zmqtriton_standard.tracing.posting import PostError

_log = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0
_ALL_LINES = 1 << 30
#: The file of the last number, beside the socket, for a process that replaces this one.
_PLACE = "otlp_logs.last"
_NAME = "zmqtriton_otlp_log_lines_total"
_Request = message("otlp.ExportLogsRequest")
_SCOPE = "zmqtriton"
#: OpenTelemetry's numbers and names by our letters.
_SEVERITIES = {"V": (5, "DEBUG"), "I": (9, "INFO"), "W": (13, "WARN"), "E": (17, "ERROR")}
_SAMPLED = 1


def encode(lines: Iterable[Mapping[str, Any]], resource: Mapping[str, str]) -> bytes:
    """Encode lines of the log, as LogRing has them, as one OTLP message."""
    request = _Request()
    of_resource = request.resource_logs.add()
    of_scope = of_resource.scope_logs.add()
    name_source(of_resource, of_scope, resource, _SCOPE)
    for line in lines:
        _fill(of_scope.log_records.add(), line)
    data: bytes = request.SerializeToString()
    return data


def _fill(record: Any, line: Mapping[str, Any]) -> None:
    record.time_unix_nano = record.observed_time_unix_nano = int(line["time_s"] * 1e9)
    record.severity_number, record.severity_text = _SEVERITIES[line["level"]]
    record.body.string_value = line["text"]
    add_attribute(record.attributes, "process.pid", line["pid"])
    if line["instance"]:
        add_attribute(record.attributes, "zmqtriton.instance", line["instance"])
    else:
        add_attribute(record.attributes, "code.file.path", line["file"])
        add_attribute(record.attributes, "code.line.number", line["line"])
    if line["model"]:
        add_attribute(record.attributes, "triton.model_name", line["model"])
        add_attribute(record.attributes, "triton.model_version", line["version"])
    spans = line["traces"].split()
    if spans:
        record.trace_id = bytes.fromhex(spans[0][3:35])
        record.flags = _SAMPLED
    if len(spans) == 1:
        record.span_id = bytes.fromhex(spans[0][36:52])
    elif spans:  # a batch of several
        add_attribute(record.attributes, "zmqtriton.traceparents", " ".join(spans))


ACCEPTED, REFUSED, DROPPED = RESULTS = "accepted", "refused", "dropped"
#: Lines of one message.
_MAX_LINES = 512


class LogsExporter(Exporter):
    """Posts lines of the log, and counts their outcome. Blocks."""

    def __init__(
        self, destination: Destination, jitter: Callable[[], float] = random.random
    ) -> None:
        super().__init__("logs", "lines of the log", destination, jitter)
        self._resource = destination.resource
        #: Lines by result.
        self.lines: Counter[str] = Counter()
        #: The number of the last line that need not be sent again.
        self.after = 0

    def export(self, lines: Sequence[Mapping[str, Any]], within_s: float) -> float:
        """Post lines in order; return the pause before the rest, 0 if none is needed."""
        for begin in range(0, len(lines), _MAX_LINES):
            some = lines[begin : begin + _MAX_LINES]
            refused, reason = 0, ""
            try:
                count, reason = self.post(encode(some, self._resource), within_s)
                refused = min(max(0, count), len(some))
            except PostError as failure:
                pause_s = self.fail(str(failure), failure.is_retryable, failure.retry_after_s)
                if pause_s:
                    return pause_s
                self.lines[DROPPED] += len(some)
            except Exception as error:  # noqa: BLE001 - an edge: the next lines may be right
                _log.exception("lines of the log could not be exported")
                self.fail(str(error), False, 0.0)
                self.lines[DROPPED] += len(some)
            else:
                self.succeed(refused, reason)
                self.lines[REFUSED] += refused
                self.lines[ACCEPTED] += len(some) - refused
            self.after = some[-1]["number"]
        return 0.0


class LogsPusher(Pusher):
    """Pushes new lines of the log, and the last ones at the end."""

    def __init__(self, gateway: Gateway, listener: socket.socket) -> None:
        """Set up with a bound socket, at which the figures of this process are read."""
        super().__init__("OtlpLogs", gateway, listener, _LOOK_EVERY_S)
        server = gateway.settings.server
        destination = Destination.read(
            [("url", url({SERVICE: gateway.settings.option(SERVICE)}))],
            os.environ,
            *LOGS,
        )
        self._exporter = LogsExporter(self.with_instance(destination))
        self._place = Path(server.runtime_directory, _PLACE)
        with suppress(OSError, ValueError):
            self._exporter.after = int(self._place.read_text())

    async def push(self, within_s: float) -> float:
        exporter = self._exporter
        arguments = {"model": "", "after": exporter.after, "lines": _ALL_LINES}
        try:
            answer = await asyncio.wait_for(
                self.gateway.call("logs", arguments), min(within_s, POST_WITHIN_S)
            )
        except (ZmqTritonError, asyncio.TimeoutError) as error:
            _log.debug("no lines of the log: %r", error)
            return 0.0
        lost = answer["lost"]
        if lost:
            exporter.lines[DROPPED] += lost
            exporter.after += lost
        if not answer["lines"]:
            return 0.0
        lines = answer["lines"]
        pause_s = await Threads("exporter", 1).run(exporter.export, lines, within_s)
        with suppress(OSError):  # the directory is gone
            self._place.write_text(str(exporter.after))
        return pause_s

    def figures(self) -> list[str]:
        lines = self._exporter.lines
        return [
            *head(_NAME, "Lines of the log that were pushed to a collector, by result", "counter"),
            *(f'{_NAME}{{result="{result}"}} {lines[result]}' for result in RESULTS),
        ]


def main() -> int:
    return run_local("zmqtriton-logs", LogsPusher)


if __name__ == "__main__":
    prctl.run_program(main)
