"""The state of the server for people: its processes, models, history and log.

Combines answers of the supervisor and the metrics process, and leaves out models that the client's
token may not see.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Any

import falcon
import falcon.asgi

from zmqtriton.sdk.frontend import (
    Gateway,
    HttpRequest,
    Route,
    bearer_tokens,
    by_category,
    json_documents,
)
from zmqtriton.sdk.wire import (
    ASLEEP,
    AT_REST,
    Grant,
    InvalidArgument,
    Kind,
    ZmqTritonError,
    is_loopback,
    numbers,
)
from zmqtriton_standard.cockpit import operations

CATEGORY, GENERAL_CATEGORY = "status", "statistics"
#: A log may hold what models were asked and what they know.
LOGS, GENERAL_OF_LOGS = "logs", "logging"
_ALL_LINES = 1 << 30
_LARGEST = 10**15
#: Tables of a status with a model's name in each row. A token for some models sees their rows;
#: all other tables that name models are only shown to clients that may see all models.
_OF_MODELS = ("processes", "environments", "counts", "quotas", "drains", "troubles")
_OF_SERVER = ("server", "malformed")
#: Fields of the server that a token for some models may read; none is about its machine.
_OF_IDENTITY = ("id", "version", "commit")
#: Rates of a version that has had no requests lately; _UNKNOWN has those of an unmeasured one.
_IDLE = {"requests_per_s": 0.0, "failures_per_s": 0.0, "queue_ms": None}
_UNMEASURED = {"cpu_percent": None, "memory_bytes": None}
_UNKNOWN: dict[str, float | None] = dict.fromkeys(_IDLE)


def _has_key_of_logs(gateway: Gateway) -> bool:
    guarded = by_category(gateway.settings.access.restrictions)
    return LOGS in guarded or GENERAL_OF_LOGS in guarded


def _may_read_logs(gateway: Gateway) -> bool:
    settings = gateway.settings
    is_guarded = _has_key_of_logs(gateway) or bool(settings.access.tokens)
    return is_guarded or is_loopback(settings.http.bound_address)


class Status:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        settings = gateway.settings
        self._may_read_logs = _may_read_logs(gateway)
        # errors say as much of requests as the log does, whose key the status does not ask for
        self._may_read_errors = self._may_read_logs and not _has_key_of_logs(gateway)
        self._may_load = settings.models.control_mode == "explicit"
        self._may_restart = operations.is_open(gateway)

    def routes(self) -> list[Route]:
        of = "/v2/zmqtriton"
        return [
            Route("GET", f"{of}/status", CATEGORY, self.status, GENERAL_CATEGORY),
            Route("GET", f"{of}/history", CATEGORY, self.history, GENERAL_CATEGORY),
            Route("GET", f"{of}/logs", LOGS, self.logs, GENERAL_OF_LOGS),
        ]

    async def status(self, req: HttpRequest, resp: falcon.asgi.Response) -> None:
        document, index, latest = await asyncio.gather(
            self._gateway.call("status", {}),
            self._gateway.call("index", {"ready": False, "reasons": True, "urgent": True}),
            self._latest(_text(req, "memory_of")),
        )
        now_s = time.time()
        started_s = document["processes"][0]["started_s"]
        may_control = req.grant is None or "control" in req.grant.scopes
        visible = bearer_tokens.visible_entries(index, req.grant)
        document = _visible(document, visible, req.grant)
        document["server"] |= {
            "started_s": started_s,
            "uptime_s": round(max(0.0, now_s - started_s), 3),
            "model_control_mode": self._gateway.settings.models.control_mode,
            "may_load": self._may_load and may_control,
            "may_restart": self._may_restart and may_control,
        }
        for process in document["processes"]:
            process |= _process_figures(process, latest["processes"], now_s)
        counts = document["counts"] or ()
        if not (self._may_read_errors and may_control):
            for row in counts:
                row.pop("last_error", None)
        document["models"] = _models(visible, counts, latest["rates"])
        slow = [*latest["machine"], *document.pop("slow_loops", ())]
        document["machine"] = slow if req.grant is None or req.grant.is_for_all_models else []
        _add_troubles(document, now_s)
        resp.data = json_documents.write(document)

    async def _latest(self, model: str) -> dict[str, Any]:
        """Return the last measurement; an empty one if the server does not measure.

        The following measurements include the shared memory of this model's processes.
        """
        try:
            latest: dict[str, Any] = await self._gateway.call("latest", {"memory_of": model})
        except ZmqTritonError:
            return {"processes": {}, "rates": None, "machine": []}
        return latest

    async def history(self, req: HttpRequest, resp: falcon.asgi.Response) -> None:
        seconds, model = _number(req, "seconds", 3600), _text(req, "model")
        arguments: dict[str, Any] = {"seconds": seconds, "model": model}
        if req.grant is not None and not req.grant.is_for_all_models:
            arguments["visible_models"] = req.grant.models
        resp.data = json_documents.write(await self._gateway.call("history", arguments))

    async def logs(self, req: HttpRequest, resp: falcon.asgi.Response) -> None:
        model, limit = _text(req, "model"), int(_number(req, "lines", 100, least=1))
        if not self._may_read_logs:
            raise falcon.HTTPForbidden(
                description=(
                    "the log may hold secrets: clients may read it where the server listens for "
                    "this machine alone, --http-address=127.0.0.1, or if a key or a token guards "
                    f"it: --http-restricted-api={LOGS}:KEY=VALUE, --tokens=FILE"
                )
            )
        since_s = _number(req, "since", 0)
        arguments = {
            "model": model,
            "after": int(_number(req, "after", 0)),
            "lines": _ALL_LINES if since_s else limit,
        }
        answer = await self._gateway.call("logs", arguments)
        if since_s:
            lines = [line for line in answer["lines"] if line["time_s"] >= since_s]
            answer["lines"] = lines[-limit:]
        resp.data = json_documents.write(answer)


def _text(req: HttpRequest, name: str) -> str:
    value = req.params.get(name, "")
    if type(value) is not str:
        raise InvalidArgument(f"'{name}' is given twice: send it once")
    return value


def _number(req: HttpRequest, name: str, default: float, *, least: int = 0) -> float:
    text = _text(req, name)
    return numbers.number(name, numbers.in_text(text) if text else default, least, _LARGEST)


def _visible(
    document: dict[str, Any], index: Iterable[Mapping[str, Any]], grant: Grant | None
) -> dict[str, Any]:
    """Return a status without the rows that the holder of a token may not see."""
    if grant is None or grant.is_for_all_models:
        return document
    kept = {key: document[key] for key in _OF_SERVER}
    kept["server"] = {key: kept["server"][key] for key in _OF_IDENTITY}
    kept["server"]["ready"] = _how_many_are_ready(index)
    for table in _OF_MODELS:
        rows = document.get(table)
        kept[table] = rows and [shown for row in rows if (shown := _visible_row(row, grant))]
    return kept


def _how_many_are_ready(index: Iterable[Mapping[str, Any]]) -> str:
    versions = (entry for entry in index if "version" in entry)
    expected = [each for each in versions if each.get("why", {}).get("kind") not in AT_REST]
    ready = sum(entry.get("state") == "READY" for entry in expected)
    return f"{ready} of {len(expected)} model versions are ready"


def _visible_row(row: dict[str, Any], grant: Grant) -> dict[str, Any]:
    """Return a row of a table as the holder of a token may see it; {} if he may not."""
    if "model" in row:
        return (
            bearer_tokens.without_places(row, row["model"])
            if bearer_tokens.may_see(grant, row["model"])
            else {}
        )
    # a reader is in some directory, and it is about models
    return {} if row.get("role") == "reader" else {**row, "last_reason": "", "why": {}}


def _process_figures(
    process: Mapping[str, Any], usage: Mapping[str, Any], now_s: float
) -> dict[str, Any]:
    started_s = process["started_s"]
    uptime_s = round(max(0.0, now_s - started_s), 3) if started_s else None
    return {"uptime_s": uptime_s, **_UNMEASURED, **usage.get(str(process["pid"]), {})}


def _models(
    index: Iterable[Mapping[str, Any]],
    counts: Iterable[Mapping[str, Any]],
    rates: Mapping[str, Mapping[str, float]] | None,
) -> list[dict[str, Any]]:
    """Return the entries of the index, with the counts and rates of each; None where unknown."""
    by_version = {(row["model"], str(row["version"])): row for row in counts}
    rows = []
    for entry in index:
        name, version = entry["name"], entry.get("version", "")
        row = by_version.get((name, version))
        at_rest = _UNKNOWN if row is None or rates is None else _IDLE
        rows.append(
            {
                "name": name,
                "version": version,
                "state": entry.get("state", ""),
                "reason": entry.get("reason", ""),
                "is_asleep": entry.get("why", {}).get("kind") in ASLEEP,
                **_counts(row),
                **{key: (row or {}).get(key) for key in ("last_error", "batching")},
                **(rates or {}).get(f"{name}:{version}", at_rest),
            }
        )
    return rows


def _add_troubles(document: Mapping[str, Any], now_s: float) -> None:
    """Add to each ready version the trouble that its requests have now, if that is known."""
    counts, processes, quotas = (
        _by_version(document.get(table)) for table in ("counts", "processes", "quotas")
    )
    for model in document["models"]:
        of = model["name"], model["version"]
        is_known = of in counts and model["requests_per_s"] is not None
        model["trouble"] = (
            trouble_of(
                counts[of][0], model, processes.get(of, ()), quotas.get((of[0], ""), ()), now_s
            )
            if is_known and model["state"] == "READY"
            else ""
        )


def _by_version(
    rows: Iterable[Mapping[str, Any]] | None,
) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    """Return the rows of each model and version; that is "" for all versions together."""
    by_version: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows or ():
        if "model" in row:
            by_version.setdefault((row["model"], str(row.get("version", ""))), []).append(row)
    return by_version


def _counts(row: Mapping[str, Any] | None) -> dict[str, int | None]:
    """Return the counts of a version; None if the broker has not reported them."""
    if row is None:
        return dict.fromkeys(("pending", "in_flight", "succeeded", "failed"))
    in_flight = max(0, row["unanswered"] - row["pending"])
    return {**{key: row[key] for key in ("pending", "succeeded", "failed")}, "in_flight": in_flight}


#: The age at which something is no longer news; the rates are of an interval of five seconds.
_RECENT_S = 15.0
_RECENT_DEATH_S = 60.0
#: An execution that takes longer, while nothing else ends, and a longer wait in the queue.
_LONG_S = 5.0
#: Seconds after which an execution hangs, if it is also far longer than others.
_HANGS_S = 60.0
_LONG_WAIT_MS = 500.0
#: Maximum number of troubles in a model's line.
_MOST = 2
_MIB = 1 << 20
_PACE = "max_executions_per_second"
#: Reasons of restarts that a user or a drain has asked for; they are no trouble.
_ON_PURPOSE = frozenset((Kind.RESTARTED, Kind.REPLACED_LATE))

Row = Mapping[str, Any]


def trouble_of(
    counts: Row, rates: Row, processes: Iterable[Row], quotas: Iterable[Row], now_s: float
) -> str:
    """Return the worst two of a version's troubles, or "".

    `counts` are the broker's; without `last_error` the reader may not see texts of errors. `rates`
    are of the last seconds. The processes and quotas are the version's.
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
    is_long = wait_ms >= _LONG_WAIT_MS
    return f"requests wait {wait_ms / 1e3:.1f} s for an instance" if is_long else ""
