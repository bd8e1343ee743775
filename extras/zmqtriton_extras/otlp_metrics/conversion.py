"""Families of the page of metrics as messages of OpenTelemetry, by its rules for Prometheus.

Counters become cumulative monotonic sums; gauges, histograms and summaries keep their kinds. Names
are unchanged, except for OpenTelemetry's own. Each series has a start time: the time of the last
page without the series, or with a higher value. On the first page no start is known, so the time of
that page is sent. The end of a series is sent once. Does no I/O.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from zmqtriton_protos import message
from zmqtriton_standard.tracing.otlp import add_attribute, name_source

_Request = message("otlp.ExportMetricsRequest")
_SCOPE = "zmqtriton"
_CUMULATIVE = 2
#: No value is recorded any more.
_ENDED = 1
#: Names and units of OpenTelemetry's own metrics, by the names that they have on the page.
_OF_GEN_AI = {
    "gen_ai_client_token_usage": ("gen_ai.client.token.usage", "{token}"),
    "gen_ai_server_time_to_first_token_seconds": ("gen_ai.server.time_to_first_token", "s"),
    "gen_ai_server_time_per_output_token_seconds": ("gen_ai.server.time_per_output_token", "s"),
}
#: Collectors take messages of 20 MiB, and a point of a histogram may have 6 KiB.
_MAX_POINTS = 3000
#: Labels as pairs, in the order of the text. One with an empty value is left out: it means the
#: same as a missing one for Prometheus.
Labels = tuple[tuple[str, str], ...]

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
_SUFFIXES = {
    "histogram": ("_bucket", "_sum", "_count"),
    "summary": ("", "_sum", "_count"),
}


class Sample(NamedTuple):
    #: Suffix of the sample's name after the family's: "", "_bucket", "_sum" or "_count".
    suffix: str
    labels: Labels
    value: float


@dataclass
class Family:
    name: str
    #: Type of the `# TYPE` line, such as "counter"; "unknown" without one.
    kind: str
    help: str
    samples: list[Sample] = field(default_factory=list)


def parse(text: str) -> list[Family]:
    """Return the families of a page. Raises ValueError for a malformed line."""
    families: list[Family] = []
    help_text = ""
    for line in text.split("\n"):
        if line.startswith("# TYPE "):
            name, _, kind = line[7:].partition(" ")
            families.append(Family(name, kind, help_text))
            help_text = ""
        elif line.startswith("# HELP "):
            help_text = _unescape(line[7:].partition(" ")[2])
        elif line and not line.startswith("#"):
            _add_sample(families, line)
    return families


def _add_sample(families: list[Family], line: str) -> None:
    match = _SAMPLE.fullmatch(line)
    if match is None:
        raise ValueError(f"no line of metrics: {line[:100]}")
    name, labels, value = match.groups()
    family = families[-1] if families else None
    suffix = name.removeprefix(family.name) if family is not None else ""
    if (
        family is None
        or not name.startswith(family.name)
        or suffix not in _SUFFIXES.get(family.kind, ("",))
    ):
        family, suffix = Family(name, "unknown", ""), ""
        families.append(family)
    family.samples.append(Sample(suffix, tuple(_labels(labels or "")), float(value)))


def _labels(text: str) -> Iterator[tuple[str, str]]:
    for key, value in _LABEL.findall(text):
        if value:
            yield key, _unescape(value)


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda escape: "\n" if escape[1] == "n" else escape[1], text)


class _Key(NamedTuple):
    """The identity of a series."""

    name: str
    kind: str
    labels: Labels


@dataclass
class _Point:
    #: Upper bounds of a histogram, or quantiles of a summary, with their values.
    rows: list[tuple[float, float]] = field(default_factory=list)
    value: float = 0.0
    count: float | None = None
    sum: float | None = None


class MetricsConverter:
    def __init__(self, resource: Mapping[str, str]) -> None:
        """Set up; `resource` are attributes of the server."""
        self._resource = resource
        #: The last value of each cumulative series, and its start.
        self._series: dict[_Key, tuple[float, int]] = {}
        #: The time of the last page.
        self._before_ns = 0
        #: The series of the last page, and of the last one that was accepted.
        self._present: set[_Key] = set()
        self._accepted: set[_Key] = set()

    def convert(self, families: Iterable[Family], now_ns: int) -> Iterator[tuple[bytes, int]]:
        """Yield the messages of a page, each with the number of its points."""
        series, before_ns = self._series, self._before_ns or now_ns
        self._series, self._before_ns, self._present = {}, now_ns, set()
        request = _Messages(self._resource)
        for family in families:
            for labels, point in _points(family).items():
                key = _Key(family.name, family.kind, labels)
                if key in self._present:
                    continue  # the first one counts
                self._present.add(key)
                start_ns = 0
                if family.kind in ("counter", "histogram", "summary"):
                    value = point.value if point.count is None else point.count
                    last, start_ns = series.get(key, (math.inf, 0))
                    start_ns = before_ns if value < last else start_ns
                    self._series[key] = value, start_ns
                added = request.add(key, family.help, start_ns, now_ns)
                _fill(added, family.kind, point)
                yield from request.take(_MAX_POINTS)
        for key in sorted(self._accepted - self._present):
            request.add(key, "", 0, now_ns).flags = _ENDED
            yield from request.take(_MAX_POINTS)
        yield from request.take(1)

    def accepted(self) -> None:
        """Record that the collector has accepted all messages of the last page."""
        self._accepted = self._present


class _Messages:
    """The message under construction."""

    def __init__(self, resource: Mapping[str, str]) -> None:
        self._resource = resource
        self._begin()

    def _begin(self) -> None:
        self._request = _Request()
        self._points = 0
        self._metric: Any = None
        #: Name of the current metric on the page.
        self._name = ""
        of_resource = self._request.resource_metrics.add()
        self._scope = of_resource.scope_metrics.add()
        name_source(of_resource, self._scope, self._resource, _SCOPE)

    def add(self, key: _Key, description: str, start_ns: int, now_ns: int) -> Any:
        """Add an empty point, which the caller fills."""
        metric = self._metric
        if metric is None or self._name != key.name:
            self._name = key.name
            name, unit = _OF_GEN_AI.get(key.name, (key.name, ""))
            metric = self._metric = self._scope.metrics.add(
                name=name, description=description, unit=unit
            )
            add_attribute(metric.metadata, "prometheus.type", key.kind)
        self._points += 1
        added = _data(metric, key.kind).data_points.add(
            start_time_unix_nano=start_ns, time_unix_nano=now_ns
        )
        for name, value in key.labels:
            if key.name in _OF_GEN_AI:
                name = name.replace("_", ".").replace("gen.ai", "gen_ai", 1)
            add_attribute(added.attributes, name, value)
        return added

    def take(self, least: int) -> Iterator[tuple[bytes, int]]:
        """Yield the message, and begin the next, if it has at least this many points."""
        if self._points >= least:
            yield self._request.SerializeToString(), self._points
            self._begin()


def _data(metric: Any, kind: str) -> Any:
    if kind == "counter":
        metric.sum.aggregation_temporality, metric.sum.is_monotonic = _CUMULATIVE, True
        return metric.sum
    if kind == "histogram":
        metric.histogram.aggregation_temporality = _CUMULATIVE
        return metric.histogram
    return metric.summary if kind == "summary" else metric.gauge


def _fill(target: Any, kind: str, point: _Point) -> None:
    if kind not in ("histogram", "summary"):
        target.as_double = point.value
        return
    target.count = int(point.count or 0)
    if point.sum is not None:
        target.sum = point.sum
    rows = sorted(point.rows, key=lambda row: row[0])
    if kind == "summary":
        for quantile, value in rows:
            target.quantile_values.add(quantile=quantile, value=value)
        return
    bounds = [bound for bound, _ in rows if bound < math.inf]
    counts = [int(count) for bound, count in rows if bound < math.inf] + [target.count]
    target.explicit_bounds.extend(bounds)
    target.bucket_counts.extend(
        max(0, count - below) for below, count in zip([0, *counts], counts, strict=False)
    )


def _points(family: Family) -> dict[Labels, _Point]:
    """Return the points of a family; all lines of a histogram or summary form one point."""
    points: dict[Labels, _Point] = {}
    is_single = family.kind not in ("histogram", "summary")
    row_label = "le" if family.kind == "histogram" else "quantile"
    for suffix, labels, value in family.samples:
        if is_single:
            points.setdefault(labels, _Point(value=value))
            continue
        row = dict(labels).get(row_label, "")
        point = points.setdefault(tuple(p for p in labels if p[0] != row_label), _Point())
        if suffix == "_count":
            point.count = value
        elif suffix == "_sum":
            point.sum = value
        elif row:
            point.rows.append((float(row), value))
    return points if is_single else {k: p for k, p in points.items() if p.count is not None}
