"""MetricFamily and Metric, which put numbers of models on the metrics page.

Calls are checked here, in Triton's words, and passed to model_metrics.py. Only the creation of a
family and value() wait, because they ask other processes.
"""

from __future__ import annotations

import enum
from typing import Any, Union

from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_stub import instance
from zmqtriton_stub.api.errors import TritonModelException
from zmqtriton_stub.broker.model_metrics import Measured, ModelMetrics
from zmqtriton_stub.forks.fork_client import ForkedMetrics

#: The metrics of the instance, in its own process or in a fork of it.
Metrics = Union[ModelMetrics, ForkedMetrics]
#: Metrics of tests that import pb_utils without a server.
_without_a_server = ModelMetrics()

_DELETED = (
    "Invalid metric operation as the corresponding 'MetricFamily' has been deleted. The "
    "'MetricFamily' object should be deleted AFTER its corresponding 'Metric' objects have been "
    "deleted."
)


class MetricKind(enum.Enum):
    COUNTER = 0
    GAUGE = 1
    HISTOGRAM = 2

    def __int__(self) -> int:
        """Return Triton's number."""
        return int(self.value)

    __index__ = __int__


def _measures() -> Metrics:
    current = instance.here()
    if current is None:
        return _without_a_server
    return current.measures if current.line is None else current.line.metrics


class _Life:
    """The common state of a family and its metrics."""

    __slots__ = ("_measures", "is_deleted", "kind", "number")

    def __init__(self, measures: Metrics, number: int, kind: MetricKind) -> None:
        self._measures = measures
        self.number = number
        self.kind = kind
        self.is_deleted = False

    @property
    def measures(self) -> Metrics:
        """The metrics of this process, which may be a fork of the process that made the family."""
        return _measures() if instance.is_forked else self._measures


class MetricFamily:
    """A family, shared with other instances and models that use its name and kind."""

    COUNTER = MetricKind.COUNTER
    GAUGE = MetricKind.GAUGE
    HISTOGRAM = MetricKind.HISTOGRAM

    _life: _Life | None = None

    def __init__(self, name: str, description: str, kind: MetricKind) -> None:
        for value, cls in ((name, str), (description, str), (kind, MetricKind)):
            if not isinstance(value, cls):
                raise TypeError(f"MetricFamily takes a {cls.__name__} here, got {type(value)}")
        instance.check_is_no_program()
        measures = _measures()
        try:
            number = measures.add_family(str(name), str(description), int(kind))
        except ZmqTritonError as error:
            raise instance.refusal("Error when creating MetricFamily", error.text) from None
        self._life = _Life(measures, number, kind)

    def Metric(self, labels: Any = None, buckets: Any = None) -> Metric:
        """Return a series of the family; a histogram needs `buckets`."""
        life = self._life
        assert life is not None
        if labels is not None and not isinstance(labels, dict):
            raise TritonModelException("Failed to create metric. Labels must be a dictionary.")
        if buckets is not None and not isinstance(buckets, list):
            raise TritonModelException("Failed to create metric. Buckets must be a list.")
        if life.kind is MetricKind.HISTOGRAM:
            if buckets is None:
                raise TritonModelException("Failed to create metric. Missing required buckets.")
        elif buckets is not None:
            raise TritonModelException("Failed to create metric. Unexpected buckets found.")
        bounds = [_number(bound) for bound in buckets or ()]
        try:
            measured = life.measures.add(life.number, int(life.kind), dict(labels or {}), bounds)
        except ZmqTritonError as error:
            raise instance.refusal("Error when creating Metric", error.text) from None
        return Metric._made(life, measured)

    def __del__(self) -> None:
        life = self._life
        if life is not None:
            life.is_deleted = True
            life.measures.drop(life.number)


class Metric:
    """One series of a family; it exists as long as a reference to it does."""

    __slots__ = ("_family", "_measured")

    _family: _Life
    _measured: Measured

    def __init__(self) -> None:
        raise TypeError("c_python_backend_utils.Metric: No constructor defined!")

    @classmethod
    def _made(cls, family: _Life, measured: Measured) -> Metric:
        metric = cls.__new__(cls)
        metric._family, metric._measured = family, measured
        return metric

    def increment(self, value: float) -> None:
        """Add to a counter or a gauge."""
        value = _number(value)
        doing = "Failed to increment metric value"
        kind = self._check(doing, "Increment", MetricKind.COUNTER, MetricKind.GAUGE)
        if kind is MetricKind.COUNTER and value < 0:
            raise instance.refusal(
                doing,
                "TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by "
                "non-negative values.",
            )
        self._family.measures.change(self._measured, "add", value)

    def set(self, value: float) -> None:
        """Set a gauge."""
        value = _number(value)
        self._check("Failed to set metric value", "Set", MetricKind.GAUGE)
        self._family.measures.change(self._measured, "set", value)

    def observe(self, value: float) -> None:
        """Count a value in a histogram."""
        value = _number(value)
        self._check("Failed to observe metric value", "Observe", MetricKind.HISTOGRAM)
        self._family.measures.change(self._measured, "observe", value)

    def value(self) -> float:
        """Return the value of a counter or a gauge, over all instances."""
        doing = "Failed to get metric value"
        self._check(doing, "Value", MetricKind.COUNTER, MetricKind.GAUGE)
        try:
            return self._family.measures.value(self._measured)
        except ZmqTritonError as error:
            raise instance.refusal(doing, error.text) from None

    def _check(self, doing: str, verb: str, *kinds: MetricKind) -> MetricKind:
        """Return the family's kind; raise an error if the verb is not for that kind."""
        if self._family.is_deleted:
            raise TritonModelException(f"{doing}: {_DELETED}")
        kind = self._family.kind
        if kind not in kinds:
            raise instance.refusal(
                doing, f"TRITONSERVER_METRIC_KIND_{kind.name} does not support {verb}"
            )
        return kind

    def __del__(self) -> None:
        measured = getattr(self, "_measured", None)
        if measured is not None:
            self._family.measures.drop(measured.number)


def _number(value: Any) -> float:
    if isinstance(value, (str, bytes, bytearray)):
        raise TypeError(f"a metric takes a number, got {type(value)}")
    return float(value)
