"""Checks of the machine before a start."""

from __future__ import annotations

import errno
import os
import resource
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.refusals import refusal
from tests.support.server import free_ports
from zmqtriton.host import fitness
from zmqtriton.host.fitness import TaskLimit
from zmqtriton.options import parse
from zmqtriton.start.checks import check_numbers, find_problems

# ------------------------------------------------------------------------ start checks
# The problems that would stop the start of a server, all of them at once.


_OFF = ("--allow-grpc=false", "--allow-metrics=false", "--http-address=127.0.0.1")


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that a process of another program has: this one."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def problems(tmp_path: Path, *words: str) -> list[str]:
    return list(find_problems(parse([f"--model-repository={tmp_path}", *_OFF, *words])))


def test_a_server_that_can_start_has_none(tmp_path: Path) -> None:
    log = tmp_path / "log"

    assert [] == problems(tmp_path, "--http-port=0", f"--log-file={log}")
    assert not log.exists()


@pytest.mark.slow
def test_all_are_told(tmp_path: Path, taken: int) -> None:
    tls = ("--http-use-ssl=true", "--http-server-cert=/no/cert", "--http-server-key=/no/key")
    words = (
        "--exit-timeout-secs=-1",
        "--http-workers=5000",
        "--grpc-processes=6000",
        "--http-restricted-api=trace:k=@/no/secret",
        "--tokens=/no/tokens",
        *tls,
        "--log-file=/no/directory/log",
        f"--http-port={taken}",
    )

    texts = problems(tmp_path, *words)

    beginnings = (
        "--exit-timeout-secs=-1: ",
        "--http-workers=5000: ",
        "--http-restricted-api: /no/secret",
        "--tokens=/no/tokens: ",
        "--http-server-cert=/no/cert, ",
        "cannot open the log file '/no/directory/log', choose another --log-file",
        "failed to start HTTP service: ",
    )
    assert len(beginnings) == len(texts), texts
    assert all(map(str.startswith, texts, beginnings)), texts


@pytest.mark.slow
def test_a_port_of_a_running_server_is_no_problem_and_another_beside_it_is(
    tmp_path: Path, taken: int
) -> None:
    program = tmp_path / "server.py"
    program.write_text(
        "import socket\nfrom zmqtriton_floor import prctl\nprctl.set_name('zmqtriton')\n"
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "print(server.getsockname()[1], flush=True)\ninput()\n"
    )
    command = [sys.executable, str(program)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        ports = [f"--http-port={int(running.stdout.readline())}", f"--metrics-port={taken}"]
        texts = problems(tmp_path, *ports, "--allow-metrics=true")
        running.communicate(b"\n")

    [text] = texts
    assert text.startswith("failed to start Metrics service: ")


@pytest.mark.parametrize("word", ["--exit-timeout-secs=-1", "--grpc-processes=6000"])
def test_numbers_stop_the_start(word: str) -> None:
    with pytest.raises(OSError, match=word):
        check_numbers(parse(["--model-repository=/srv", word]))


def test_an_encoding_other_than_utf_8_stops_no_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "iso8859-1")

    [lack] = fitness.lacks(parse([f"--model-repository={tmp_path}"]))

    assert "texts and names of files are encoded as iso8859-1 here, not as UTF-8" == lack.text
    assert not lack.is_fatal


# ------------------------------------------------------------------------- task limits
# Limits of processes and threads, as /proc and /sys show them.


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
    return list(fitness.task_limits(root))


def test_a_machine_may_have_none(root: Path) -> None:
    assert [] == limits(root)
    assert "see kernel.pid_max and kernel.threads-max" == fitness.explain_task_limits(root)


def test_each_control_group_around_the_process_counts(root: Path) -> None:
    write(root / "proc/self/cgroup", "3:cpu:/else\n0::/a/b\n")
    for group, maximum, used in (("a/b", "max", 4), ("a", "20", 15), (".", "100", 90)):
        write(root / "sys/fs/cgroup" / group / "pids.max", f"{maximum}\n")
        write(root / "sys/fs/cgroup" / group / "pids.current", f"{used}\n")

    name = "pids.max of the control group"
    assert [TaskLimit(name, 20, 15), TaskLimit(name, 100, 90)] == limits(root)
    assert f"{name} allows 20 processes and threads" == fitness.explain_task_limits(root)


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
    assert 3 + 4 + 2 + 1 + 1 == fitness.needed_tasks(parse(words)).least
    assert (
        3 + 4 + 0 + 0 + 1
        == fitness.needed_tasks(
            parse([*words, "--allow-grpc=false", "--allow-metrics=false"])
        ).least
    )
    assert 5 * 3 + 4 == fitness.needed_tasks(parse(words)).usual - 11
    monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    assert 11 + 2 * 7 == fitness.needed_tasks(parse(words)).least


