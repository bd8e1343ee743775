"""Judges the rows of a benchmark: where the time goes, and what to try next. Does no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]

#: A client process that is so busy may be what limits the rate.
_BUSY_CORES = 0.85
#: A rate that grows less with more clients does not grow.
_GROWTH = 1.1


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
    around = max(0.0, mean - queue - compute)
    where = (
        f"With concurrency {best['concurrency']}, of {mean:.3g} ms a request waits {queue:.3g} ms, "
        f"is executed {compute:.3g} ms, and is on its way {around:.3g} ms"
    )
    if queue > max(compute, around):
        yield f"{where}: the queue is the largest part. {_try_for_queue(model, best)}"
    elif compute >= around:
        yield f"{where}: the model is the largest part. {_try_for_compute(best, rows)}"
    else:
        yield (
            f"{where}: the way is the largest part. Try --grpc, smaller tensors, shared memory, or "
            f"several inputs in one request{_more_clients(best, rows)}"
        )


def _try_for_queue(model: str, best: Row) -> str:
    batch = best["batch_size"] or 1.0
    more = f"more instances (`zmqtriton-ctl scale {model} N`) if cores are idle"
    if batch < 1.5:
        return f"Try {more}, or dynamic_batching: each request is executed alone"
    return f"Try {more}, or a larger max_batch_size: a batch has {batch:.3g} now"


def _try_for_compute(best: Row, rows: Sequence[Row]) -> str:
    more = _more_clients(best, rows)
    if more:
        return f"The instances are not always busy yet{more}"
    return "Make execute() faster, or let it execute batches (dynamic_batching)"


def _more_clients(best: Row, rows: Sequence[Row]) -> str:
    """Advise more clients if the rate still grows with them; "" if not."""
    if best["rate"]:
        return ""  # it is what was asked for
    widest = max(rows, key=lambda row: row["concurrency"])
    others = [row["requests_per_s"] for row in rows if row is not widest]
    has_grown = not others or widest["requests_per_s"] > _GROWTH * max(others)
    return "; try a higher --concurrency, too" if best is widest and has_grown else ""
