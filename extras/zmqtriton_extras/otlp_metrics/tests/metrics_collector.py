"""A collector of OpenTelemetry for a test: a thread that takes metrics over OTLP/HTTP.

    with MetricsCollector() as collector:
        Server(directory, options=[f"--otlp-metrics={collector.url}"])
        collector.page()

It reads messages with OpenTelemetry's own classes, of which the server knows nothing.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as service
from opentelemetry.proto.metrics.v1 import metrics_pb2

from tests.support.receivers.post_receiver import PostReceiver

#: A line of Prometheus text: its name and labels.
Line = tuple[str, frozenset[tuple[str, str]]]


class Point(NamedTuple):
    """One point as it was received."""

    name: str
    #: "gauge", "sum", "histogram" or "summary".
    data: str
    prometheus_type: str
    description: str
    attributes: dict[str, str]
    #: The point itself.
    raw: Any
    is_cumulative: bool

    @property
    def has_ended(self) -> bool:
        mask = metrics_pb2.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK
        return bool(self.raw.flags & mask)


class MetricsCollector(PostReceiver):
    def __init__(self) -> None:
        super().__init__("/v1/metrics")
        #: How many points its answers refuse.
        self.rejected = 0
        #: The points of each message that it took, whatever it refused of it.
        self.messages: list[list[Point]] = []
        self.resources: list[dict[str, str]] = []
        self.headers: list[dict[str, str]] = []

    @property
    def points(self) -> list[Point]:
        return [point for message in list(self.messages) for point in message]

    def last(self, name: str, **attributes: str) -> Point | None:
        """The last point of a series; attributes that are not named do not count."""
        points = [
            point
            for point in self.points
            if point.name == name and attributes.items() <= point.attributes.items()
        ]
        return points[-1] if points else None

    def take(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        if path != "/v1/metrics" or headers["content-type"] != "application/x-protobuf":
            return 404, b""
        if self.status != 200:
            return self.status, b""
        self.headers.append(headers)
        points, self.resources = read(body)
        self.messages.append(points)
        answer = service.ExportMetricsServiceResponse()
        if self.rejected:
            answer.partial_success.rejected_data_points = self.rejected
            answer.partial_success.error_message = "no more room"
        return 200, answer.SerializeToString()


def read(body: bytes) -> tuple[list[Point], list[dict[str, str]]]:
    """Return the points of a message, and its resources."""
    message = service.ExportMetricsServiceRequest.FromString(body)
    points = [
        _point(metric, raw)
        for of_resource in message.resource_metrics
        for of_scope in of_resource.scope_metrics
        for metric in of_scope.metrics
        for raw in getattr(metric, str(metric.WhichOneof("data"))).data_points
    ]
    return points, [_attributes(each.resource.attributes) for each in message.resource_metrics]


def lines(point: Point) -> dict[Line, float]:
    """The lines of Prometheus text that say the same."""
    name, raw = point.name, point.raw
    labels = frozenset(point.attributes.items())
    if point.data in ("gauge", "sum"):
        return {(name, labels): raw.as_double}
    rows: dict[Line, float] = {
        (f"{name}_count", labels): raw.count,
        (f"{name}_sum", labels): raw.sum,
    }
    if point.data == "summary":
        for row in raw.quantile_values:
            rows[name, labels | {("quantile", f"{row.quantile:g}")}] = row.value
        return rows
    count = 0
    for bound, own in zip([*raw.explicit_bounds, math.inf], raw.bucket_counts, strict=True):
        count += own
        text = "+Inf" if bound == math.inf else f"{bound:g}"
        rows[f"{name}_bucket", labels | {("le", text)}] = count
    return rows


def _point(metric: Any, raw: Any) -> Point:
    data = metric.WhichOneof("data")
    of_kind = getattr(metric, data)
    cumulative = metrics_pb2.AGGREGATION_TEMPORALITY_CUMULATIVE
    return Point(
        metric.name,
        data,
        _attributes(metric.metadata)["prometheus.type"],
        metric.description,
        _attributes(raw.attributes),
        raw,
        getattr(of_kind, "aggregation_temporality", None) == cumulative
        and (data != "sum" or of_kind.is_monotonic),
    )


def _attributes(attributes: Any) -> dict[str, str]:
    return {each.key: each.value.string_value for each in attributes}
