"""Fixtures and hooks of all tests: among them the search for what tests leave behind."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import psutil
import pytest
from hypothesis.internal.conjecture import providers

from tests.session import order, servers, tiers
from tests.session.file_times import FileTimes
from tests.support import leaks
from tests.support.needs import LeftOut, environment_program, skip_missing

# The same examples each time, however slow the machine is: what has passed must pass again.
hypothesis.settings.register_profile(
    "same",
    deadline=None,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("same")
# Constants of our modules would be among the examples, but only of those that are imported by then:
# of one file alone others than of all. To look for them takes seconds in each process.
providers._get_local_constants = lambda: providers._local_constants

# gRPC, which some tests have used, would otherwise go on in what others start: between fork and
# exec, where its descriptors are closed under it and it aborts.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

# Images of containers often forbid bytecode. Without it each of the thousands of processes that
# tests start compiles all that it imports, and each worker all tests: a third of the whole time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

#: One of several processes that test at once (`make test`).
_IS_XDIST_WORKER = "PYTEST_XDIST_WORKER" in os.environ
_SHARED_MEMORY = pytest.StashKey[frozenset[str]]()
#: Where the temporary files of this session are; they stay if a test fails.
_OWN_PLACE = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick", action="store_true", help="leave out what is slow: tests.session.tiers"
    )
    parser.addoption(
        "--tier", choices=[tiers.FIRST, tiers.LONG], help="without what is long, or that alone"
    )
    parser.addoption(
        "--extras", choices=[tiers.SMOKE], help="of extras, the tests that say whether they work"
    )
    parser.addoption(
        "--share", metavar="K/N", help="a share of the files: the K-th of N, from 0 on"
    )
    parser.addoption("--order-seed", help="decides the order of files, and of tests within a file")
    parser.addoption(
        "--durations-files", type=int, metavar="N", help="the N files that cost most CPU; 0: all"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if not config.option.basetemp and not _IS_XDIST_WORKER:
        # each session of the same user closes the place that all of them have by default, and
        # models of another user reach their files no more
        config.option.basetemp = tempfile.mkdtemp(prefix="zmqtriton-tests-")
        config.stash[_OWN_PLACE] = config.option.basetemp
    config.pluginmanager.register(order)
    config.pluginmanager.register(servers)
    config.pluginmanager.register(tiers)
    number = config.getoption("--durations-files")
    if number is not None:
        config.pluginmanager.register(FileTimes(number))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector, which would find nothing among a million objects."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Let each of several processes begin a folder with another file.

    In a new checkout each file is compiled by the process that comes to it first; all of them
    would come to each file at the same time, and compile it.
    """
    report = yield
    if _IS_XDIST_WORKER and isinstance(collector, pytest.Directory) and report.passed:
        number = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
        first = len(report.result) * number // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        report.result = [*report.result[first:], *report.result[:first]]
    return report


def pytest_collection_finish() -> None:
    """Take what is there now out of the collector's sight.

    Ten thousand tests are a million objects: each collection that a test asks for, so as to see
    what is freed, would walk through them for half a second. So would one here, in each process;
    the garbage of collecting tests is a sixth of them, and stays.
    """
    gc.freeze()


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Take also what a file has left, such as reports and mocks, out of the collector's sight."""
    if item.config.getoption("--quick") and (nextitem is None or nextitem.path != item.path):
        gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute files as `--dist loadfile` does, and the files of some folders together."""
    if config.getoption("dist") != "loadfile":
        return None
    from tests.session.file_scheduling import FileScheduling

    return FileScheduling(config, log)


def pytest_sessionstart(session: pytest.Session) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # we are in a shell's background; what tests start must not ignore it, too
        signal.signal(signal.SIGINT, signal.default_int_handler)
    session.config.stash[_SHARED_MEMORY] = leaks.shared_memory()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Looks for names that are left when all testing processes have ended."""
    if _IS_XDIST_WORKER:
        return
    if session.exitstatus == pytest.ExitCode.OK and _OWN_PLACE in session.config.stash:
        shutil.rmtree(session.config.stash[_OWN_PLACE], ignore_errors=True)
    left = leaks.leaked_shared_memory(session.config.stash[_SHARED_MEMORY])
    if left:
        session.config.get_terminal_writer().line(f"left behind: {left}", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session", autouse=True)
def session_mark() -> Iterator[str]:
    """The mark of this session's processes; at its end none may be left."""
    mark = leaks.mark_session()
    before = leaks.take_snapshot(mark)

    yield mark

    # What was imported meanwhile keeps its descriptors.
    assert leaks.leaked_processes(before, mark) == []


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest, session_mark: str) -> Iterator[None]:
    """Fails a test with real processes that leaves any of them, or memory, or descriptors."""
    if request.node.get_closest_marker("system") is None:
        yield
        return
    before = leaks.take_snapshot(session_mark, beside_others=_IS_XDIST_WORKER)

    yield

    assert leaks.find_leaks(before, session_mark) == []


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that needs an extra which this copy of the tree lacks on purpose."""
    lacking = os.environ.get("ZT_WITHOUT_EXTRAS", "").split()
    needed = [name for mark in item.iter_markers("extra") for name in mark.args]
    if missing := sorted({*needed} & {*lacking}):
        raise LeftOut(f"this copy has no {', '.join(missing)}")


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, object, object]:
    """Skip a test that looks into processes of the server, if that is for root alone.

    They hide their memory from other processes of their user: /proc/PID has files of root's.
    """
    try:
        return (yield)
    except (PermissionError, psutil.AccessDenied) as error:
        path = str(getattr(error, "filename", None) or "/proc/")
        if not os.geteuid() or not path.startswith("/proc/"):
            raise
        skip_missing(f"root's sight of hidden processes: {error}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a skipped test that holds a row of docs/conformance.md where everything must run."""
    report = yield
    holds_a_row = item.get_closest_marker("row") and not item.get_closest_marker("gpu")
    is_left_out = call.excinfo is not None and isinstance(call.excinfo.value, LeftOut)
    if report.skipped and holds_a_row and not is_left_out and os.environ.get("ZT_CI"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} holds a row of docs/conformance.md and was skipped"
    return report


@pytest.fixture
def python_with_protobuf7() -> Path:
    """An interpreter with the server and protobuf 7."""
    return environment_program(".venv-protobuf7")


@pytest.fixture
def python_with_pytriton() -> Path:
    """An interpreter with NVIDIA's PyTriton and nothing of ours."""
    return environment_program(".venv-pytriton")


@pytest.fixture(scope="session")
def python_with_kserve() -> Path:
    """An interpreter with KServe's clients and nothing of ours."""
    return environment_program(".venv-clients/kserve")


@pytest.fixture(scope="session")
def python_with_mlserver() -> Path:
    """An interpreter with MLServer and nothing of ours."""
    return environment_program(".venv-clients/mlserver")


@pytest.fixture(scope="session")
def perf_analyzer() -> list[str]:
    """The beginning of a command line of NVIDIA's perf_analyzer."""
    program = environment_program(".venv-clients/perf_analyzer", "perf_analyzer")
    cuda = program.parent.parent.glob("lib/python3*/site-packages/nvidia/cuda_runtime/lib")
    command = ["env", f"LD_LIBRARY_PATH={':'.join(map(str, cuda))}", str(program)]
    probe = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    if probe.returncode:
        skip_missing(f"what perf_analyzer needs: {probe.stderr.strip()}")
    return command
