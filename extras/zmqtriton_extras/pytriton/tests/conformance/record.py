"""Keeps what NVIDIA's PyTriton answers in recorded/, or what we answer where we differ.

    python -m zmqtriton_extras.pytriton.tests.conformance.record [--only TABLE] PYTHON
    python -m zmqtriton_extras.pytriton.tests.conformance.record --ours

PYTHON is the interpreter of an environment with nvidia-pytriton.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.conformance.cases import Case
from tests.conformance.play import NO_ANSWER
from zmqtriton_extras.pytriton.tests.conformance import lists
from zmqtriton_extras.pytriton.tests.conformance.host import Host, Package, hosting, run_program
from zmqtriton_extras.pytriton.tests.conformance.tables import PROGRAMS, SCRIPTS, TABLES

#: Longer than a batch is gathered.
PATIENCE_S = 8.0


def impatient(case: Case) -> Case:
    """The case, given up sooner."""
    requests = [request._replace(timeout_s=PATIENCE_S) for request in case.requests]
    return case._replace(request=tuple(requests))


def record_table(package: Package, name: str) -> None:
    """Keep its answers; a host that hangs does so for ever, and gives way to another."""
    table = TABLES[name]
    answers: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as directory:  # noqa: SIM117 - one is inside the other
        with hosting(package, table.SCRIPTS, Path(directory)) as host:
            for case in table.CASES:
                answers[case.name] = host.play(impatient(case))
                lists.write(name, answers)
                if NO_ANSWER in json.dumps(answers[case.name]):
                    host.kill()
                    host.start()


def record_program(package: Package, name: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        if PROGRAMS[name]:
            with hosting(package, PROGRAMS[name], Path(directory)) as host:
                lists.write(name, run_program(package, name, Path(directory), host))
        else:
            lists.write(name, run_program(package, name, Path(directory)))


def record_ours() -> None:
    """Keep our answers where they differ on purpose, so that they stay as meant."""
    differing = frozenset(lists.differing())
    with tempfile.TemporaryDirectory() as directory:  # noqa: SIM117 - one is inside the other
        with hosting(Package(), SCRIPTS, Path(directory)) as host:
            answers = all_of(host, Path(directory))
    ours = {name: answer for name, answer in sorted(answers.items()) if name in differing}
    lists.write(lists.INTENDED, ours)
    sys.stdout.write(f"{len(ours)} of PyTriton's cases that differ on purpose\n")


def all_of(host: Host, directory: Path) -> dict[str, Any]:
    """Our answers to everything."""
    answers = {case.name: host.play(case) for table in TABLES.values() for case in table.CASES}
    for name in PROGRAMS:
        answers |= run_program(Package(), name, directory, host if PROGRAMS[name] else None)
    return answers


def main() -> None:
    parser = argparse.ArgumentParser(description="Keeps what NVIDIA's PyTriton answers.")
    parser.add_argument("python", nargs="?", help="the interpreter of its environment")
    parser.add_argument("--only", action="append", default=[], choices=[*TABLES, *PROGRAMS])
    parser.add_argument("--ours", action="store_true", help="our answers where we differ")
    arguments = parser.parse_args()
    if arguments.ours:
        record_ours()
        return
    if not arguments.python:
        parser.error("which Python has nvidia-pytriton?")
    package = Package("pytriton", arguments.python)
    for name in [*TABLES, *PROGRAMS]:
        if not arguments.only or name in arguments.only:
            (record_table if name in TABLES else record_program)(package, name)


if __name__ == "__main__":
    main()
