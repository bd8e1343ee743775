"""Metrics of the models' own: families, and series shared by all instances that hold them.

A pure state machine. The service passes on stubs' messages, the core reports deaths, and the
metrics process gets all families with the statistics. A series exists while a metric object of a
model holds it; the amounts that a holder has added stay when the holder ends.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any

from zmqtriton.broker.outbox import Outbox
from zmqtriton_floor import metrics, wire
from zmqtriton_floor.errors import AlreadyExists, NotFound, ProtocolError, ZmqTritonError

#: The label values of a series, ordered by label name.
Labels = tuple[tuple[str, str], ...]


class Series:
    """One line of the metrics page, or the lines of one histogram."""

    def __init__(self, labels: Labels, buckets: list[float]) -> None:
        self.labels = labels
        #: Upper bounds of all buckets except the last one.
        self.buckets = buckets
        self.holders: set[MetricHandle] = set()
        #: The sum of a counter or of a histogram's observations, or the value that a gauge was set
        #: to.
        self.value = 0.0
        #: Sum of the changes to a gauge since it was last set.
        self.more = 0.0
        #: Time when the gauge was last set, by the machine's clock.
        self.set_ns = 0
        #: Number of observations in each bucket; the last bucket is for those above all bounds.
        self.counts = [0] * (len(buckets) + 1)


@dataclass(eq=False)
class Family:
    name: str
    description: str
    kind: int
    #: The models' metric objects that hold it: their process and their number there.
    holders: set[tuple[int, int]] = field(default_factory=set)
    series: dict[Labels, Series] = field(default_factory=dict)


class MetricHandle:
    """A metric object of a model."""

    def __init__(self, family: Family, series: Series, buckets: list[float]) -> None:
        self.family = family
        self.series = series
        #: Buckets of the series that the object's own buckets fall into. The bounds of the series
        #: are those of its first holder.
        self.places = [bisect_left(series.buckets, bound) for bound in [*buckets, inf]]


@dataclass(eq=False)
class StubMetrics:
    """The families and metrics of one stub."""

    families: dict[int, Family] = field(default_factory=dict)
    metrics: dict[int, MetricHandle] = field(default_factory=dict)


class ReportedMetrics:
    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._families: dict[str, Family] = {}
        self._processes: dict[int, StubMetrics] = {}
        self._changes: dict[str, Callable[..., None]] = {
            "family": self._add_family,
            "metric": self._add_metric,
            "add": self._add,
            "set": self._set,
            "was": self._restore_gauge,
            "observed": self._observed,
            "drop": self._drop,
        }

    def take_call(self, serial: int, call: wire.Call) -> None:
        """Process a change or a question of a stub.

        A call with a number is answered; other calls only if they are refused.
        """
        try:
            arguments = json.loads(call.arguments)
        except (ValueError, RecursionError):
            raise ProtocolError("Call: the arguments are not valid JSON") from None
        error: ZmqTritonError | None = None
        result = 0.0
        try:
            if call.verb == "measure":
                error = self._take(serial, arguments)
            elif call.verb == "value":
                result = self._value(serial, arguments)
            elif call.verb == "family":
                if arguments not in self._process(serial).families:
                    raise NotFound("Family name already exists with different type")
            else:
                raise ProtocolError(f"Call: '{call.verb}' cannot be called by a stub")
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
            raise ProtocolError(f"Call: invalid arguments for '{call.verb}'") from None
        except NotFound as refusal:
            error = refusal
        if call.id or error:
            code, text = (error.number, error.text) if error else (0, "")
            answer = wire.CallResult(call.id, code, text, json.dumps(result))
            self._outbox.answers.append((serial, answer))

    def forget_peer(self, serial: int) -> None:
        """Drop the metric objects of a dead process."""
        process = self._processes.pop(serial, None)
        if process is not None:
            for holder in process.metrics.values():
                self._let_go(holder)
            for number, family in process.families.items():
                self._leave(family, (serial, number))

    def page(self) -> list[dict[str, Any]]:
        """Return all families for the metrics process, oldest first."""
        return [
            {
                "name": family.name,
                "description": family.description,
                "kind": family.kind,
                "series": [_describe(family.kind, series) for series in family.series.values()],
            }
            for family in self._families.values()
        ]

    # ---------------------------------------------------------------- changes

    def _take(self, serial: int, changes: Any) -> ZmqTritonError | None:
        """Apply changes and return the first refusal.

        Changes after a refused one are applied all the same.
        """
        process = self._processes.setdefault(serial, StubMetrics())
        refusal: ZmqTritonError | None = None
        for verb, number, *details in changes:
            if type(number) is not int:
                raise ValueError("a change without a number")
            try:
                self._changes[verb](serial, process, number, *details)
            except ZmqTritonError as error:
                refusal = refusal or error
        return refusal

    def _add_family(
        self, serial: int, process: StubMetrics, number: int, name: str, text: str, kind: int
    ) -> None:
        if number in process.families:
            return
        metrics.check_count(len(process.families) + len(process.metrics))
        metrics.check_family(name, text, kind)
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = Family(name, text, kind)
        elif family.kind != kind:
            raise AlreadyExists("Family name already exists with different type")
        family.holders.add((serial, number))
        process.families[number] = family

    def _add_metric(
        self,
        _: int,
        process: StubMetrics,
        number: int,
        of: int,
        labels: dict[str, str],
        bounds: Any,
    ) -> None:
        family = process.families.get(of)
        if family is None or number in process.metrics:
            return  # the object was refused, and its model was told then
        metrics.check_count(len(process.families) + len(process.metrics))
        buckets = [float(bound) for bound in bounds]
        metrics.check_metric(family.kind, labels, buckets)
        key = tuple(sorted(labels.items()))
        series = family.series.get(key)
        if series is None:
            # A second holder may ask for other buckets; those of the first one stay.
            series = family.series[key] = Series(key, buckets)
        holder = process.metrics[number] = MetricHandle(family, series, buckets)
        series.holders.add(holder)

    def _add(self, _: int, process: StubMetrics, number: int, value: float) -> None:
        holder = process.metrics.get(number)
        if holder is not None and holder.family.kind == metrics.COUNTER:
            holder.series.value += max(0.0, float(value)) if value == value else value
        elif holder is not None and holder.family.kind == metrics.GAUGE:
            holder.series.more += float(value)

    def _set(self, _: int, process: StubMetrics, number: int, value: float, at_ns: int) -> None:
        """Set a gauge; the last holder to set it wins."""
        holder = process.metrics.get(number)
        if holder is not None and holder.family.kind == metrics.GAUGE:
            series = holder.series
            series.value, series.more, series.set_ns = float(value), 0.0, int(at_ns)

    def _restore_gauge(
        self, _: int, process: StubMetrics, number: int, value: float, at_ns: int
    ) -> None:
        """Restore a gauge after the death of a broker.

        The holder that set it last knows its value; amounts that others add still count.
        """
        holder = process.metrics.get(number)
        if (
            holder is not None
            and holder.family.kind == metrics.GAUGE
            and at_ns > holder.series.set_ns
        ):
            holder.series.value, holder.series.set_ns = float(value), int(at_ns)

    def _observed(
        self, _: int, process: StubMetrics, number: int, counts: list[int], total: float
    ) -> None:
        holder = process.metrics.get(number)
        if holder is None or holder.family.kind != metrics.HISTOGRAM:
            return
        if len(counts) != len(holder.places) or any(type(c) is not int or c < 0 for c in counts):
            raise ValueError("counts of other buckets")
        for place, count in zip(holder.places, counts, strict=True):
            holder.series.counts[place] += count
        holder.series.value += float(total)

    def _drop(self, serial: int, process: StubMetrics, number: int) -> None:
        holder = process.metrics.pop(number, None)
        if holder is not None:
            self._let_go(holder)
            return
        family = process.families.pop(number, None)
        if family is not None:
            self._leave(family, (serial, number))

    def _let_go(self, holder: MetricHandle) -> None:
        series = holder.series
        series.holders.discard(holder)
        if not series.holders:
            holder.family.series.pop(series.labels, None)

    def _leave(self, family: Family, holder: tuple[int, int]) -> None:
        family.holders.discard(holder)
        if not family.holders:
            del self._families[family.name]

    # --------------------------------------------------------------- questions

    def _value(self, serial: int, number: int) -> float:
        holder = self._process(serial).metrics.get(number)
        if holder is None:
            raise NotFound("unknown metric: its family was rejected")
        return holder.series.value + holder.series.more

    def _process(self, serial: int) -> StubMetrics:
        return self._processes.get(serial) or StubMetrics()


def _describe(kind: int, series: Series) -> dict[str, Any]:
    described: dict[str, Any] = {"labels": dict(series.labels), "value": series.value + series.more}
    if kind == metrics.HISTOGRAM:
        described |= {"buckets": series.buckets, "counts": series.counts}
    return described
