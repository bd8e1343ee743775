"""The trial of one mutant: the tests that may notice it, the cheapest first, until one does."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from tools.mutants.equivalents import EQUIVALENTS
from tools.mutants.mutations import Mutation
from tools.mutants.naming import SystemTests, words
from tools.mutants.reach import Reach, file_of, is_fast
from tools.mutants.sandbox import Sandbox

#: Files of tests that are run before the others are even imported.
_FIRST = 3
_MAX_SYSTEM_TESTS = 10
#: A machine that others use takes many times as long as the one where the tests were timed.
_PATIENCE = 10.0
_START_S = 60.0
_SYSTEM_S = 300.0
_TESTS_FAILED, _INTERRUPTED, _NO_TESTS = 1, 2, 5


class Outcome(str, Enum):
    FAST = "fast"
    SLOW = "slow"  # by a test that takes seconds or starts processes
    LIVED = "lived"
    EQUIVALENT = "equivalent"


class Verdict(NamedTuple):
    mutation: Mutation
    outcome: Outcome
    #: The test that noticed it, or the reason why nothing can.
    by: str = ""
    #: How many tests of one process reach it.
    reached_by: int = 0


class Trials:
    def __init__(self, sandbox: Sandbox, reach: Reach, named: SystemTests, jobs: int) -> None:
        self._sandbox = sandbox
        self._reach = reach
        self._named = named
        self._places: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(jobs):
            place = sandbox.folder / f"place-{number}"
            place.mkdir(exist_ok=True)
            self._places.put(place)
        self._is_sound: dict[str, bool] = {}

    def alone(self, mutation: Mutation) -> Verdict:
        """Try a mutant with the tests that start no server."""
        if reason := EQUIVALENTS.get(mutation.name):
            return Verdict(mutation, Outcome.EQUIVALENT, reason)
        with self._place() as place:
            return self._alone(mutation, place)

    def within_servers(self, verdict: Verdict) -> Verdict:
        """Try a surviving mutant again, with system tests that name its module."""
        mutation = verdict.mutation
        tests = self._named.naming(mutation, _MAX_SYSTEM_TESTS)
        if verdict.outcome is not Outcome.LIVED or not tests:
            return verdict
        with self._place() as place:
            by = self._run(tests, _SYSTEM_S, place, mutation)
            if by is not None and self._passes(by, place):
                return verdict._replace(outcome=Outcome.SLOW, by=by)
        return verdict

    @contextmanager
    def _place(self) -> Iterator[Path]:
        place = self._places.get()
        yield place
        self._places.put(place)

    def _alone(self, mutation: Mutation, place: Path) -> Verdict:
        of_place = words(mutation.path)

        def nearness(test: str) -> tuple[int, float]:
            """Return a test's place in the order: the mutant's room first, then shorter tests."""
            return -len(of_place & words(file_of(test))), self._reach.seconds[test]

        reaching = sorted(self._reach.tests(mutation), key=nearness)
        fast = [test for test in reaching if is_fast(test)]
        slow = [test for test in reaching if not is_fast(test)]
        near = set(list(dict.fromkeys(file_of(test) for test in fast))[:_FIRST])
        for tests, outcome in (
            ([test for test in fast if file_of(test) in near], Outcome.FAST),
            ([test for test in fast if file_of(test) not in near], Outcome.FAST),
            (slow, Outcome.SLOW),
        ):
            seconds = _START_S + _PATIENCE * sum(self._reach.seconds[test] for test in tests)
            if tests and (by := self._run(tests, seconds, place, mutation)) is not None:
                return Verdict(mutation, outcome, by, len(reaching))
        return Verdict(mutation, Outcome.LIVED, "", len(reaching))

    def _run(
        self, tests: list[str], within_s: float, place: Path, mutation: Mutation | None
    ) -> str | None:
        """Run tests on a mutant; return the first that fails, or None if all pass."""
        chosen, failed = place / "tests", place / "failed"
        chosen.write_text("\n".join(tests), "utf-8")
        failed.unlink(missing_ok=True)
        files = sorted({file_of(test) for test in tests})
        environment = {"ZT_MUTANTS_TESTS": str(chosen), "ZT_MUTANTS_FAILED": str(failed)}
        command = self._sandbox.pytest("-x", "--timeout=120", *files)
        status = self._sandbox.run(command, environment, within_s, mutation, place / "mutant.py")
        if status is None:
            return "the end of patience"
        if status == _TESTS_FAILED:
            if not failed.exists():
                return "what is left behind"
            return failed.read_text("utf-8").partition("\n")[0]
        if status == _INTERRUPTED:
            return "an import"
        if status in (0, _NO_TESTS):
            return None
        return f"the end of the process with {status}"

    def _passes(self, test: str, place: Path) -> bool:
        """Return whether a test that failed with a mutant passes without it."""
        if "::" not in test:
            return True
        if test not in self._is_sound:
            self._is_sound[test] = self._run([test], _SYSTEM_S, place, None) is None
        return self._is_sound[test]
