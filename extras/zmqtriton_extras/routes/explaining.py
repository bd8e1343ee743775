"""Explanations of a model's own routes, which are a model themselves."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from zmqtriton.sdk.models import AnswerReader, Facts, Finding, Frame, explain_reason, figures
from zmqtriton_extras.routes import names

#: A line of the log about a route that has raised.
_ROUTE_FAILURE = re.compile(
    r"(?P<route>[A-Z]+ /\S*) of \S+: Traceback (?P<stack>.*)\n(?P<error>\S[^\n]*)\s*\Z", re.DOTALL
)
_TRACED = re.compile(r'^  File "(.+)", line (\d+), in (.+)$', re.MULTILINE)
#: The code that calls routes.
_ROUTES_CODE = "/zmqtriton_extras/routes/"


class Routes(NamedTuple):
    #: The path at which they are served; "" if they are not.
    path: str = ""
    #: Lines of the log about them, oldest first.
    log: Sequence[Mapping[str, Any]] = ()


def read(reader: AnswerReader, facts: Facts) -> Routes:
    """Ask the server about the routes of a model."""
    routed = facts.model + names.SUFFIX
    entries = [entry for entry in reader.index if entry["name"] == routed]
    log: Sequence[Any] = reader.log(routed) if entries else ()
    is_ready = any(entry.get("state") == "READY" for entry in entries)
    if facts.is_overview or not is_ready:
        return Routes("", log)
    return Routes(names.path_of(reader.ask("config", {"model": routed}), facts.model), log)


def notes(facts: Facts, routes: Routes) -> list[Finding]:
    """Return notes on where the routes are served."""
    return [Finding.note(f"its routes are served at {routes.path}", "")] if routes.path else []


def findings(facts: Facts, routes: Routes) -> Iterator[Finding]:
    """Tell why the model's own routes, which are a model themselves, are not served."""
    yield from _failures(facts, routes)
    routed = f"{facts.model}{names.SUFFIX}"
    for entry in facts.index:
        reason = Facts.reason_of(entry)
        if entry["name"] == routed and reason is not None and entry.get("state") != "READY":
            why = explain_reason(routed, reason)
            command = f"zmqtriton-ctl explain {shlex.quote(routed)}"
            yield Finding.warning(f"its routes are not served: {why.text}", why.advice, command)


def _failures(facts: Facts, routes: Routes) -> Iterator[Finding]:
    """Tell of routes that have raised, by the last time of each."""
    failures: dict[str, list[Mapping[str, Any]]] = {}
    for line in routes.log:
        if match := _ROUTE_FAILURE.match(str(line["text"]).replace("\\n", "\n")):
            failures.setdefault(match["route"], []).append({**line, **match.groupdict()})
    for route, lines in failures.items():
        last = lines[-1]
        at_s = last.get("time_s", facts.now_s)
        if facts.is_overview and facts.now_s - at_s > Facts.RECENT_S:
            continue
        frames = [
            (file, line, function)
            for file, line, function in _TRACED.findall(last["stack"])
            if _ROUTES_CODE not in file
        ]
        at = Frame.text_of(*Frame.own_of(frames[::-1])) if frames else ""
        times = figures.count_of(len(lines), "time")
        text = f"its route {route} has failed {times}, the last {facts.ago(at_s)}: it raises "
        yield Finding.error(
            f"{text}{last['error']}{at}",
            "Correct routes.py, or what it needs there.",
            f"zmqtriton-ctl logs {shlex.quote(facts.model + names.SUFFIX)}",
        )
