"""The figures of a row, from clients and server, and conclusions from all rows. Does no I/O."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

_COMPUTE = ("compute_input", "compute_infer", "compute_output")
Row = Mapping[str, Any]

#: Use of a core above which a client process may limit the rate.
_BUSY_CORES = 0.85
#: Minimum factor between two rates that counts as growth.
_GROWTH = 1.1


@dataclass
class Measurement:
    """The measurements of clients; times are in microseconds."""

    seconds: float = 0.0
    latencies: list[int] = field(default_factory=list)
    #: Number of failed requests, by the text of the error.
    failures: Counter[str] = field(default_factory=Counter)
    #: Times of streams until the first response, and between responses.
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


class Reading(NamedTuple):
    """The server's figures of a model and, for an ensemble, of the models of its steps."""

    own: Mapping[str, int]
    steps: Mapping[str, Mapping[str, int]] = MappingProxyType({})


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
    before: Reading | None,
    after: Reading | None,
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
        row["mean_first_ms"] = _ms(sum(measured.first) / len(measured.first))
        row["responses"] = round(1 + len(measured.between) / len(measured.first), 1)
    if before is None or after is None:
        return {**row, **_server_part(None, None)}
    if before.steps:
        row["steps"] = {
            step: _server_part(totals, after.steps[step]) for step, totals in before.steps.items()
        }
    return {**row, **_server_part(before.own, after.own)}


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


def judge(model: str, rows: Sequence[Row]) -> list[str]:
    """Return sentences about the row with the highest rate, the most important first."""
    if not rows:
        return []
    return [*_failures(model, rows), *_clients(rows), *_times(model, rows)]


def _failures(model: str, rows: Sequence[Row]) -> Iterator[str]:
    failed, requests = (sum(row[key] for row in rows) for key in ("failed", "requests"))
    if failed:
        worst = max(rows, key=lambda row: row["failed"])
        text = next(iter(worst["failures"]))
        yield (
            f"{failed} of {requests} requests failed, most with: {text}; "
            f"`zmqtriton-ctl explain {model}` may say why"
        )


def _clients(rows: Sequence[Row]) -> Iterator[str]:
    busiest = max(rows, key=lambda row: row["client_cores"])
    if busiest["client_cores"] >= _BUSY_CORES:
        yield (
            f"The client itself is at its limit with concurrency {busiest['concurrency']} (a "
            f"process uses {busiest['client_cores']:.0%} of a core), so the server may do more: "
            "use more --processes, if this machine has cores to spare"
        )


def _times(model: str, rows: Sequence[Row]) -> Iterator[str]:
    best = max(rows, key=lambda row: row["requests_per_s"])
    mean, queue, compute = (best[key] for key in ("mean_ms", "queue_ms", "compute_ms"))
    if mean is None or queue is None or compute is None:
        return
    if best.get("mean_first_ms") is not None:
        yield _times_of_stream(model, best)
        return
    step, figures = _slowest_step(best)
    around = max(0.0, mean - queue - compute)
    where = (
        f"With concurrency {best['concurrency']}, of {mean:.3g} ms a request waits {queue:.3g} ms, "
        f"is executed {compute:.3g} ms, and is on its way {around:.3g} ms"
    )
    if queue > max(compute, around):
        part = f"the queue of '{step}', its slowest step," if step else "the queue"
        yield f"{where}: {part} is the largest part. {_try_for_queue(step or model, figures)}"
    elif compute >= around:
        part = f"'{step}', its slowest step," if step else "the model"
        yield f"{where}: {part} is the largest part. {_try_for_compute(best, rows)}"
    else:
        yield (
            f"{where}: the way is the largest part. Try --grpc, smaller tensors, shared memory, or "
            f"several inputs in one request{_more_clients(best, rows)}"
        )


def _slowest_step(row: Row) -> tuple[str, Row]:
    """Return an ensemble's step that takes most of the time; for other models "" and the row."""
    times = {
        name: figures["queue_ms"] + figures["compute_ms"]
        for name, figures in row.get("steps", {}).items()
        if figures["queue_ms"] is not None
    }
    slowest = max(times, key=times.__getitem__, default="")
    return slowest, row["steps"][slowest] if slowest else row


def _times_of_stream(model: str, row: Row) -> str:
    """Say where a stream spends its time: its model may be busy for a small part of that."""
    mean, queue, first = row["mean_ms"], row["queue_ms"], row["mean_first_ms"]
    rest = max(0.0, mean - first)
    where = (
        f"With concurrency {row['concurrency']}, of {mean:.3g} ms a stream waits {queue:.3g} ms in "
        f"the queue, has its first response after {first:.3g} ms, and {rest:.3g} ms later the last "
        f"of {row['responses']:g}"
    )
    if queue > max(first - queue, rest):
        return (
            f"{where}: the queue is the largest part. Try an execute() that streams several "
            f"requests at once (`async def`, MAX_INFLIGHT), or {_more_instances(model)}"
        )
    if first - queue >= rest:
        return f"{where}: the way to the first response is the largest part, which is the model's"
    return f"{where}: the time between responses is the largest part, which is the model's pace"


def _more_instances(model: str) -> str:
    return f"more instances (`zmqtriton-ctl scale {model} N`) if cores are idle"


def _try_for_queue(model: str, best: Row) -> str:
    batch = best["batch_size"] or 1.0
    more = _more_instances(model)
    if batch < 1.5:
        return f"Try {more}, or dynamic_batching: each request is executed alone"
    return f"Try {more}, or a larger max_batch_size: a batch has {batch:.3g} now"


def _try_for_compute(best: Row, rows: Sequence[Row]) -> str:
    more = _more_clients(best, rows)
    if more:
        return f"The instances are not always busy yet{more}"
    return "Make execute() faster, or let it execute batches (dynamic_batching)"


def _more_clients(best: Row, rows: Sequence[Row]) -> str:
    """Return the advice to use more clients if the rate still grows with them, or ""."""
    if best["rate"]:
        return ""  # it is what was asked for
    widest = max(rows, key=lambda row: row["concurrency"])
    others = [row["requests_per_s"] for row in rows if row is not widest]
    has_grown = not others or widest["requests_per_s"] > _GROWTH * max(others)
    return "; try a higher --concurrency, too" if best is widest and has_grown else ""
