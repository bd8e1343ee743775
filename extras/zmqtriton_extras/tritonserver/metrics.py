"""MetricFamily and Metric: a program's own numbers, next to the server's in `metrics()`.

As in Triton they belong to the process, so each of its servers shows them.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

from zmqtriton_extras.tritonserver.enums import InvalidArgumentError, MetricKind, UnsupportedError
from zmqtriton_standard.metrics.model_metrics import render

_lock = threading.Lock()


class _Series:
    """The value that all metrics of a family with the same labels share."""

    def __init__(self, labels: dict[str, str]) -> None:
        self.labels = labels
        self.value = 0.0


class _Family:
    """The state that all families of one name share."""

    def __init__(self, kind: MetricKind, name: str, description: str) -> None:
        self.kind = kind
        self.name = name
        self.description = description
        self.series: weakref.WeakValueDictionary[tuple[tuple[str, str], ...], _Series]
        self.series = weakref.WeakValueDictionary()


#: Families by name; one is dropped when it is no longer referenced.
_families: weakref.WeakValueDictionary[str, _Family] = weakref.WeakValueDictionary()


class MetricFamily:
    """A family of metrics, shared with others of its name and kind."""

    def __init__(self, kind: MetricKind, name: str, description: str) -> None:
        """Join the family, or make it. Raises InvalidArgumentError if it is of another kind."""
        with _lock:
            family = _families.get(name)
            if family is None:
                family = _families[name] = _Family(kind, name, description)
        if family.kind is not kind:
            raise InvalidArgumentError("Family name already exists with different type")
        self._shared = family

    def series(self, labels: dict[str, str]) -> Any:
        """Return the value with these labels, which exists as long as a metric refers to it."""
        with _lock:
            key = tuple(sorted(labels.items()))
            found = self._shared.series.get(key)
            if found is None:
                found = self._shared.series[key] = _Series(labels)
            return found

    @property
    def kind(self) -> MetricKind:
        return self._shared.kind


class Metric:
    """A number of a family, told apart by labels."""

    def __init__(self, family: MetricFamily, labels: dict[str, str] | None = None) -> None:
        self._family = family
        self._series = family.series(dict(labels or {}))

    @property
    def kind(self) -> MetricKind:
        return self._family.kind

    @property
    def value(self) -> float:
        return float(self._series.value)

    def increment(self, value: float) -> None:
        """Add to the value. Raises InvalidArgumentError for a counter that would fall."""
        if self.kind is MetricKind.COUNTER and value < 0:
            raise InvalidArgumentError(
                "TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by "
                "non-negative values."
            )
        with _lock:
            self._series.value += value

    def set_value(self, value: float) -> None:
        """Set a gauge. Raises UnsupportedError for a counter."""
        if self.kind is not MetricKind.GAUGE:
            raise UnsupportedError("TRITONSERVER_METRIC_KIND_COUNTER does not support Set")
        with _lock:
            self._series.value = float(value)


def page() -> str:
    """Return the numbers of this process as Prometheus reads them."""
    return render(
        [
            {
                "name": family.name,
                "description": family.description,
                "kind": family.kind.value,
                "series": [
                    {"labels": one.labels, "value": one.value} for one in [*family.series.values()]
                ],
            }
            for _, family in sorted(_families.items())
        ]
    )
