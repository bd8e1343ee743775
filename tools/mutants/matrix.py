"""Find out which tests notice which faults of core and standard, over hours and many runs.

    python -m tools.mutants.matrix run FOLDER [--seed 1] [--count 5000] [--jobs 1] [PATH…]
    python -m tools.mutants.matrix show FOLDER [nobody|alone|others]

`run` draws faults by the seed, if a PATH is given of modules below it alone. It tries each fault
with all quick tests that reach it, until forty have noticed it, in as many processes as jobs. All
results are in FOLDER, as is the code at the begin of the first run: a run may be killed at any
time, and the next one continues where it was. A run with a larger count draws more faults. Faults
that no test reaches are not tried. `show` prints, at any time, the figures of each room, and with a
word:

    nobody     faults that tests reach and none notices
    alone      tests that alone notice a fault, and which
    others     tests that notice nothing which others do not: `cover` if a small cover of all that
               is noticed, and of all lines that are reached, has it, `spare` if not, `unmet` if it
               reaches none of the faults

Without the lines a cover of 3,000 faults leaves out tests that 5 of 100 other faults need; with
them it is 2 of 100.

No faults are made in texts and raised errors, so a spare test may guard a text, a row of
docs/conformance.md or a repaired defect. Tests that start processes or are slow are not run: one of
these may notice a fault that no test here notices.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path

import coverage

from tools.mutants import kills
from tools.mutants.equivalents import EQUIVALENTS
from tools.mutants.kills import Fault, Kill, KillFile, kill_of
from tools.mutants.mutations import Mutation
from tools.mutants.reach import MARKS, file_of
from tools.mutants.rooms import ROOT, carried_modules, draw
from tools.mutants.sandbox import NoSandbox, Sandbox

_FOREVER_S = 30 * 86400.0
_START_S = 120.0
_PATIENCE = 20.0
_MAX_BEGUN = 2
#: Without words of what failed, and without other orders or limits than the matrix's own.
_PYTEST = ("--quick", *MARKS, "--assert=plain", "--timeout=0", "-p", "no:randomly")


class Folder:
    """The folder of a matrix."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kills = path / "kills.jsonl"
        self._plan = path / "plan.jsonl"
        self._count = path / "count"
        self._coverage = path / "coverage.main"
        #: Which of the faults the process tries, and of how many parts they are.
        self.share = _share(os.environ.get("ZT_MUTANTS_SHARE", "0/1"))
        self._begun = path / f"begun.{self.share[0]}"
        self._unsound = path / "unsound"
        self._import = path / "import"
        path.mkdir(parents=True, exist_ok=True)

    @property
    def is_recorded(self) -> bool:
        return (self.path / "seconds.main.json").exists()

    @property
    def planned_for(self) -> int:
        """The number of faults that the run was asked to draw; there may be fewer."""
        counts = _lines(self._count)
        return int(counts[0]) if counts else 0

    def seconds(self) -> dict[str, float]:
        """Return the tests that pass, with the seconds of each."""
        seconds: dict[str, float] = json.loads((self.path / "seconds.main.json").read_text("utf-8"))
        return seconds

    # -------------------------------------------------------------------- plan

    def save_plan(self, faults: Iterable[Fault], count: int) -> None:
        number = {name: i for i, name in enumerate(self.seconds())}
        draft = self._plan.with_suffix(".draft")
        with draft.open("w", encoding="utf-8") as file:
            for fault in faults:
                tests = [number[test] for test in fault.tests]
                print(json.dumps([fault.mutation, tests, fault.needs_import]), file=file)
        draft.rename(self._plan)
        self._count.write_text(str(count), "utf-8")

    def plan(self) -> Iterator[Fault]:
        """Return the faults that tests reach, in the order of the seed."""
        names = [*self.seconds()]
        left = {*_lines(self._import)}
        with self._plan.open(encoding="utf-8") as file:
            for line in file:
                mutation, tests, needs_import = json.loads(line)
                fault = Mutation(*mutation)
                needs_import = needs_import or fault.name in left
                yield Fault(fault, [names[i] for i in tests], needs_import)

    def left(self) -> int:
        """Return the number of faults without a result, except faults that need an import."""
        tried = {kill.name for kill in KillFile(self.kills).read()}
        names = (fault.mutation.name for fault in self.plan() if not fault.needs_import)
        return len({*names} - tried)

    def leave_for_import(self, name: str) -> None:
        _append(self._import, name)

    # ----------------------------------------------------------------- progress

    def begin(self, name: str) -> bool:
        """Record the fault that is tried now; return whether the last two runs began it as well.

        One run may have been killed just then. A fault that comes again ends its process.
        """
        earlier = _lines(self._begun)
        again = [each for each in earlier if each == name]
        self._begun.write_text("\n".join([*again, name]), "utf-8")
        return len(again) >= _MAX_BEGUN

    @property
    def is_sound(self) -> bool:
        return self._unsound.exists()

    def unsound(self) -> set[str]:
        return {*_lines(self._unsound)}

    def add_unsound(self, tests: set[str]) -> None:
        draft = self.path / f"unsound.{self.share[0]}"
        draft.write_text("".join(f"{test}\n" for test in sorted(self.unsound() | tests)), "utf-8")
        draft.rename(self._unsound)


