"""`zmqtriton-ctl explain`: collects facts about models and prints the findings."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import click

from zmqtriton.control_client import QUICK_TIMEOUT_S, Client
from zmqtriton.ctl import (
    MODEL,
    needs_attention,
    print_document,
    read_stacks,
    run_with_client,
    with_format,
)
from zmqtriton.findings import Finding, Severity
from zmqtriton_addons.tools.explaining.facts import Facts
from zmqtriton_addons.tools.explaining.findings import find_all, no_models
from zmqtriton_addons.tools.explaining.pressure import judge_pressure
from zmqtriton_floor.errors import NotFound, ZmqTritonError

_LOG_LINES = 1000
_MINUTE_S = 60
#: The server waits for its broker, though not for as long as a busy machine may take.
_LOOKS = 3
#: In this time something should have ended.
_SECOND_LOOK_S = 1.0
#: A process that is stopped writes no stacks; on a busy machine others need longer.
_STACKS_WITHIN_S = 5.0
#: The order in which models are shown, and the place of a finding that is no trouble.
_SEVERITIES = (Severity.ERROR, Severity.WARNING, Severity.NOTE)
_NOTE = _SEVERITIES.index(Severity.NOTE)


@click.command()
@click.argument("model", type=MODEL, default="")
@click.argument("version", type=click.IntRange(1), required=False)
@with_format
@click.pass_context
def explain(context: click.Context, model: str, version: int | None, form: str) -> None:
    """Say why MODEL is not ready, fails or is slow, and what to do about it.

    Without MODEL, look at all models; those in trouble are shown, the worst first.
    """
    explained = run_with_client(context, lambda client: _explain(client, model, version or 0))
    if form != "table":
        print_document(
            form,
            [
                replace(finding, model=name).document("model", "text", "advice", "commands")
                for name, findings in explained
                for finding in findings
            ],
        )
        return
    if not explained:
        click.echo("all models are as they should be")
    for number, (name, findings) in enumerate(explained):
        lines = [line for finding in findings for line in finding.lines(name)]
        click.echo("\n" * bool(number) + "\n".join(lines))


def explain_model(client: Client, model: str = "", version: int = 0) -> list[Finding]:
    """Return the findings about a model, the most important first; 0 is all versions.

    Without a model, those about each that is in trouble.
    """
    if not model:
        troubled = explain_troubled(client)
        return [replace(one, model=name) for name, findings in troubled for one in findings]
    return find_all(_Server(client).facts_about(model, version))


def explain_troubled(client: Client) -> list[tuple[str, list[Finding]]]:
    """Return the findings about each model that is in trouble, the worst first."""
    server = _Server(client)
    if not server.index:
        return [("the server", [no_models(server.status)])]
    explained = [
        (name, find_all(server.facts_about(name, is_overview=True))) for name in server.in_use()
    ]
    troubled = [one for one in explained if server.is_unready(one[0]) or _rank(one[1]) < _NOTE]
    return sorted(troubled, key=lambda one: (not server.is_unready(one[0]), _rank(one[1])))


def _explain_all(client: Client) -> list[tuple[str, list[Finding]]]:
    """Return the findings about models, and about the machine if it is short of something."""
    of_machine = [*judge_pressure(_read_pressure(client))]
    return [*explain_troubled(client), *([("the machine", of_machine)] if of_machine else ())]


def _read_pressure(client: Client) -> Sequence[Any]:
    with suppress(ZmqTritonError):  # without metrics nobody measures it
        return [*client.call("latest", timeout_s=QUICK_TIMEOUT_S).get("machine", ())]
    return []


def _explain(client: Client, model: str, version: int) -> list[tuple[str, list[Finding]]]:
    if not model:
        return _explain_all(client)
    facts = _Server(client).facts_about(model, version)
    facts = replace(facts, pressure=_read_pressure(client) if facts.entries else ())
    findings = find_all(facts)
    if not facts.entries:
        finding = findings[0]
        hint = "; ".join(f"`{command}`" for command in finding.commands)
        raise NotFound(f"{model}: {finding.text}\n  {finding.advice}\n  next: {hint}")
    return [(model, findings)]


def _rank(findings: Sequence[Finding]) -> int:
    """Return the place of the worst finding in the order of severities."""
    return min(_SEVERITIES.index(finding.severity) for finding in findings)


class _Server:
    """The answers of a server from which the facts about its models are taken."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.status = self._look()
        arguments = {"ready": False, "reasons": True}
        self.index: Sequence[Any] = client.call("index", arguments, timeout_s=QUICK_TIMEOUT_S)
        self._unready = {entry["name"] for entry in self.index if needs_attention(entry)}

    def _look(self) -> Any:
        """Return the status, with the broker's counts unless it never has the time to tell them."""
        for _ in range(_LOOKS):
            status = self._client.call("status", timeout_s=QUICK_TIMEOUT_S)
            if status.get("counts") is not None:
                break
        return status

    def in_use(self) -> list[str]:
        """Return the models that serve or should: not those that sleep or were unloaded."""
        ready = {entry["name"] for entry in self.index if entry.get("state") == "READY"}
        return sorted(ready | self._unready)

    def is_unready(self, model: str) -> bool:
        return model in self._unready

    def facts_about(self, model: str, version: int = 0, *, is_overview: bool = False) -> Facts:
        facts = Facts(
            model, version, self.index, self.status, now_s=time.time(), is_overview=is_overview
        )
        if not facts.entries:
            return facts
        counts = facts.rows("counts")
        has_failed = any(row.get("faults") for row in counts)
        places = [Path(each) / model for each in self.status.get("repositories", ())]
        readable = [place for place in places if os.access(place, os.R_OK | os.X_OK)]
        facts = replace(
            facts,
            later=self._later if any(map(facts.needs_second_look, counts)) else None,
            last_minute=self._last_minute(model) if has_failed else {},
            log=self._log(model) if has_failed or not is_overview else (),
            problems=_check(readable) if self.is_unready(model) else (),
            directories=[str(place) for place in readable],
        )
        return replace(facts, stacks=self._stacks(model)) if facts.is_stuck else facts

    def _stacks(self, model: str) -> dict[str, list[str]]:
        with suppress(ZmqTritonError):  # its processes may have ended meanwhile
            processes = read_stacks(self._client, model, _STACKS_WITHIN_S)
            return {process["instance"]: process["lines"] for process in processes}
        return {}

    @cached_property
    def _later(self) -> Any:
        """The status after a moment, in which something should have ended."""
        time.sleep(_SECOND_LOOK_S)
        return self._look()

    def _last_minute(self, model: str) -> Any:
        arguments = {"seconds": _MINUTE_S, "model": model}
        with suppress(ZmqTritonError):  # without metrics there is no history
            return self._client.call("history", arguments, timeout_s=QUICK_TIMEOUT_S)
        return {}

    def _log(self, model: str) -> Sequence[Any]:
        arguments = {"model": model, "after": 0, "lines": _LOG_LINES}
        lines: Sequence[Any] = self._client.call("logs", arguments, timeout_s=QUICK_TIMEOUT_S)[
            "lines"
        ]
        return lines


def _check(places: list[Path]) -> list[Finding]:
    """Return the problems of a model's directories."""
    # only now: it reads protobuf definitions, and a model that is well needs none
    from zmqtriton_addons.tools.checking.configurations import CheckOptions
    from zmqtriton_addons.tools.checking.repositories import check_repositories

    problems: list[Finding] = []
    for place in places:
        report = check_repositories([place], CheckOptions())
        if place.name in report.models:
            problems += report.models[place.name].errors
    return problems
