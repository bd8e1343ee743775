"""A plugin of pytest: tries many faults in one interpreter that has imported all tests.

Each fault has a fork, where its function has the mutant's code. ZT_MUTANTS_MATRIX names the folder
of the matrix; `tools.mutants.matrix` starts this.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import importlib.machinery
import inspect
import os
import resource
import select
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import psutil
import pytest

from tools.mutants.kills import ENOUGH, Fault, KillFile, function_of, kill_of
from tools.mutants.matrix import Folder
from tools.mutants.mutations import Mutation
from tools.mutants.reach import file_of
from tools.mutants.rooms import ROOT

_PR_SET_CHILD_SUBREAPER = 36
_MAX_MEMORY = 4 << 30
#: A test hangs if it computes or waits for longer than this, and than many times what it took.
#: What a busy machine keeps waiting is neither.
_MAX_S = 10.0
_PATIENCE = 2.0
#: A fault with more tests that hang is given up.
_MAX_HANGING = 2
#: So few tests that failed are tried again, each in a fork of its own: one may have failed another.
_MAX_CONFIRMED = 12

#: File, name and first line.
Place = tuple[str, str, int]


class NeedsImport(Exception):
    """Raised if no imported function has the code of the fault."""


def codes(
    functions_at: Mapping[Place, list[FunctionType]], path: str, source: bytes, mutant: bytes
) -> tuple[list[FunctionType], CodeType]:
    """Return the functions that have a fault, with their inner functions, and the mutant's code."""
    before, after = (
        _outer_codes(compile(text, path, "exec", dont_inherit=True)) for text in (source, mutant)
    )
    # what comes behind the fault may have moved to other lines
    for place, code in after.items():
        if code != before.get(place):
            functions = functions_at.get((path, *place), [])
            if functions and all(f.__code__.co_freevars == code.co_freevars for f in functions):
                return functions, code
            break
    raise NeedsImport


def _outer_codes(code: CodeType) -> dict[tuple[str, int], CodeType]:
    """Return the code of a module's functions and methods, without the functions inside them."""
    outer = {}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & inspect.CO_NEWLOCALS:
                outer[constant.co_name, constant.co_firstlineno] = constant
            else:
                outer |= _outer_codes(constant)
    return outer


def exchange(functions: Collection[FunctionType], code: CodeType, caches: Iterable[Any]) -> None:
    """Give functions the code of the mutant, and clear their caches."""
    for function in functions:
        function.__code__ = code
    for each in caches:
        if each.__wrapped__ in functions:
            each.cache_clear()


def load_instead(path: str, mutant: bytes) -> None:
    """Replace the next import of this file by the mutant."""
    get_code = importlib.machinery.SourceFileLoader.get_code

    def get(self: importlib.machinery.SourceFileLoader, name: str) -> CodeType | None:
        if self.path == path:
            code: CodeType = compile(mutant, path, "exec", dont_inherit=True)
            return code
        return get_code(self, name)

    loader: Any = importlib.machinery.SourceFileLoader
    loader.get_code = get


class Interpreter:
    """The functions of all imported modules, and the caches of their results."""

    def __init__(self) -> None:
        self._functions = defaultdict[Place, list[FunctionType]](list)
        self._caches: list[Any] = []
        gc.unfreeze()
        for value in gc.get_objects():
            if isinstance(value, FunctionType):
                code = value.__code__
                place = (code.co_filename, code.co_name, code.co_firstlineno)
                self._functions[place].append(value)
            elif isinstance(value, functools._lru_cache_wrapper):
                self._caches.append(value)
        gc.freeze()
        self._imported = {getattr(module, "__file__", None) for module in [*sys.modules.values()]}

    def fault(self, mutation: Mutation) -> Callable[[], None]:
        """Return a function that puts a fault into this interpreter."""
        path = str(ROOT / mutation.path)
        source = Path(path).read_bytes()
        mutant = mutation.apply(source)
        if path not in self._imported:
            return functools.partial(load_instead, path, mutant)
        return functools.partial(
            exchange, *codes(self._functions, path, source, mutant), self._caches
        )


class Trial(NamedTuple):
    """The results that a fork has reported before it ended or was ended."""

    failed: set[str]
    hanging: int
    #: The tests that nobody has run, as too many hang.
    left: int