def _share(text: str) -> tuple[int, int]:
    mine, of = text.split("/")
    return int(mine), int(of)


def _lines(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines() if path.exists() else []


def _append(path: Path, line: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        print(line, file=file)


# ------------------------------------------------------------------------- run


def run(folder: Folder, seed: int, count: int, jobs: int, below: tuple[str, ...]) -> int:
    sandbox = Sandbox(folder.path, keeps_first=True)
    if not folder.is_recorded:
        command = sandbox.pytest(*_PYTEST, "tests")
        sandbox.run(command, {"ZT_MUTANTS_RECORD": str(folder.path)}, _FOREVER_S)
    if folder.planned_for < count:
        folder.save_plan(_faults(folder, sandbox.tree, seed, count, below), count)
    command = sandbox.pytest(*_PYTEST, "-p", "tools.mutants.live", "tests")
    fruitless = 0
    while (left := folder.left()) and fruitless <= _MAX_BEGUN:
        # a fault may end even the processes that fork for each
        shares = [f"{number}/{jobs}" for number in range(jobs)]
        with ThreadPoolExecutor(jobs) as pool:
            statuses = [*pool.map(partial(_run_share, sandbox, command, folder.path), shares)]
        fruitless = fruitless + 1 if folder.left() == left else 0
    if left:
        print(f"no fault can be tried any more: status {statuses}", file=sys.stderr)
        return 1
    _try_imported(folder, sandbox)
    return 0


def _run_share(sandbox: Sandbox, command: list[str], folder: Path, share: str) -> int | None:
    environment = {"ZT_MUTANTS_MATRIX": str(folder), "ZT_MUTANTS_SHARE": share}
    return sandbox.run(command, environment, _FOREVER_S)


def _faults(
    folder: Folder, tree: Path, seed: int, count: int, below: tuple[str, ...]
) -> Iterator[Fault]:
    """Return the first faults in the order of the seed that tests reach, with their tests."""
    reached = Reached(folder.path / "coverage.main", {*folder.seconds()})
    paths = [
        path
        for path in carried_modules(tree)
        if "zmqtriton_protos" not in path and path.startswith(below or "")
    ]
    for mutation in draw(tree, seed, paths):
        if mutation.name in EQUIVALENTS:
            continue
        fault = reached.fault(mutation)
        if fault.tests:
            count -= 1
            yield fault
            if not count:
                return


class Reached:
    """The recorded tests that reach each fault."""

    def __init__(self, path: Path, tests: set[str]) -> None:
        self._tests = tests
        self._data = coverage.CoverageData(str(path))
        self._data.read()
        self._lines = cache(self._read)

    def _read(self, path: str) -> dict[int, list[str]]:
        return self._data.contexts_by_lineno(str(ROOT / path))

    def by_test(self) -> dict[str, set[str]]:
        """Return the lines that each test reaches in any of its cases."""
        reached = defaultdict[str, set[str]](set)
        for path in self._data.measured_files():
            for line, tests in self._data.contexts_by_lineno(path).items():
                for test in self._tests.intersection(tests):
                    reached[kills.function_of(test)].add(f"{path}:{line}")
        return reached

    def fault(self, mutation: Mutation) -> Fault:
        lines = self._lines(mutation.path)
        span = range(mutation.line, mutation.last_line + 1) if mutation.function else list(lines)
        names = {test for line in span for test in lines.get(line, ())} & self._tests
        is_of_import = not mutation.function
        if mutation.function and not names and any(lines.get(line) for line in span):
            # an import calls it, for whoever uses the module
            is_of_import = True
            names = {test for tests in lines.values() for test in tests} & self._tests
        return Fault(mutation, sorted(names), is_of_import)


def _try_imported(folder: Folder, sandbox: Sandbox) -> None:
    """Try the faults that need an interpreter of their own, the cheapest first."""
    results = KillFile(folder.kills)
    tried = {kill.name for kill in results.read()}
    seconds, unsound = folder.seconds(), folder.unsound()
    left = [f for f in folder.plan() if f.needs_import and f.mutation.name not in tried]
    place = sandbox.folder / "place-matrix"
    place.mkdir(exist_ok=True)
    for fault in sorted(left, key=lambda f: sum(seconds[test] for test in f.tests)):
        tests = [test for test in fault.tests if test not in unsound]
        chosen, failed = place / "tests", place / "failed"
        chosen.write_text("\n".join(tests), "utf-8")
        failed.unlink(missing_ok=True)
        files = sorted({file_of(test) for test in tests})
        environment = {"ZT_MUTANTS_TESTS": str(chosen), "ZT_MUTANTS_FAILED": str(failed)}
        limit_s = _START_S + _PATIENCE * sum(seconds[test] for test in tests)
        command = sandbox.pytest(*_PYTEST, *files)
        status = sandbox.run(command, environment, limit_s, fault.mutation, place / "mutant.py")
        names = {*_lines(failed)} & {*tests}
        is_cut = status not in (0, 1) or (status == 1 and not names)
        results.append(kill_of(fault, names or ["an import"] if is_cut else names, is_cut=is_cut))


# ------------------------------------------------------------------------ show


def room_of(path: str) -> str:
    """Return the folder of a module, under which its figures count."""
    words = path.split("/")
    if words[0] == "zmqtriton":
        return "/".join(words[: 2 + (len(words) > 2)]).removesuffix(".py").removesuffix("/__init__")
    return "/".join(words[1:3]).removesuffix(".py")


def table(results: list[Kill]) -> Iterator[str]:
    rows = defaultdict[str, Counter[str]](Counter)
    for kill in results:
        for name in (room_of(kill.path), "all"):
            rows[name]["tried"] += 1
            rows[name]["noticed"] += bool(kill.noticed_by)
            rows[name]["cut"] += kill.is_cut
    yield f"{'':44}{'tried':>8}{'noticed':>9}{'nobody':>8}{'cut':>6}"
    for name in [*sorted(rows.keys() - {"all"}), *(["all"] if rows else [])]:
        row = rows[name]
        nobody = row["tried"] - row["noticed"]
        yield f"{name:44}{row['tried']:8}{row['noticed']:9}{nobody:8}{row['cut']:6}"


def nobody(results: list[Kill]) -> Iterator[str]:
    for kill in sorted(results, key=lambda kill: (kill.path, kill.line)):
        if not kill.noticed_by and not kill.is_cut:
            yield f"{kill.path}:{kill.line} {kill.change} [reached by {kill.reached_by}]"


def alone(results: list[Kill]) -> Iterator[str]:
    for test, only in sorted(kills.alone(results).items()):
        yield test
        for kill in only:
            yield f"    {kill.path}:{kill.line} {kill.change}"


def others(
    results: list[Kill], tests: set[str], reaching: Counter[str], lines: Mapping[str, set[str]]
) -> Iterator[str]:
    """Return, by file, the faults that each test noticed of those it reaches, and the cover."""
    noticed, chosen = kills.by_test(results), {*kills.cover(results, lines)}
    unique = kills.alone(results)
    for test in sorted(tests - unique.keys()):
        sign = "cover" if test in chosen else "spare" if reaching[test] else "unmet"
        yield f"{sign} {len(noticed.get(test, ())):5} of {reaching[test]:5}  {test}"


def _show(folder: Folder, words: list[str]) -> int:
    results = KillFile(folder.kills).read()
    tried = {kill.name for kill in results}
    tests = {kills.function_of(test) for test in folder.seconds()}
    reaching = Counter[str]()
    planned = 0
    for fault in folder.plan():
        planned += 1
        if fault.mutation.name in tried:
            reaching.update({kills.function_of(test) for test in fault.tests})
    lines = Reached(folder.path / "coverage.main", {*folder.seconds()}).by_test()
    rows = [*others(results, tests, reaching, lines)]
    for word in words:
        pages = {"nobody": nobody(results), "alone": alone(results), "others": iter(rows)}
        print("\n".join(pages[word]))
    if not words:
        print("\n".join(table(results)))
        signs = Counter(row.split()[0] for row in rows)
        print(f"\n{len(results)} of {planned} faults that quick tests reach; {len(tests)} tests:")
        print(f"{len(tests) - len(rows):6} alone notice a fault")
        print(f"{signs['cover']:6} complete a cover of all that is noticed")
        print(f"{signs['spare']:6} notice nothing that these do not")
        print(f"{signs['unmet']:6} reach none of the faults")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants.matrix", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("command", choices=("run", "show"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("words", nargs="*", metavar="PATH", help="or nobody, alone, others")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_intermixed_args()
    folder = Folder(options.folder.resolve())
    if options.command == "show":
        return _show(folder, options.words)
    try:
        return run(folder, options.seed, options.count, options.jobs, tuple(options.words))
    except NoSandbox as error:
        print(f"no fault can be tried here: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
