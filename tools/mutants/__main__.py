"""Put small faults into the code that decides, one at a time, and count those that tests notice.

    python -m tools.mutants --seed 1 --count 200 [--again] [--alone] [PATH…]

Prints the mutants that no test noticed, with place and change, and the figures of each room; the
same for the same seed. Of the tests in `make quick`, those that reach the line run first; then
slower ones, and a few tests with real processes that name the module.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.mutants.mutations import Mutation
from tools.mutants.naming import SystemTests
from tools.mutants.reach import MARKS, Reach
from tools.mutants.rooms import ROOMS, ROOT, room_of, sample
from tools.mutants.sandbox import NoSandbox, Sandbox
from tools.mutants.trials import Outcome, Trials, Verdict

_FOLDER = ROOT / "build" / "mutants"
_RECORDING_S = 3600.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2, help="trials at once (2)")
    parser.add_argument("--again", action="store_true", help="those alone that lived the last time")
    parser.add_argument("--alone", action="store_true", help="without tests that start servers")
    parser.add_argument("path", nargs="*", help="modules or folders to take mutants from")
    options = parser.parse_args()
    sandbox = Sandbox(_FOLDER)
    try:
        trials = Trials(
            sandbox,
            _reach(sandbox, options.jobs),
            SystemTests(sandbox.tree, ROOT / "docs" / "conformance.md"),
            options.jobs,
        )
    except NoSandbox as error:
        print(f"no mutant can be tried here: {error}", file=sys.stderr)
        return 1
    report = _FOLDER / f"seed-{options.seed}-{options.count}.json"
    mutants = sample(sandbox.tree, options.seed, options.count, tuple(options.path))
    if options.again:
        mutants = _lived_before(report, mutants)
    with ThreadPoolExecutor(options.jobs) as pool:
        verdicts = _shown(pool.map(trials.alone, mutants), len(mutants))
        if not options.alone:
            verdicts = _shown(pool.map(trials.within_servers, verdicts), len(mutants))
    if not options.again:
        _save(report, verdicts)
    print(_text(verdicts))
    return 0


def _shown(verdicts: Iterator[Verdict], count: int) -> list[Verdict]:
    shown = []
    for verdict in verdicts:
        shown.append(verdict)
        print(f"{len(shown)}/{count}", _line(verdict), file=sys.stderr, flush=True)
    return shown


def _reach(sandbox: Sandbox, jobs: int) -> Reach:
    path = _FOLDER / "reach.json"
    reach = Reach.load(path)
    if stale := reach.stale(sandbox.tree):
        with tempfile.TemporaryDirectory(dir=_FOLDER) as folder:
            command = sandbox.pytest("-n", str(jobs), *MARKS, *stale)
            sandbox.run(command, {"ZT_MUTANTS_RECORD": folder}, _RECORDING_S)
            reach.gather(Path(folder))
        reach.save(path)
    return reach


def _lived_before(report: Path, mutants: list[Mutation]) -> list[Mutation]:
    names = set(json.loads(report.read_text("utf-8"))[Outcome.LIVED.value])
    return [mutant for mutant in mutants if mutant.name in names]


def _save(report: Path, verdicts: list[Verdict]) -> None:
    names = {
        outcome.value: {v.mutation.name: v.by for v in verdicts if v.outcome is outcome}
        for outcome in Outcome
    }
    report.write_text(json.dumps(names, indent=1), "utf-8")


def _line(verdict: Verdict) -> str:
    mutation = verdict.mutation
    change = f"{mutation.path}:{mutation.line} {mutation.before} -> {mutation.after}"
    by = f" [{verdict.by}]" if verdict.by else f" [reached by {verdict.reached_by}]"
    return f"{verdict.outcome.value:10} {change}{by}"


def _text(verdicts: list[Verdict]) -> str:
    lines = []
    for outcome in (Outcome.LIVED, Outcome.EQUIVALENT):
        lines += [_line(verdict) for verdict in verdicts if verdict.outcome is outcome]
    lines.append(f"{'':12}{''.join(f'{outcome.value:>12}' for outcome in Outcome)}     noticed")
    for name in [*(room.name for room in ROOMS), "all"]:
        count = Counter(
            v.outcome for v in verdicts if name in (room_of(v.mutation.path).name, "all")
        )
        noticed = count[Outcome.FAST] + count[Outcome.SLOW]
        share = 100 * noticed / max(1, noticed + count[Outcome.LIVED])
        figures = "".join(f"{count[outcome]:12}" for outcome in Outcome)
        lines.append(f"{name:12}{figures}{share:10.1f} %")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