class Live:
    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._kills = KillFile(folder.kills)
        self._failed = False

    def pytest_configure(self) -> None:
        import hypothesis

        # an example that fails is enough: to look for a smaller one takes minutes
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        same = hypothesis.settings.get_profile("same")
        hypothesis.settings.register_profile("mutants", parent=same, phases=phases, database=None)
        hypothesis.settings.load_profile("mutants")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed = self._failed or report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> pytest.TestReport:
        """Report a test without the text of its failure, which would cost more than the test."""
        outcome: Any = "passed"
        text: Any = None
        when: Any = call.when
        if call.excinfo is not None:
            is_skipped = isinstance(call.excinfo.value, pytest.skip.Exception)
            outcome = "skipped" if is_skipped else "failed"
            text = ("", 0, "") if is_skipped else "failed"
        return pytest.TestReport(item.nodeid, item.location, {}, outcome, text, when, duration=0.0)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted("a file of tests cannot be imported")
        session.config.pluginmanager.unregister(name="terminalreporter")
        # what a fork leaves behind is ours, and no other process is
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._items = {item.nodeid: item for item in session.items}
        self._seconds = self._folder.seconds()
        self._interpreter = Interpreter()
        self._check_soundness()
        tried = {kill.name for kill in self._kills.read()}
        mine, of = self._folder.share
        for number, fault in enumerate(self._folder.plan()):
            if number % of == mine and fault.mutation.name not in tried and not fault.needs_import:
                self._try(fault)
        return True

    def _check_soundness(self) -> None:
        """Record the tests that fail without a fault: these cannot notice any."""
        if not self._folder.is_sound:
            self._folder.add_unsound(self._run([*self._items], lambda: None).failed)
        for test in self._folder.unsound():
            self._items.pop(test, None)

    def _try(self, fault: Fault) -> None:
        if self._folder.begin(fault.mutation.name):
            self._kills.append(kill_of(fault, ["the end of the process"], is_cut=True))
            return
        tests = self._cheapest_first([test for test in fault.tests if test in self._items])
        try:
            begin = self._interpreter.fault(fault.mutation)
        except NeedsImport:
            self._folder.leave_for_import(fault.mutation.name)
            return
        trial = self._run(tests, begin)
        failed = trial.failed
        if len(failed) <= _MAX_CONFIRMED and not trial.hanging:
            failed = {test for test in failed if self._run([test], begin).failed}
        self._kills.append(kill_of(fault, failed, is_cut=trial.left > 0))

    def _cheapest_first(self, tests: list[str]) -> list[str]:
        """Order tests by files, which share what they prepare, from the cheapest."""
        files = defaultdict[str, list[str]](list)
        for test in tests:
            files[file_of(test)].append(test)
        mean_s = {
            name: sum(self._seconds[test] for test in own) / len(own) for name, own in files.items()
        }
        return [test for name in sorted(files, key=mean_s.__getitem__) for test in files[name]]

    # -------------------------------------------------------------------- forks

    def _run(self, tests: list[str], begin: Callable[[], None]) -> Trial:
        failed = set[str]()
        left, hanging = tests, 0
        while left and hanging < _MAX_HANGING:
            done, ended_in, failures = self._fork(left, begin)
            failed |= failures
            if ended_in is not None:
                failed.add(ended_in)
                hanging += 1
            left = [] if is_enough(failed) else left[done:]
        return Trial(failed, hanging, len(left))

    def _fork(
        self, tests: list[str], begin: Callable[[], None]
    ) -> tuple[int, str | None, set[str]]:
        """Return the number of finished tests, one that ended or held up the fork, and failures."""
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            self._be_fork(tests, begin, writing)
        os.close(writing)
        failed = set[str]()
        done, is_complete = 0, False
        clock = _Clock(pid)
        buffer = b""
        while done < len(tests):
            ready, _, _ = select.select([reading], [], [], 0.5)
            if ready:
                data = os.read(reading, 1 << 16)
                if not data:
                    break
                buffer += data
                for sign in buffer.decode():
                    if sign == "F":
                        failed.add(tests[done])
                    done += 1
                buffer = b""
                clock.reset()
                if is_enough(failed):
                    break
            elif clock.is_over(_MAX_S + _PATIENCE * self._seconds.get(tests[done], 0.0)):
                break
        is_complete = done == len(tests) or is_enough(failed)
        os.close(reading)
        _end_children()
        if is_complete:
            return done, None, failed
        return done + 1, tests[done], failed

    def _be_fork(self, tests: list[str], begin: Callable[[], None], writing: int) -> None:
        try:
            os.setsid()
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(null, descriptor)
            resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY, _MAX_MEMORY))
            begin()
            for test, following in zip(tests, [*tests[1:], None], strict=True):
                self._failed = False
                item = self._items[test]
                nextitem = self._items[following] if following else None
                item.ihook.pytest_runtest_protocol(item=item, nextitem=nextitem)
                os.write(writing, b"F" if self._failed else b".")
        finally:
            os._exit(0)


def is_enough(failed: Collection[str]) -> bool:
    return len(failed) >= ENOUGH and len({*map(function_of, failed)}) >= ENOUGH


class _Clock:
    """The time that a fork has computed or slept for one test, without waits for a processor."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self.reset()

    def reset(self) -> None:
        self._since_s = self._now_s = time.monotonic()
        self._waited_s = 0.0
        self._cpu_s = self._cpu()

    def is_over(self, limit_s: float) -> bool:
        now_s = time.monotonic()
        try:
            if self._process.status() != psutil.STATUS_RUNNING:
                self._waited_s += now_s - self._now_s
        except psutil.Error:
            return True
        self._now_s = now_s
        return max(self._waited_s, self._cpu() - self._cpu_s) > limit_s

    def _cpu(self) -> float:
        try:
            times = self._process.cpu_times()
            return float(times.user + times.system)
        except psutil.Error:
            return 0.0


def _end_children() -> None:
    """End the fork's child processes as well, and wait for all of them."""
    for child in _children():
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
            for child in _children():
                os.kill(child, signal.SIGKILL)


def _children() -> Iterator[int]:
    for child in psutil.Process().children(recursive=True):
        yield child.pid


def pytest_configure(config: pytest.Config) -> None:
    if folder := os.environ.get("ZT_MUTANTS_MATRIX"):
        live = Live(Folder(Path(folder)))
        live.pytest_configure()
        config.pluginmanager.register(live)