@pytest.mark.parametrize(
    "line",
    [
        "OpenBLAS blas_thread_init: pthread_create failed for thread 1 of 2: Resource ...",
        "RuntimeError: can't start new thread",
        "sh: 1: fork: Resource temporarily unavailable",
    ],
)
def test_programs_say_in_their_own_words_that_they_cannot_have_a_thread(line: str) -> None:
    assert fitness.is_task_shortage(line)
    assert not fitness.is_task_shortage("ValueError: a thread is missing")


# ----------------------------------------------------------------------------- judging
# Lacks of a machine, in words for its operator.


def test_a_machine_without_proc_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    options = parse(["--model-repository=/models"])
    assert not [lack for lack in fitness.lacks(options) if "/proc" in lack.text]

    monkeypatch.setattr(os.path, "exists", lambda path: not path.startswith("/proc"))

    first = next(fitness.lacks(options))
    assert ("/proc is not mounted", True) == (first.text, first.is_fatal)


# ------------------------------------------------------------------------ python build
# Builds of Python on which the server says that it does not run.


def test_a_free_threaded_build_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    options = parse(["--model-repository=/m"])
    fitness.check(options)
    monkeypatch.setattr(sysconfig, "get_config_var", {"Py_GIL_DISABLED": 1}.get)

    sentence = f"{sys.executable} is a free-threaded build of Python, which is not supported"
    assert f"{sentence}\n  {fitness.PYTHON_ADVICE}" == refusal(OSError, fitness.check, options)


@pytest.mark.parametrize("value", [0, None], ids=["the usual build", "Python 3.12"])
def test_others_are_taken(monkeypatch: pytest.MonkeyPatch, value: object) -> None:
    monkeypatch.setattr(sysconfig, "get_config_var", {"Py_GIL_DISABLED": value}.get)

    assert "" == fitness.python_problem()


# --------------------------------------------------------------------------- one cause
# A lack is named by its cause, and without what follows from it.


def _start(limit: str) -> str:
    """Return what a start prints under a limit of file sizes."""
    [port] = free_ports(1)
    words = [sys.executable, "-m", "zmqtriton", "--model-repository=/nowhere"]
    words += [f"--http-port={port}", "--allow-grpc=false", "--allow-metrics=false"]
    script = f'ulimit {limit}; exec "$@" 2>&1 | cat'  # no file of this user's may be written
    done = subprocess.run(
        ["sh", "-c", script, "sh", *words], capture_output=True, text=True, check=False
    )
    return done.stdout


@pytest.mark.slow
def test_a_limit_of_file_sizes_is_no_matter_of_a_seccomp_profile() -> None:
    text = _start("-f 0")

    assert text.startswith("error: ulimit -f allows files of 0 bytes"), text
    assert "seccomp" not in text


@pytest.mark.slow
def test_a_limit_of_file_sizes_that_may_be_raised_is_none() -> None:
    assert "failed to stat file /nowhere" in _start("-S -f 0")


def test_an_event_descriptor_that_cannot_be_had_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: int) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(os, "eventfd", fail)

    [text] = fitness.missing_calls()
    assert text.startswith("eventfd() does not work here: Function not implemented (kernel ")


@pytest.mark.slow
@pytest.mark.parametrize("module", ["zmqtriton", "zmqtriton.ctl.main"])
def test_a_python_without_ctypes_is_one_sentence(tmp_path: Path, module: str) -> None:
    (tmp_path / "_ctypes.py").write_text("raise ImportError(\"No module named '_ctypes'\")\n")
    done = subprocess.run(
        [sys.executable, "-m", module, "--help"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    sentence = f"error: {sys.executable} has no ctypes (No module named '_ctypes'): build this "
    assert (1, True) == (done.returncode, done.stderr.startswith(sentence)), done.stderr
    assert 1 == len(done.stderr.splitlines())
