"""The figures of one row: what the clients have measured, and what the server has. Does no I/O."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_COMPUTE = ("compute_input", "compute_infer", "compute_output")


@dataclass
class Measurement:
    """The measurements of clients; times are in microseconds."""

    seconds: float = 0.0
    latencies: list[int] = field(default_factory=list)
    #: How many requests failed, by the text.
    failures: Counter[str] = field(default_factory=Counter)
    #: Of streams: until the first response, and between responses.
    first: list[int] = field(default_factory=list)
    between: list[int] = field(default_factory=list)
    #: The busiest client process's share of a core.
    client_cores: float = 0.0

    @classmethod
    def merge(cls, reports: Iterable[Mapping[str, Any]]) -> Measurement:
        """Merge the reports of all client processes."""
        merged = cls()
        for report in reports:
            merged.seconds = max(merged.seconds, report["seconds"])
            merged.latencies += report["latencies"]
            merged.failures.update(report["failures"])
            merged.first += report["first"]
            merged.between += report["between"]
            merged.client_cores = max(merged.client_cores, report["client_cores"])
        return merged


def server_totals(statistics: Mapping[str, Any]) -> dict[str, int]:
    """Sum the statistics of a model's versions."""
    totals: Counter[str] = Counter()
    for version in statistics["model_stats"]:
        of_requests = version["inference_stats"]
        totals["succeeded"] += int(of_requests["success"]["count"])
        totals["queue_ns"] += int(of_requests["queue"]["ns"])
        totals["compute_ns"] += sum(int(of_requests[key]["ns"]) for key in _COMPUTE)
        totals["inferences"] += int(version["inference_count"])
        totals["executions"] += int(version["execution_count"])
    return dict(totals)


def make_row(
    concurrency: int,
    rate: float,
    measured: Measurement,
    before: Mapping[str, int] | None,
    after: Mapping[str, int] | None,
) -> dict[str, Any]:
    """Return a row, with None for unknown values. Times are in milliseconds."""
    latencies = sorted(measured.latencies)
    seconds = measured.seconds or 1.0
    row: dict[str, Any] = {
        "concurrency": concurrency,
        "rate": rate or None,
        "seconds": round(measured.seconds, 3),
        "requests": len(latencies) + measured.failures.total(),
        "failed": measured.failures.total(),
        "failures": dict(measured.failures.most_common()),
        "requests_per_s": round(len(latencies) / seconds, 1),
        "mean_ms": _ms(sum(latencies) / len(latencies)) if latencies else None,
        **{f"p{share}_ms": _percentile_ms(latencies, share) for share in (50, 90, 99)},
        "client_cores": round(measured.client_cores, 2),
    }
    if measured.first:
        row["first_response_ms"] = _percentile_ms(sorted(measured.first), 50)
        row["between_responses_ms"] = _percentile_ms(sorted(measured.between), 50)
    return {**row, **_server_part(before, after)}


def _server_part(
    before: Mapping[str, int] | None, after: Mapping[str, int] | None
) -> dict[str, float | None]:
    keys = ("queue_ms", "compute_ms", "batch_size")
    if before is None or after is None:
        return dict.fromkeys(keys)
    grown = {key: after[key] - before.get(key, 0) for key in after}
    succeeded, executions = grown["succeeded"], grown["executions"]
    return {
        "queue_ms": _ms(grown["queue_ns"] / 1e3 / succeeded) if succeeded > 0 else None,
        "compute_ms": _ms(grown["compute_ns"] / 1e3 / succeeded) if succeeded > 0 else None,
        "batch_size": round(grown["inferences"] / executions, 2) if executions > 0 else None,
    }


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest of these sorted values that `share` percent of them do not exceed."""
    return ordered[max(0, math.ceil(len(ordered) * share / 100) - 1)]


def _percentile_ms(ordered: Sequence[int], share: int) -> float | None:
    return _ms(percentile(ordered, share)) if ordered else None


def _ms(microseconds: float) -> float:
    return round(microseconds / 1e3, 3)
