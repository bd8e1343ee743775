"""`zmqtriton-ctl explain`: collects facts about models and prints the findings."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol, TypeVar

import click

from zmqtriton.sdk.models import Finding, Severity
from zmqtriton.sdk.process import Client, Hook, NoServerError, addons, control_client
from zmqtriton.sdk.wire import NotFound, ZmqTritonError, logs
from zmqtriton_standard.ctl.asking import run_with_client
from zmqtriton_standard.ctl.connections import read_rates
from zmqtriton_standard.ctl.output import LiveLine, print_document, print_note, with_format
from zmqtriton_standard.ctl.selecting import MODEL
from zmqtriton_standard.ctl.stacks import read_stacks
from zmqtriton_standard.ctl.status import needs_attention
from zmqtriton_standard.tools.explaining.causes import (
    judge_places,
    judge_pressure,
    judge_processes,
)
from zmqtriton_standard.tools.explaining.directories import Directories
from zmqtriton_standard.tools.explaining.facts import WORTH_MENTIONING_MS, Facts, queue_ms
from zmqtriton_standard.tools.explaining.findings import find_all, no_models
from zmqtriton_standard.tools.explaining.requests import judge_tokens


class MoreFindings(Protocol):
    """A module with findings of an add-on."""

    #: Asks the server for what the other functions need.
    read: Callable[[_Server, Facts], Any]
    #: Returns causes.
    findings: Callable[[Facts, Any], list[Finding]]
    #: Returns all other findings.
    notes: Callable[[Facts, Any], list[Finding]]


MORE_FINDINGS = Hook[MoreFindings]("explain.findings")

_LOG_LINES = 1000
_MINUTE_S = 60
#: Maximum number of status calls until one has the broker's counts: the server does not wait for a
#: broker as long as a busy machine may take.
_LOOKS = 3
#: Seconds between two looks at the counts; some execution should end in this time.
_SECOND_LOOK_S = 1.0
#: Seconds for the stacks of a model's processes; a stopped process never writes them.
_STACKS_WITHIN_S = 5.0
#: Seconds for a check of a directory; a file system that takes longer counts as hanging.
_DIRECTORIES_WITHIN_S = 5.0
#: Seconds for all questions to the server; after them the facts so far must do.
_WITHIN_S = 20.0
#: Severities, the worst first: models are shown in this order. _NOTE and later ones are no trouble.
_SEVERITIES = list(Severity)
_NOTE = _SEVERITIES.index(Severity.NOTE)
_T = TypeVar("_T")


@click.command()
@click.argument("model", type=MODEL, default="")
@click.argument("version", type=click.IntRange(1), required=False)
@with_format
@click.pass_context
def explain(context: click.Context, model: str, version: int | None, form: str) -> None:
    """Say why MODEL fails or is slow, and what to do.

    Without MODEL, look at the server and all its models; troubles are shown, the worst first.
    """
    with LiveLine(f"explain {model}".rstrip()) as line:
        explained = run_with_client(
            context, lambda client: _explain(_Server(client, line.show), model, version or 0)
        )
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
        click.echo("the server and all models are as they should be")
    for number, (name, findings) in enumerate(explained):
        lines = [line for finding in findings for line in finding.lines(logs.escape(name))]
        click.echo("\n" * bool(number) + "\n".join(lines))


def explain_model(client: Client, model: str = "", version: int = 0) -> list[Finding]:
    """Return the findings about a model, the most important first; 0 is all versions.

    Without a model, those about each that is in trouble.
    """
    server = _Server(client)
    if not model:
        troubled = _explain_troubled(server)
        return [replace(one, model=name) for name, findings in troubled for one in findings]
    return find_all(server.facts_about(model, version))


def _explain_troubled(server: _Server) -> list[tuple[str, list[Finding]]]:
    """Return the findings about each model that is in trouble, the worst first."""
    if not server.index:
        return [("the server", [no_models(server.status)])]
    explained = [
        (name, find_all(server.facts_about(name, is_overview=True))) for name in server.in_use()
    ]
    troubled = [one for one in explained if server.is_unready(one[0]) or _rank(one[1]) < _NOTE]
    return sorted(troubled, key=lambda one: (not server.is_unready(one[0]), _rank(one[1])))


def _explain_all(server: _Server) -> list[tuple[str, list[Finding]]]:
    """Return the findings about models, and about the machine if it is short of something."""
    explained = _explain_troubled(server)
    of_processes = [*judge_processes(server.status.get("process_troubles", ()))]
    of_processes += judge_places(server.status.get("silent_places", ()))
    if of_server := of_processes + server.examine() + [*judge_tokens(server.read_clients())]:
        explained.append(("the server", of_server))
    if of_machine := [*judge_pressure(server.read_pressure())]:
        explained.append(("the machine", of_machine))
    return explained


def _explain(server: _Server, model: str, version: int) -> list[tuple[str, list[Finding]]]:
    explained = _explain_model(server, model, version) if model else _explain_all(server)
    if server.is_slow:
        print_note(f"the server is slow: not all was looked at within {_WITHIN_S:.0f} s")
    return explained


def _explain_model(server: _Server, model: str, version: int) -> list[tuple[str, list[Finding]]]:
    facts = server.facts_about(model, version)
    facts = replace(facts, pressure=server.read_pressure() if facts.entries else ())
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
    """The answers of a server, the source of the facts about its models.

    Its status and its index are always read; all else only as long as there is time.
    """

    def __init__(self, client: Client, show: Callable[[str], None] = lambda _: None) -> None:
        self._client = client
        self._show = show
        self._deadline_s = time.monotonic() + _WITHIN_S
        #: Something was left out.
        self.is_slow = False
        show("asks the server")
        self.status = self._look()
        self._directories = Directories(self.status.get("repositories", ()))
        arguments = {"ready": False, "reasons": True}
        self.index: Sequence[Any] = client.call(
            "index", arguments, timeout_s=control_client.QUICK_TIMEOUT_S
        )
        self._unready = {entry["name"] for entry in self.index if needs_attention(entry)}

    def _look(self) -> Any:
        """Return the status, with the broker's counts unless it never has the time to tell them."""
        for _ in range(_LOOKS):
            status = self._client.call("status", timeout_s=control_client.QUICK_TIMEOUT_S)
            if status.get("counts") is not None or not self._left_s:
                break
        return status

    @property
    def _left_s(self) -> float:
        return max(0.0, self._deadline_s - time.monotonic())

    def ask(self, verb: str, arguments: dict[str, Any] | None = None) -> Any:
        """Return the answer to a question; without one in time, {}."""
        if not self._left_s:
            self.is_slow = True
            return {}
        try:
            return self._client.call(
                verb, arguments, min(control_client.QUICK_TIMEOUT_S, self._left_s)
            )
        except NoServerError:
            self.is_slow = True
        except ZmqTritonError:  # nobody measures it, or its processes have ended meanwhile
            pass
        return {}

    def _take(self, step: str, read: Callable[[], _T], otherwise: _T) -> _T:
        """Take a longer look; return the other value without the time, or if it fails.

        Processes may have ended meanwhile, and the server may be of an older version.
        """
        if not self._left_s:
            self.is_slow = True
            return otherwise
        self._show(step)
        with suppress(ZmqTritonError, NoServerError):
            return read()
        return otherwise

    def read_pressure(self) -> Sequence[Any]:
        return [*self.latest.get("machine", ()), *self.status.get("slow_loops", ())]

    @cached_property
    def latest(self) -> Mapping[str, Any]:
        latest: Mapping[str, Any] = self.ask("latest")
        return latest

    def read_clients(self) -> Sequence[Mapping[str, Any]]:
        """Return the clients with their rates, where tokens tell them apart."""
        has_tokens = any(row["option"] == "tokens" and row["value"] for row in self._options)
        if not has_tokens:
            return []
        return self._take(
            "looks at the clients", lambda: read_rates(self._client, _SECOND_LOOK_S), []
        )

    @property
    def _options(self) -> Sequence[Mapping[str, Any]]:
        return self.ask("options") or ()

    def examine(self) -> list[Finding]:
        """Return the doctor's findings about the server itself."""
        # only now: the doctor explains models, too
        from zmqtriton_standard.tools.doctor.examination import examine_server

        return self._take("looks at the server", lambda: examine_server(self._client), [])

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
        self._show(f"looks at {model}")
        counts = facts.rows("counts")
        has_failed = any(row.get("faults") for row in counts)
        directories, problems = (
            self._check_directories(model) if self._should_be_checked(model) else ((), ())
        )
        last_minute = {"seconds": _MINUTE_S, "model": model}
        facts = replace(
            facts,
            later=self._later if any(map(facts.needs_second_look, counts)) else None,
            last_minute=self.ask("history", last_minute) if has_failed else {},
            log=self.log(model) if has_failed or not is_overview else (),
            problems=problems,
            directories=directories,
            config=self._config(facts),
            of_add_ons=[(module, module.read(self, facts)) for module in self._modules],
            silent_repositories=self._directories.silent,
            load_phase=""
            if all(entry.get("state") for entry in facts.entries)
            else self._load_phases.get(model, ""),
        )
        return replace(facts, stacks=self.stacks(model)) if facts.is_stuck else facts

    def _config(self, facts: Facts) -> Mapping[str, Any]:
        """Return the configuration of an ensemble that has had requests, or if requests wait."""
        rows = facts.rows("counts")
        has_waited = any(queue_ms(row) > WORTH_MENTIONING_MS for row in rows)
        is_ensemble = not facts.stubs and any(row.get("succeeded") for row in rows)
        if not is_ensemble and not has_waited:
            return {}
        config: Mapping[str, Any] = self.ask("config", {"model": facts.model})
        return config

    @cached_property
    def _modules(self) -> Sequence[Any]:
        """Modules of add-ons that have more to tell of a model."""
        return MORE_FINDINGS.all_of(addons.offers())

    def _should_be_checked(self, model: str) -> bool:
        """True if a version of the model is not ready: its files may say why."""
        states = [entry.get("state") for entry in self.index if entry["name"] == model]
        return self.is_unready(model) or not all(states)

    @cached_property
    def _load_phases(self) -> Mapping[str, str]:
        phases: Mapping[str, str] = self.ask("loads")
        return phases

    def _check_directories(self, model: str) -> tuple[Sequence[str], Sequence[Finding]]:
        nothing: tuple[list[str], list[Finding]] = [], []
        return self._take(
            f"reads the directory of {model}",
            lambda: self._directories.check(model, min(_DIRECTORIES_WITHIN_S, self._left_s)),
            nothing,
        )

    def stacks(self, model: str) -> dict[str, list[str]]:
        processes: list[dict[str, Any]] = self._take(
            f"reads the stacks of {model}",
            lambda: read_stacks(self._client, model, min(_STACKS_WITHIN_S, self._left_s)),
            [],
        )
        return {process["instance"]: process["lines"] for process in processes}

    @cached_property
    def _later(self) -> Any:
        """The status _SECOND_LOOK_S after the first one; executions that go on did not end."""
        time.sleep(_SECOND_LOOK_S)
        return self.ask("status") or None

    def log(self, model: str) -> Sequence[Any]:
        arguments = {"model": model, "after": 0, "lines": _LOG_LINES}
        lines: Sequence[Any] = self.ask("logs", arguments).get("lines", ())
        return lines
