"""The figures of an engine inside a model, on the server's page, from its Prometheus registry.

They are read in intervals, and their changes are added to the model's own metrics, so that
instances add up. A histogram gets as many values in each bucket as the engine's, with the same sum.
"""

from __future__ import annotations

import itertools
import math
import threading
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np
import triton_python_backend_utils as pb_utils

_EVERY_S = 2.0
_BOUND = "le"
#: The labels of a series, in the order of their names.
_Labels = Tuple[Tuple[str, str], ...]


class EngineMetrics:
    def __init__(self, registry: Any, prefix: str, labels: Mapping[str, str]) -> None:
        """Set up for the families with this prefix; each series gets the labels."""
        self._registry = registry
        self._prefix = prefix
        self._labels = dict(labels)
        #: Families of the server by the engine's name; None for one that the server has refused.
        self._families: Dict[str, Optional[Any]] = {}
        self._series: Dict[Tuple[str, _Labels], Any] = {}
        #: The engine's values at the last look.
        self._values: Dict[Tuple[str, _Labels], float] = {}
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="engine-metrics", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Pass on the last changes, at the end of the model."""
        self._has_ended.set()
        self._thread.join(_EVERY_S)

    def _run(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._has_ended.wait(_EVERY_S)
            for family in self._registry.collect():
                if family.name.startswith(self._prefix):
                    self._pass_on(family)

    def _pass_on(self, family: Any) -> None:
        if family.type == "histogram":
            for labels, samples in _by_series(family.samples):
                self._observe(family, labels, samples)
            return
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items()))
            if family.type == "gauge":
                series = self._series_of(sample.name, family, pb_utils.MetricFamily.GAUGE, labels)
                if series is not None:
                    series.set(sample.value)
            elif sample.name.endswith("_total"):
                series = self._series_of(sample.name, family, pb_utils.MetricFamily.COUNTER, labels)
                more = self._growth(sample.name, labels, sample.value)
                if series is not None and more:
                    series.increment(more)

    def _observe(self, family: Any, labels: _Labels, samples: Sequence[Any]) -> None:
        name, kind = family.name, pb_utils.MetricFamily.HISTOGRAM
        buckets = [sample for sample in samples if sample.name == f"{name}_bucket"]
        bounds = [float(sample.labels[_BOUND]) for sample in buckets][:-1]
        series = self._series_of(name, family, kind, labels, bounds)
        totals = [
            self._growth(name, (*labels, (_BOUND, sample.labels[_BOUND])), sample.value)
            for sample in buckets
        ]
        more = sum(
            self._growth(sample.name, labels, sample.value)
            for sample in samples
            if sample.name == f"{name}_sum"
        )
        counts = [round(now - before) for before, now in zip([0.0, *totals], totals)]
        if series is not None:
            for value in values_of(bounds, counts, more):
                series.observe(value)

    def _growth(self, name: str, labels: _Labels, value: float) -> float:
        """Return the growth since the last look; an engine that has restarted counts from 0."""
        before = self._values.get((name, labels), 0.0)
        self._values[name, labels] = value
        return value - before if value >= before else value

    def _series_of(
        self,
        name: str,
        family: Any,
        kind: Any,
        labels: _Labels,
        bounds: Optional[List[float]] = None,
    ) -> Optional[Any]:
        key = name, labels
        if key not in self._series:
            self._series[key] = self._make(name, family, kind, labels, bounds)
        return self._series[key]

    def _make(
        self, name: str, family: Any, kind: Any, labels: _Labels, bounds: Optional[List[float]]
    ) -> Optional[Any]:
        """Make a series; None if the server refuses it, which its log says once."""
        try:
            if name not in self._families:
                self._families[name] = None
                self._families[name] = pb_utils.MetricFamily(name, family.documentation, kind)
            own = self._families[name]
            if own is None:
                return None
            return own.Metric(labels={**dict(labels), **self._labels}, buckets=bounds)
        except pb_utils.TritonModelException as error:
            pb_utils.Logger.log_warn(f"{name} of the engine is not shown: {error}")
            return None


def _by_series(samples: Sequence[Any]) -> Iterator[Tuple[_Labels, List[Any]]]:
    """Yield the series of a histogram; samples of one series differ only in their bound."""

    def labels_of(sample: Any) -> _Labels:
        return tuple(sorted((k, v) for k, v in sample.labels.items() if k != _BOUND))

    for labels, of_series in itertools.groupby(sorted(samples, key=labels_of), labels_of):
        yield labels, list(of_series)


def values_of(bounds: Sequence[float], counts: Sequence[int], total: float) -> Iterator[float]:
    """Yield values that fill the buckets with these counts, and have this sum.

    All values are at the same relative place in their bucket, from its lower bound to its upper
    one. Upper bounds belong to their bucket; the last one has none.
    """
    first = min(0.0, bounds[0] - 1.0, total) if bounds else 0.0
    lows = [first, *bounds]
    highs = [*bounds, max(lows[-1] + 1.0, total)]
    lowest = sum(count * low for count, low in zip(counts, lows))
    highest = sum(count * high for count, high in zip(counts, highs))
    share = (total - lowest) / (highest - lowest) if highest > lowest else 1.0
    for count, low, high in zip(counts, lows, highs):
        value = max(low + share * (high - low), float(np.nextafter(low, math.inf)))
        yield from itertools.repeat(min(value, high), count)
