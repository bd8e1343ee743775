"""The target of an examination: a running server, or the start of one."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zmqtriton.command_line import parse_words
from zmqtriton.control_client import (
    QUICK_TIMEOUT_S,
    Client,
    NoServerError,
    ServerSelector,
    connect,
    find_directories,
)
from zmqtriton.options import COMMAND, OptionError, Options, check_document, describe_options
from zmqtriton_addons.ctl import describe_log, explain
from zmqtriton_addons.tools.doctor.reading import ROOT
from zmqtriton_addons.tools.doctor.servers import is_forbidden
from zmqtriton_addons.tools.doctor.systemd import read_unit_options
from zmqtriton_floor.errors import ZmqTritonError

_ANY_REPOSITORY = "--model-repository=."


@dataclass(frozen=True)
class Server:
    id: str
    pid: int
    version: str
    #: The models in trouble, the worst first, each with the first that is to be said of it.
    troubles: Sequence[tuple[str, str]] = ()
    #: The names of its processes, by pid.
    processes: Mapping[int, str] = field(default_factory=dict)
    instances: int = 0
    #: What is wrong with the log, or "".
    log: str = ""
    #: By the wall clock; 0 is unknown.
    started_s: float = 0.0
    #: What its machine is short of; None if it does not measure that.
    pressure: Sequence[Mapping[str, Any]] | None = None
    #: Its processes for which others have waited.
    slow_loops: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class Target:
    #: The options of the server, by name; those with which it would be started if none runs.
    options: Mapping[str, Any] = field(default_factory=dict)
    #: The same as a start has them; None if a server runs.
    start: Options | None = None
    #: Why there are none; "" if there are.
    options_problem: str = ""
    server: Server | None = None
    repositories: Sequence[str] = ()
    #: Where a server may be.
    directories: Sequence[Path] = ()
    #: The directory of a server that is alive and does not answer.
    silent: Path | None = None

    def describe(self) -> str:
        if self.server is not None:
            path = self.options.get("config", "")
            return f"'{self.server.id}', pid {self.server.pid}{path and f', options of {path}'}"
        has_others = any(map(is_forbidden, self.directories))
        return f"no server runs{' that this user may ask' if has_others else ''}"


def find_target(
    selector: ServerSelector,
    repositories: Sequence[str],
    words: Sequence[str],
    root: Path = ROOT,
) -> Target:
    """Return the selected server; without one, the start of a server with these options.

    Raises NoServerError if a server is named that there is not.
    """
    directories = list(find_directories(selector.directory))
    silent: Path | None = None
    client = None if words else _connect(selector)
    if client is not None:
        with client:
            try:
                server, options, served = _ask(client)
                places = _joined(served or options.get("model-repository", ()), repositories)
                problem = _problem_of(options.get("config", ""))
                return Target(options, None, problem, server, places, directories)
            except NoServerError:
                silent = client.directory
    options, start, problem = _read_options(words, repositories, root)
    places = _joined(options.get("model-repository", ()), repositories)
    return Target(options, start, problem, None, places, directories, silent)


def _joined(first: Iterable[str], more: Iterable[str]) -> list[str]:
    return list(dict.fromkeys([*first, *more]))


def _connect(selector: ServerSelector) -> Client | None:
    try:
        return connect(selector)
    except NoServerError:
        if selector.name:
            raise
        return None


def _ask(client: Client) -> tuple[Server, Mapping[str, Any], Sequence[str]]:
    """Ask a server for itself, its options and its repositories."""
    identity = client.identity  # first, since who is stopped is not waited for long
    status = client.call("status", timeout_s=QUICK_TIMEOUT_S)
    troubles: dict[str, str] = {}
    for finding in explain(client):
        troubles.setdefault(finding.model, finding.text)
    rows, pressure = [], None
    with suppress(ZmqTritonError):  # one of an older version does not know the call
        rows = client.call("options", timeout_s=QUICK_TIMEOUT_S)
    with suppress(ZmqTritonError):  # nor does one without metrics
        pressure = client.call("latest", timeout_s=QUICK_TIMEOUT_S).get("machine")
    processes = status["processes"]
    server = Server(
        identity.id,
        identity.pid,
        identity.version,
        list(troubles.items()),
        {one["pid"]: one.get("instance") or one["role"] for one in processes if one.get("pid")},
        sum(one["role"] == "stub" for one in processes),
        describe_log(status.get("log", {})),
        min((one["started_s"] for one in processes if one.get("started_s")), default=0.0),
        pressure,
        status.get("slow_loops", ()),
    )
    return server, {row["option"]: row["value"] for row in rows}, status.get("repositories", [])


def _read_options(
    words: Sequence[str], repositories: Sequence[str], root: Path
) -> tuple[Mapping[str, Any], Options | None, str]:
    """Return the options of a server that would be started here, or why it would not."""
    line = list(words)
    if not line:
        text = os.environ.get("ZMQTRITON_OPTIONS") or read_unit_options(root)
        try:
            line = shlex.split(text)
        except ValueError as error:
            return {}, None, f"{error} in {text}"
    line += [f"--model-repository={path}" for path in repositories]
    try:
        options = parse_words(line, usual=[_ANY_REPOSITORY])
    except OptionError as error:
        return {}, None, _one_line(error)
    values = {row["option"]: row["value"] for row in describe_options(options, {})}
    has_repository = dict(options.origins)["model_repository"] != COMMAND
    return values if has_repository else {**values, "model-repository": []}, options, ""


def _problem_of(path: str) -> str:
    """Return the first mistake in the file of options of a server, or ""."""
    if not os.path.isabs(path):
        return ""
    try:
        check_document(path, Path(path).read_text("utf-8"))
    except OSError:
        return ""  # another user may not read it
    except (OptionError, UnicodeDecodeError) as error:
        return _one_line(error)
    return ""


def _one_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return " ".join(lines if lines[0].startswith("Bad option") else lines[:1])
