"""The samples of the last hour, of the server and of the models that had requests in it.

`sampler.py` takes them in the process of metrics, and answers the page of the server. Memory is
bounded: at most MAX_MODELS models are kept, and the model whose last request is the longest ago is
dropped first.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

INTERVAL_S = 5.0
#: One hour of samples.
LENGTH = 720
#: Maximum number of model versions; the samples of each have 29 KB.
MAX_MODELS = 500
#: Maximum number of models in an answer about all: the busiest ones.
MAX_SHOWN = 20
#: The columns of models that the server has sums of.
TOTALS = ("requests_per_s", "failures_per_s", "pending")
_NONE = math.nan
#: Decimals that are shown; more are no news.
_DECIMALS = 3


class ServerSample(NamedTuple):
    """The server's processes together; None for unknown numbers."""

    #: Processor time in percent of one core.
    cpu_percent: float | None = None
    memory_bytes: float | None = None
    #: Percentage of the time with processes that wait for the resource; of the neighbours, their
    #: percentage of all processors (metrics/machine.py).
    cpu_waiting_percent: float | None = None
    memory_waiting_percent: float | None = None
    io_waiting_percent: float | None = None
    neighbours_cpu_percent: float | None = None


class ModelSample(NamedTuple):
    """A model version in one interval; a latency without requests is None."""

    requests_per_s: float = 0.0
    failures_per_s: float = 0.0
    latency_p50_ms: float | None = None
    latency_p99_ms: float | None = None
    queue_ms: float | None = None
    batch: float | None = None
    pending: float = 0.0
    #: Tokens of text; None for a model that makes none, or without --token-metrics.
    tokens_per_s: float | None = None

    @property
    def has_requests(self) -> bool:
        return self.requests_per_s > 0 or self.failures_per_s > 0 or self.pending > 0


class ProcessesSample(NamedTuple):
    """The processes of a model version."""

    instances: float | None = None
    memory_bytes: float | None = None


_IDLE, _UNKNOWN = ModelSample(), ProcessesSample()


class _Kept:
    """The kept samples of a model version."""

    def __init__(self) -> None:
        self.columns = Columns((*ModelSample._fields, *ProcessesSample._fields), LENGTH)
        #: The number of the last sample with requests.
        self.last_busy = 0


class History:
    def __init__(self) -> None:
        self._times = array("d", [0.0]) * LENGTH
        self._server = Columns((*ServerSample._fields, *TOTALS), LENGTH)
        self._models: dict[str, _Kept] = {}
        #: Number of samples that were added.
        self._count = 0

    def add(
        self,
        time_s: float,
        server: ServerSample,
        models: Mapping[str, ModelSample] | None,
        processes: Mapping[str, ProcessesSample],
    ) -> None:
        """Add a sample; its time is from a clock that is never set.

        A model that is missing in `models` had no requests. `models` is None if nothing is known.
        """
        place = self._count % LENGTH
        self._count += 1
        self._times[place] = time_s
        self._server.put(place, (*server, *_totals(models)))
        for name, sample in (models or {}).items():
            if sample.has_requests:
                self._find(name).last_busy = self._count
        for name, kept in [*self._models.items()]:
            if kept.last_busy <= self._count - LENGTH:
                del self._models[name]
            elif models is None:
                kept.columns.clear(place)
            else:
                kept.columns.put(place, (*models.get(name, _IDLE), *processes.get(name, _UNKNOWN)))

    def _find(self, name: str) -> _Kept:
        """Return the columns of a model; make room for a new one."""
        if name not in self._models:
            if len(self._models) >= MAX_MODELS:
                del self._models[min(self._models, key=lambda one: self._models[one].last_busy)]
            self._models[name] = _Kept()
        return self._models[name]

    def document(
        self,
        seconds: float,
        model: str = "",
        is_visible: Callable[[str], bool] | None = None,
        clock_offset_s: float = 0.0,
    ) -> dict[str, Any]:
        """Return the samples of the last seconds: of the server, and of a model or the busiest.

        `is_visible` takes the name of a model, None if the reader may see all of them; the offset
        is added to the times of the samples.
        """
        number = min(int(min(seconds, LENGTH * INTERVAL_S) / INTERVAL_S), self._count)
        places = [one % LENGTH for one in range(self._count - number, self._count)]
        names = self._busy_names(self._count - number, model, is_visible)
        shown = names if model else self._busiest(names, places)
        server = self._server.read(places)
        if is_visible is not None:
            server |= self._add_up(names, places)
        return {
            "interval_s": INTERVAL_S,
            "times": [round(self._times[place] + clock_offset_s, 3) for place in places],
            "server": server,
            "models": {name: self._models[name].columns.read(places) for name in shown},
            "models_left_out": len(names) - len(shown),
        }

    def _busy_names(
        self, since: int, model: str, is_visible: Callable[[str], bool] | None
    ) -> list[str]:
        """Return the visible versions that had requests since this sample."""
        return [
            name
            for name, kept in self._models.items()
            if kept.last_busy > since
            and model in ("", _model_of(name))
            and (is_visible is None or is_visible(_model_of(name)))
        ]

    def _busiest(self, names: list[str], places: Sequence[int]) -> list[str]:
        """Return the MAX_SHOWN models with most requests at these places, the busiest first."""

        def busyness(name: str) -> float:
            columns = self._models[name].columns
            return sum(columns.sum(rate, places) for rate in ("requests_per_s", "failures_per_s"))

        return sorted(names, key=busyness, reverse=True)[:MAX_SHOWN]

    def _add_up(self, names: Sequence[str], places: Sequence[int]) -> dict[str, list[float | None]]:
        """Return the totals over these models."""
        columns = [self._models[name].columns for name in names]
        return {
            total: [
                round(sum(each.sum(total, (place,)) for each in columns), 3) for place in places
            ]
            for total in TOTALS
        }


def _totals(models: Mapping[str, ModelSample] | None) -> list[float | None]:
    if models is None:
        return [None] * len(TOTALS)
    return [sum(getattr(sample, total) for sample in models.values()) for total in TOTALS]


def _model_of(name: str) -> str:
    """Return the model of `model:version`."""
    return name.rpartition(":")[0]


class Columns:
    """The columns of the samples of one server or model; all of a history use the same places."""

    def __init__(self, names: Sequence[str], length: int) -> None:
        # four bytes for a number: they are drawn
        self._columns = {name: array("f", [_NONE]) * length for name in names}

    def put(self, place: int, values: Sequence[float | None]) -> None:
        """Set the sample at this place, with a value for each column."""
        for column, value in zip(self._columns.values(), values, strict=True):
            column[place] = _NONE if value is None else value

    def clear(self, place: int) -> None:
        for column in self._columns.values():
            column[place] = _NONE

    def sum(self, name: str, places: Iterable[int]) -> float:
        """Return the sum of a column; missing numbers add nothing."""
        column = self._columns[name]
        # only NaN differs from itself
        return sum(column[place] for place in places if column[place] == column[place])

    def read(self, places: Sequence[int]) -> dict[str, list[float | None]]:
        """Return the samples at these places; None for missing numbers."""
        return {
            # only NaN differs from itself
            name: [round(v, _DECIMALS) if v == v else None for v in map(column.__getitem__, places)]
            for name, column in self._columns.items()
        }
