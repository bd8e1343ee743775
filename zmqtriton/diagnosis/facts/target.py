"""The target of an examination, a running server or the start of one, and its subjects."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from zmqtriton.findings import Finding
from zmqtriton.options import Options


class Chapter(NamedTuple):
    """A thing to judge; its findings are read when they are iterated."""

    name: str
    findings: Iterable[Finding]
    #: True if it reads files of a server by the server's own paths, which may lead elsewhere.
    reads_files: bool = False
    #: True if it is of the server itself, and costs no time: `explain` ends with these.
    is_of_server: bool = False


@dataclass(frozen=True)
class RunningServer:
    id: str
    pid: int
    version: str
    #: The models in trouble, the worst first, each with its most important finding.
    troubles: Sequence[tuple[str, str]] = ()
    #: The names of its processes, by pid.
    processes: Mapping[int, str] = field(default_factory=dict)
    instances: int = 0
    #: Trouble of the log in words: lost lines, or a reader that has stopped; "" without any.
    log: str = ""
    #: Time of the server's start by the wall clock; 0 if it is not known.
    started_s: float = 0.0
    #: Resources that its machine is short of; None if the server does not measure them.
    pressure: Sequence[Mapping[str, Any]] | None = None
    #: Processes whose event loops were slow, so that others have waited for them.
    slow_loops: Sequence[Mapping[str, Any]] = ()
    #: Processes that do not do their work, with the reason.
    process_troubles: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class Target:
    #: The options of the server, by name; those with which it would be started if none runs.
    options: Mapping[str, Any] = field(default_factory=dict)
    #: Options of a server that would be started; None if one runs.
    start: Options | None = None
    #: Reason why the options are not known; "" if they are.
    options_problem: str = ""
    server: RunningServer | None = None
    repositories: Sequence[str] = ()
    #: Runtime directories that a server may have.
    directories: Sequence[Path] = ()
    #: The directory of a server that is alive and does not answer.
    silent: Path | None = None

    @property
    def processes(self) -> Mapping[int, str]:
        """The names of the processes of a server that runs, by pid."""
        return self.server.processes if self.server else {}

    def path(self, option: str) -> str:
        """Return the file of an option; "" for a relative path of a server that runs.

        Such a path is below the server's working directory.
        """
        path: str = self.options.get(option) or ""
        return path if self.server is None or os.path.isabs(path) else ""
