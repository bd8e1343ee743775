"""Plays every case against real Triton and keeps the answers in recorded/.

    python -m tests.conformance.record [--only TABLE] COMMAND …

COMMAND starts a tritonserver in the foreground; it is given `run REPOSITORY HTTP GRPC METRICS` and
the options of the repository. With `--ours` there is no command: what is kept, in intended.json,
are our own answers in the cases that docs/recorded-differences.md names.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from tests.conformance import lists
from tests.conformance.cases import Case
from tests.conformance.play import NO_ANSWER, Target, has_error
from tests.conformance.tables import REPOSITORIES, TABLES
from tests.conformance.zmqtriton_target import ours
from tests.support.server import free_ports, status_of
from tests.support.waiting import eventually

START_S = 120.0
ATTEMPTS = 3


class Writable(Protocol):
    """A repository, as Triton needs it."""

    @property
    def options(self) -> Sequence[str]: ...

    def write(self, directory: Path) -> None: ...


class Triton:
    """Real Triton over a repository.

    It is restarted when a case has killed it or one of its stubs, which it does not restart itself.
    """

    def __init__(self, command: Sequence[str], repository: Writable, directory: Path) -> None:
        self._command = command
        self._repository = repository
        self._directory = directory
        self._models = directory / "models"
        self._log = directory / "triton.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.http_port = self.grpc_port = 0
        self._target: Target

    def play(self, case: Case) -> list[Any]:
        """Return the answers to a case.

        If Triton dies a fresh server is asked again: an earlier case may have spoilt it, and some
        deaths are races.
        """
        for _ in range(ATTEMPTS):
            if self._process is None:
                self.start()
            answers = self._target.play(case)
            if not _is_broken(answers):
                break
            self.stop()
        return answers

    def start(self) -> None:
        # A case may have changed what is in the repository.
        shutil.rmtree(self._models, ignore_errors=True)
        self._repository.write(self._models)
        http, grpc, metrics = free_ports(3)
        self.http_port, self.grpc_port = http, grpc
        ports = [str(port) for port in (http, grpc, metrics)]
        with self._log.open("wb") as output:
            self._process = process = subprocess.Popen(
                [*self._command, "run", str(self._models), *ports, *self._repository.options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "TRITON_MODE": ""},
            )

        def is_up() -> bool:
            assert process.poll() is None, self._log.read_text("utf-8", "replace")
            return status_of(f"http://127.0.0.1:{http}/v2/health/live", 5) == 200

        eventually(is_up, START_S, "Triton is up")
        self._target = Target((http, grpc, metrics), str(self._models), self._log)

    def stop(self) -> None:
        if self._process is None:
            return
        self._target.close()
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None
        # What a stub that died has left; the command names it for the port.
        for segment in Path("/dev/shm").glob(f"*_{self.http_port}_*"):
            segment.unlink(missing_ok=True)


#: What clients hear of a dead server over HTTP and gRPC, of a dead stub, and of one that hangs.
_SIGNS = (NO_ANSWER, "Socket closed", "failed to connect", "is not healthy", "DEADLINE_EXCEEDED")


def _is_broken(answers: list[Any]) -> bool:
    """Return True if Triton or a stub is dead, or waits for ever."""
    text = json.dumps(answers)
    return any(sign in text for sign in _SIGNS)


def write(path: Path, answers: dict[str, Any]) -> None:
    """One document a table: an answer for each name, in the order of the table."""
    path.write_text(json.dumps(answers, indent=1) + "\n", encoding="utf-8")


def record(command: Sequence[str], only: Sequence[str]) -> None:
    for repository in REPOSITORIES.values():
        tables = {
            name: table
            for name, table in TABLES.items()
            if table.REPOSITORY == repository.name and (not only or name in only)
        }
        if not tables:
            continue
        with tempfile.TemporaryDirectory() as directory:
            triton = Triton(command, repository, Path(directory))
            try:
                for name, table in tables.items():
                    answers = {case.name: triton.play(case) for case in table.CASES}
                    write(lists.recorded_path(name), answers)
                    failed = sum(has_error(answer) for answer in answers.values())
                    sys.stdout.write(f"{name}: {len(answers)} cases, {failed} errors\n")
            finally:
                triton.stop()


def record_ours() -> None:
    """Keeps what zmqtriton answers where it differs on purpose, so that it stays as meant."""
    differing = frozenset(lists.differing())
    by_case: dict[str, Any] = {}
    for repository in REPOSITORIES.values():
        tables = [table for table in TABLES.values() if table.REPOSITORY == repository.name]
        with tempfile.TemporaryDirectory() as directory:  # noqa: SIM117 - one is inside the other
            with ours(repository, Path(directory)) as target:
                # All of them, since some say what those before have left.
                for case in (case for table in tables for case in table.CASES):
                    answers = target.play(case)
                    if case.name in differing:
                        by_case[case.name] = answers
    write(lists.INTENDED, dict(sorted(by_case.items())))
    sys.stdout.write(f"{len(by_case)} cases that differ on purpose\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Keeps what real Triton answers.")
    parser.add_argument("--only", action="append", default=[], choices=sorted(TABLES))
    parser.add_argument("--ours", action="store_true", help="our answers where we differ")
    parser.add_argument("command", nargs="*", help="what starts tritonserver")
    arguments = parser.parse_args()
    if arguments.ours:
        record_ours()
    elif arguments.command:
        record(arguments.command, arguments.only)
    else:
        parser.error("what starts tritonserver? e.g. path/to/start_triton.sh")


if __name__ == "__main__":
    main()
