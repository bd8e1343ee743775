"""Posts lines of the log to a collector, and counts what becomes of them. Blocks."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from zmqtriton.otlp_destination import Destination
from zmqtriton_addons.otlp_metrics.outages import Exporter
from zmqtriton_addons.tracing.otlp import add_attribute, name_source
from zmqtriton_addons.tracing.posting import PostError
from zmqtriton_protos import message

_Request = message("otlp.ExportLogsRequest")
_SCOPE = "zmqtriton"
#: OpenTelemetry's numbers and names by our letters.
_SEVERITIES = {"V": (5, "DEBUG"), "I": (9, "INFO"), "W": (13, "WARN"), "E": (17, "ERROR")}
_SAMPLED = 1


def encode(lines: Iterable[Mapping[str, Any]], resource: Mapping[str, str]) -> bytes:
    """Encode one message with these lines, which are those of LogRing."""
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


_log = logging.getLogger(__name__)

ACCEPTED, REFUSED, DROPPED = RESULTS = "accepted", "refused", "dropped"
#: Lines of one message.
_MAX_LINES = 512


class LogsExporter(Exporter):
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
