"""Limits of processes and threads, as /proc and /sys show them."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from zmqtriton.options import parse
from zmqtriton.supervisor.machine.fitness import task_limits
from zmqtriton.supervisor.machine.fitness.task_limits import TaskLimit

_USER = "Uid:\t{0}\t{0}\t{0}\t{0}\nThreads:\t{1}\n"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with processes of this user, and of others."""
    user = os.getuid()
    files = {
        "proc/self/uid_map": "0 0 4294967295",
        "proc/self/status": "CapEff:\t0000000000000000\n",
        "proc/1/status": _USER.format(user + 1, 100),
        "proc/20/status": _USER.format(user, 2),
        "proc/21/status": _USER.format(user, 3),
    }
    for name, text in files.items():
        write(tmp_path / name, text)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY,) * 2)
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def limits(root: Path) -> list[TaskLimit]:
    return list(task_limits.task_limits(root))


def test_a_machine_may_have_none(root: Path) -> None:
    assert [] == limits(root)
    assert "see kernel.pid_max and kernel.threads-max" == task_limits.explain(root)


def test_each_control_group_around_the_process_counts(root: Path) -> None:
    write(root / "proc/self/cgroup", "3:cpu:/else\n0::/a/b\n")
    for group, maximum, used in (("a/b", "max", 4), ("a", "20", 15), (".", "100", 90)):
        write(root / "sys/fs/cgroup" / group / "pids.max", f"{maximum}\n")
        write(root / "sys/fs/cgroup" / group / "pids.current", f"{used}\n")

    name = "pids.max of the control group"
    assert [TaskLimit(name, 20, 15), TaskLimit(name, 100, 90)] == limits(root)
    assert f"{name} allows 20 processes and threads" == task_limits.explain(root)


def test_a_container_sees_its_group_as_the_root_of_the_first_version(root: Path) -> None:
    write(root / "proc/self/cgroup", "4:cpu,pids:/docker/123\n")
    write(root / "sys/fs/cgroup/pids/pids.max", "30")
    write(root / "sys/fs/cgroup/pids/pids.current", "1")

    assert [29] == [limit.left for limit in limits(root)]


def test_a_limit_of_the_user_counts_all_its_threads_unless_it_is_privileged(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (50, 60))
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    for number in (30, 31):
        write(root / f"proc/{number}/status", _USER.format(4711, 4))

    assert [TaskLimit("ulimit -u of the user", 50, 8)] == limits(root)
    write(root / "proc/self/status", f"CapEff:\t{1 << 24:016x}\n")
    assert [] == limits(root)
    # root of a container with users of its own is a user of the machine
    write(root / "proc/self/uid_map", "0 100000 65536")
    assert [50] == [limit.maximum for limit in limits(root)]


def test_a_server_needs_more_with_more_frontends_and_threads_of_libraries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    words = ["--model-repository=/srv", "--http-workers=3", "--grpc-processes=2"]

    # fork server, its fork, broker; arbiter and workers; gRPC; metrics; an instance
    assert 3 + 4 + 2 + 1 + 1 == task_limits.needed(parse(words)).least
    assert (
        3 + 4 + 0 + 0 + 1
        == task_limits.needed(parse([*words, "--allow-grpc=false", "--allow-metrics=false"])).least
    )
    assert 5 * 3 + 4 == task_limits.needed(parse(words)).usual - 11
    monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    assert 11 + 2 * 7 == task_limits.needed(parse(words)).least


@pytest.mark.parametrize(
    "line",
    [
        "OpenBLAS blas_thread_init: pthread_create failed for thread 1 of 2: Resource ...",
        "RuntimeError: can't start new thread",
        "sh: 1: fork: Resource temporarily unavailable",
    ],
)
def test_programs_say_in_their_own_words_that_they_cannot_have_a_thread(line: str) -> None:
    assert task_limits.is_shortage(line)
    assert not task_limits.is_shortage("ValueError: a thread is missing")
