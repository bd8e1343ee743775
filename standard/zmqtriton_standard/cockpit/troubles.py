"""The trouble of a version that is ready, in a line for the page: what its requests meet now.

Of a version that is not ready the reason says it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from zmqtriton_floor.reasons import Kind

#: How long ago something is no longer news; the rates are of an interval of five seconds.
_RECENT_S = 15.0
_RECENT_DEATH_S = 60.0
#: An execution that takes longer, while nothing else ends, and a longer wait in the queue.
_LONG_S = 5.0
#: An execution that takes so long, and far longer than others, hangs.
_HANGS_S = 60.0
_LONG_WAIT_MS = 500.0
#: A line has room for so many.
_MOST = 2
_MIB = 1 << 20
_PACE = "max_executions_per_second"
#: Deaths that somebody has asked for.
_ON_PURPOSE = frozenset((Kind.RESTARTED, Kind.REPLACED_LATE))

Row = Mapping[str, Any]


def trouble_of(
    counts: Row, rates: Row, processes: Iterable[Row], quotas: Iterable[Row], now_s: float
) -> str:
    """Return the worst two of a version's troubles, or "".

    `counts` are the broker's; without `last_error` the reader may not see the texts of errors.
    `rates` are those of the last seconds. The processes and quotas are those of the version.
    """
    processes = [*processes]
    troubles = (
        next((f"its code {text}" for row in processes for text in row.get("mismatches", ())), ""),
        _failure(counts, rates, now_s),
        _death(processes, now_s),
        _pace(counts, quotas),
        _hang(counts, rates, processes),
        _growth(processes),
        _wait(rates),
    )
    return "; ".join([*filter(None, troubles)][:_MOST])


def _failure(counts: Row, rates: Row, now_s: float) -> str:
    error = counts.get("last_error")
    if not rates["failures_per_s"] or error is None or now_s - error["at_s"] > _RECENT_S:
        return ""
    lines = error["text"].strip().splitlines() or [""]
    return f"requests fail: {lines[0]}"


def _death(processes: Iterable[Row], now_s: float) -> str:
    for process in processes:
        is_recent = now_s - process.get("started_s", 0.0) < _RECENT_DEATH_S
        kind = process.get("why", {}).get("kind")
        if process.get("restarts") and is_recent and kind not in _ON_PURPOSE:
            return f"instance {process['instance']} has died: {process['last_reason']}"
    return ""


def _pace(counts: Row, quotas: Iterable[Row]) -> str:
    waiting = counts["pending"]
    texts = (
        f"its quota holds {waiting} request{'s' * (waiting != 1)} back: {_PACE} is {row['limit']:g}"
        for row in quotas
        if row["quota"] == _PACE and waiting
    )
    return next(texts, "")


def _hang(counts: Row, rates: Row, processes: Iterable[Row]) -> str:
    for process in processes:
        age_s, usual_ms = process.get("executing_s", 0.0), counts.get("usual_execution_ns", 0) / 1e6
        if age_s >= _HANGS_S and process["is_overlong"]:
            lasts = f"an execution has lasted {age_s:.0f} s, where others take {usual_ms:.3g} ms"
            return f"instance {process['instance']} hangs: {lasts}"
    seconds = counts.get("oldest_execution_ns", 0) / 1e9
    if seconds < _LONG_S or rates["requests_per_s"]:
        return ""
    text = f"an execution takes {seconds:.0f} s already, and no request is answered meanwhile"
    return f"{text}; {counts['pending']} in the queue" if counts["pending"] else text


def _growth(processes: Iterable[Row]) -> str:
    for process in processes:
        growth = process.get("growth")
        if growth:
            sizes = " to ".join(f"{growth[key] / _MIB:.0f} MiB" for key in ("before", "after"))
            text = f"instance {process['instance']} leaks memory: it has grown from {sizes}"
            return f"{text} in {growth['executions']} executions"
    return ""


def _wait(rates: Row) -> str:
    wait_ms = rates.get("queue_ms") or 0.0
    if wait_ms < _LONG_WAIT_MS:
        return ""
    return f"requests wait {wait_ms / 1e3:.1f} s for an instance"
