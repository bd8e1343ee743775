"""`python -m tools.alone --seed 1 --count 300`: finds tests that fail in a process of their own.

The seed draws the tests, each from another file as long as there are any.
"""

from __future__ import annotations

import argparse
import random
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
_PYTEST = (sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider")
#: Longer than any test may take.
_LIMIT_S = 900


class Outcome(NamedTuple):
    test: str
    #: What pytest printed; empty if the test has passed.
    failure: str


def collect(arguments: Iterable[str]) -> list[str]:
    """Return the node ids of all tests that pytest finds with these arguments."""
    command = [*_PYTEST, "--collect-only", "-r", "N", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return [line for line in done.stdout.splitlines() if "::" in line]


def draw(tests: Iterable[str], seed: str, count: int) -> list[str]:
    """Return `count` tests, taken from all files in turn."""
    chance = random.Random(seed)
    files: dict[str, list[str]] = {}
    for test in tests:
        files.setdefault(test.partition("::")[0], []).append(test)
    order = list(files.values())
    chance.shuffle(order)
    for group in order:
        chance.shuffle(group)
    turns = (group[turn] for turn in range(count) for group in order if turn < len(group))
    return [test for test, _ in zip(turns, range(count), strict=False)]


def run_alone(test: str) -> Outcome:
    try:
        done = subprocess.run(
            [*_PYTEST, test], cwd=ROOT, capture_output=True, text=True, timeout=_LIMIT_S
        )
    except subprocess.TimeoutExpired:
        return Outcome(test, f"still there after {_LIMIT_S} s\n")
    return Outcome(test, done.stdout + done.stderr if done.returncode else "")


def failures(tests: Iterable[str], jobs: int) -> Iterator[Outcome]:
    with ThreadPoolExecutor(jobs) as pool:
        yield from (outcome for outcome in pool.map(run_alone, tests) if outcome.failure)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser("python -m tools.alone", description=__doc__)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=2, help="tests at a time")
    options, of_pytest = parser.parse_known_args(arguments)
    tests = draw(collect(of_pytest), options.seed, options.count)
    print(f"{len(tests)} tests of seed {options.seed}, each alone", flush=True)
    failed = []
    for test, failure in failures(tests, options.jobs):
        failed.append(test)
        print(f"{failure}fails alone: {shlex.join(['pytest', test])}\n", flush=True)
    print(f"{len(tests) - len(failed)} passed or were skipped, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
