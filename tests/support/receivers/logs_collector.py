"""A collector of OpenTelemetry for a test: a thread that takes log records over OTLP/HTTP.

    with LogsCollector() as collector:
        Server(directory, options=[f"--otlp-logs={collector.url}"])
        collector.records

It reads messages with OpenTelemetry's own classes, of which the server knows nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as service

from tests.support.receivers.post_receiver import PostReceiver


class Record(NamedTuple):
    """One record as it was received."""

    text: str
    severity: str
    severity_number: int
    time_ns: int
    trace_id: str
    span_id: str
    attributes: dict[str, Any]


class LogsCollector(PostReceiver):
    def __init__(self) -> None:
        super().__init__("/v1/logs")
        #: How many records its answers refuse.
        self.rejected = 0
        self.records: list[Record] = []
        self.resources: list[dict[str, Any]] = []

    def find(self, part: str) -> Record | None:
        """Return the first record with this in its text."""
        return next((record for record in list(self.records) if part in record.text), None)

    def take(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        if path != "/v1/logs" or headers["content-type"] != "application/x-protobuf":
            return 404, b""
        if self.status != 200:
            return self.status, b""
        records, self.resources = read(body)
        self.records += records
        answer = service.ExportLogsServiceResponse()
        if self.rejected:
            answer.partial_success.rejected_log_records = self.rejected
            answer.partial_success.error_message = "no more room"
        return 200, answer.SerializeToString()


def read(body: bytes) -> tuple[list[Record], list[dict[str, Any]]]:
    """Return the records of a message, and its resources."""
    message = service.ExportLogsServiceRequest.FromString(body)
    records = [
        Record(
            raw.body.string_value,
            raw.severity_text,
            raw.severity_number,
            raw.time_unix_nano,
            raw.trace_id.hex(),
            raw.span_id.hex(),
            _attributes(raw.attributes),
        )
        for of_resource in message.resource_logs
        for of_scope in of_resource.scope_logs
        for raw in of_scope.log_records
    ]
    return records, [_attributes(each.resource.attributes) for each in message.resource_logs]


def _attributes(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
