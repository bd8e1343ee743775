"""Lines of the log as LogRecords of OpenTelemetry. Does no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from zmqtriton_addons.tracing.otlp import add_attribute
from zmqtriton_floor import __version__
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
    for key, value in resource.items():
        add_attribute(of_resource.resource.attributes, key, value)
    of_scope = of_resource.scope_logs.add()
    of_scope.scope.name = _SCOPE
    of_scope.scope.version = __version__
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
