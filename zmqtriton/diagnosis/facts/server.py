"""The answers of a running server about itself and its models."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from zmqtriton import addons
from zmqtriton.control_client import Client, NoServerError
from zmqtriton.diagnosis.facts.asking import (
    describe_log,
    needs_attention,
    read_rates,
    read_stacks,
)
from zmqtriton.diagnosis.facts.served import Facts
from zmqtriton.diagnosis.facts.silence import output_within
from zmqtriton.diagnosis.facts.target import RunningServer
from zmqtriton.diagnosis.hooks import MODEL
from zmqtriton.findings import Finding, Severity
from zmqtriton_floor.errors import ZmqTritonError

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
_T = TypeVar("_T")
#: Module of the command that checks a directory.
_CHECK = "zmqtriton.diagnosis.check"


class Directories:
    """Checks models in repositories, except in repositories that do not answer."""

    def __init__(self, repositories: Sequence[str]) -> None:
        self._repositories = repositories
        #: Repositories that did not answer in time; no more checks are made there.
        self.silent: list[str] = []

    def check(self, model: str, within_s: float) -> tuple[list[str], list[Finding]]:
        """Return the model's directories that can be read, and the errors in them.

        Each repository has `within_s` seconds to answer.
        """
        places: list[str] = []
        problems: list[Finding] = []
        for repository in self._repositories:
            if repository in self.silent:
                continue
            place = Path(repository) / model
            report = _check(place, within_s)
            if report is None:
                self.silent.append(repository)
            elif model in report["models"]:
                places.append(str(place))
                problems += [
                    Finding(**{**row, "severity": Severity.ERROR})
                    for row in report["findings"]
                    if row["model"] == model and row["severity"] == "error"
                ]
        return places, problems


def _check(place: Path, within_s: float) -> dict[str, Any] | None:
    """Return the report of `zmqtriton check` in a child; None if it does not end in time."""
    written = output_within(within_s, "-m", _CHECK, "--json", str(place))
    nothing: dict[str, Any] = {"models": [], "findings": []}
    return None if written is None else json.loads(written) if written else nothing


class ServerAnswers:
    """The answers of a server, the source of the facts about its models.

    Its status and its index are always read; all else only as long as there is time.
    """

    #: Seconds for all questions to the server; after them the facts so far must do.
    WITHIN_S = 20.0

    def __init__(
        self,
        client: Client,
        show: Callable[[str], None] = lambda _: None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._client = client
        #: Called with each step, and with what the server's processes leave out.
        self._show, self._tell = show, tell
        self._deadline_s = time.monotonic() + ServerAnswers.WITHIN_S
        #: Something was left out.
        self.is_slow = False
        show("asks the server")
        self.status = self._look()
        self._directories = Directories(self.status.get("repositories", ()))
        arguments = {"ready": False, "reasons": True}
        self.index: Sequence[Any] = client.call(
            "index", arguments, timeout_s=Client.QUICK_TIMEOUT_S
        )
        self._unready = {entry["name"] for entry in self.index if needs_attention(entry)}

    def _look(self) -> Any:
        """Return the status; read it again while the broker's counts are missing."""
        for _ in range(_LOOKS):
            status = self._client.call("status", timeout_s=Client.QUICK_TIMEOUT_S)
            if status.get("counts") is not None or not self._left_s:
                break
        return status

    @property
    def _left_s(self) -> float:
        return max(0.0, self._deadline_s - time.monotonic())

    def ask(self, verb: str, arguments: dict[str, Any] | None = None) -> Any:
        """Return the answer to a control call; {} without an answer in time."""
        if not self._left_s:
            self.is_slow = True
            return {}
        try:
            return self._client.call(verb, arguments, min(Client.QUICK_TIMEOUT_S, self._left_s))
        except NoServerError:
            self.is_slow = True
        except ZmqTritonError:  # nobody measures it, or its processes have ended meanwhile
            pass
        return {}

    def take(self, step: str, read: Callable[[], _T], otherwise: _T) -> _T:
        """Take a reading that takes longer; return `otherwise` if it fails, or without the time.

        Processes may have ended, and the server may be of an older version.
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
    def latest(self) -> Any:
        return self.ask("latest")

    def read_clients(self) -> Sequence[Mapping[str, Any]]:
        """Return the clients with their rates, where tokens tell them apart."""
        if not self.options.get("tokens"):
            return []
        return self.take(
            "looks at the clients",
            lambda: read_rates(self._client, _SECOND_LOOK_S, self._tell),
            [],
        )

    @cached_property
    def options(self) -> Mapping[str, Any]:
        """Options of the server by name; {} if it does not tell them."""
        return {row["option"]: row["value"] for row in self.ask("options") or ()}

    @cached_property
    def running(self) -> RunningServer:
        """The server itself, as the doctor judges it."""
        identity, processes = self._client.identity, self.status["processes"]
        names = {
            one["pid"]: one.get("instance") or one["role"] for one in processes if one.get("pid")
        }
        starts = [one["started_s"] for one in processes if one.get("started_s")]
        return RunningServer(
            identity.id,
            identity.pid,
            identity.build,
            processes=names,
            instances=sum(one["role"] == "stub" for one in processes),
            log=describe_log(self.status.get("log", {})),
            started_s=min(starts, default=0.0),
            pressure=self.latest.get("machine"),
            slow_loops=self.status.get("slow_loops", ()),
            process_troubles=self.status.get("process_troubles", ()),
        )

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
        directories, problems = self._check_directories(model)
        last_minute = {"seconds": _MINUTE_S, "model": model}
        facts = replace(
            facts,
            later=self._later if any(map(facts.needs_second_look, counts)) else None,
            last_minute=self.ask("history", last_minute) if has_failed else {},
            log=self.log(model) if has_failed or not is_overview else (),
            problems=problems,
            directories=directories,
            config=self._config(facts),
            of_add_ons=[
                (module, module.read(self, facts)) for module in MODEL.all_of(addons.offers())
            ],
            silent_repositories=self._directories.silent,
            load_phase=""
            if all(entry.get("state") for entry in facts.entries)
            else self._load_phases.get(model, ""),
        )
        return replace(facts, stacks=self.stacks(model)) if facts.is_stuck else facts

    def _config(self, facts: Facts) -> Any:
        """Return the configuration of a used ensemble, or if requests have waited; else {}."""
        rows = facts.rows("counts")
        has_waited = any(Facts.queue_ms(row) > Facts.WORTH_MENTIONING_MS for row in rows)
        is_ensemble = not facts.stubs and any(row.get("succeeded") for row in rows)
        return self.ask("config", {"model": facts.model}) if is_ensemble or has_waited else {}

    @cached_property
    def _load_phases(self) -> Any:
        return self.ask("loads")

    def _check_directories(self, model: str) -> tuple[Sequence[str], Sequence[Finding]]:
        """Return the directories of an unready model, and the errors in them."""
        states = [entry.get("state") for entry in self.index if entry["name"] == model]
        if not self.is_unready(model) and all(states):
            return (), ()
        return self.take(
            f"reads the directory of {model}",
            lambda: self._directories.check(model, min(_DIRECTORIES_WITHIN_S, self._left_s)),
            (list[str](), list[Finding]()),
        )

    def stacks(self, model: str) -> dict[str, list[str]]:
        processes: list[dict[str, Any]] = self.take(
            f"reads the stacks of {model}",
            lambda: read_stacks(self._client, model, min(_STACKS_WITHIN_S, self._left_s)),
            [],
        )
        return {process["instance"]: process["lines"] for process in processes}

    @cached_property
    def _later(self) -> Any:
        """The status _SECOND_LOOK_S after the first one: it shows executions that did not end."""
        time.sleep(_SECOND_LOOK_S)
        return self.ask("status") or None

    def log(self, model: str) -> Any:
        arguments = {"model": model, "after": 0, "lines": _LOG_LINES}
        return self.ask("logs", arguments).get("lines", ())
