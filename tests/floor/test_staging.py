"""Processes of a server to each other: names, lifelines and staged files."""

from __future__ import annotations

import ctypes
import gc
import os
import socket
import stat
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.refusals import refusal
from zmqtriton_floor import prctl, staging, wire
from zmqtriton_floor.errors import InternalError, InvalidArgument
from zmqtriton_floor.lifeline import Lifeline, pair

# ----------------------------------------------------------------------------- staging


def written(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_files_are_written_where_nobody_may_go_but_the_server(tmp_path: Path) -> None:
    os.umask(previous := os.umask(0))
    os.umask(0)
    try:
        name = staging.stage(str(tmp_path), 7, {"file:1/model.py": b"x", "file:1//a/./b": b""})
    finally:
        os.umask(previous)

    root = tmp_path / "files" / name
    assert name.startswith("7-")
    assert {"1/model.py": b"x", "1/a/b": b""} == written(root)
    assert 0o700 == stat.S_IMODE(root.parent.stat().st_mode)
    # for stubs of other users, if the server lets them in
    assert {0o777} == {stat.S_IMODE(p.stat().st_mode) for p in [root, root / "1", root / "1/a"]}
    assert {0o666} == {stat.S_IMODE((root / p).stat().st_mode) for p in written(root)}


def test_each_load_has_a_directory_of_its_own(tmp_path: Path) -> None:
    assert 3 == len({staging.stage(str(tmp_path), 7, {"file:a": b"x"}) for _ in range(3)})


@pytest.mark.row("C71")
@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("../x", "../x"),
        ("..", ".."),
        ("a/../../b", "../b"),
        ("1/./../../x", "../x"),
        ("/abs", "/abs"),
        ("//abs", "//abs"),
        ("../m/1/model.py", "../m/1/model.py"),
    ],
)
def test_a_path_that_leads_outside_is_refused(tmp_path: Path, name: str, path: str) -> None:
    assert (
        f"Invalid file parameter 'file:{name}' with normalized path '{path}' must stay within "
        "model directory."
    ) == refusal(
        InvalidArgument,
        staging.stage,
        str(tmp_path),
        7,
        {"file:1/model.py": b"", f"file:{name}": b""},
    )
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ([""], "with normalized path '.' must name a file"),
        (["."], "with normalized path '.' must name a file"),
        (["a/.."], "with normalized path '.' must name a file"),
        (["1/"], "with normalized path '1' must name a file"),
        (["1/x/.."], "with normalized path '1' must name a file"),
        (["1/model.py", "1"], "'file:1/model.py' with normalized path '1/model.py' clashes with"),
        (["1/model.py/x", "1/model.py"], "clashes with 'file:1/model.py'"),
        (["1/model.py", "1//model.py"], "clashes with 'file:1/model.py'"),
        (["a\0b"], "its path must not contain NUL"),
        (["x" * 256], "its path is too long"),
        (["1/" + "a/" * 300 + "b"], "its path is too long"),
        (["/".join(["x" * 200] * 20)], "its path is too long"),
        (["../\ud800"], "its name is no text"),
        (["../" * 100_000], "its path is too long"),
        ([str(number) for number in range(5000)], "at most 4096 files, not 5000"),
    ],
)
def test_what_is_no_path_of_a_file_is_refused(tmp_path: Path, files: list[str], said: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        staging.stage(str(tmp_path), 7, {f"file:{name}": b"" for name in files})

    assert said in refused.value.text
    assert len(refused.value.text) < 500
    assert [] == list(tmp_path.iterdir())


def test_what_is_wrong_is_left_for_the_supervisor_to_say(tmp_path: Path) -> None:
    outside = staging.arguments(str(tmp_path), 7, "m", {"config": "{}"}, {"file:../x": b""})
    alone = staging.arguments(str(tmp_path), 7, "m", {}, {"file:x": b""})

    assert outside["files"]["refusal"].startswith("Invalid file parameter 'file:../x'")
    assert {"model": "m", "parameters": {}, "files": {"refusal": ""}} == alone
    assert [] == list(tmp_path.iterdir())


def test_a_load_without_files_names_none(tmp_path: Path) -> None:
    assert {"model": "m", "parameters": {}} == staging.arguments(str(tmp_path), 7, "m", {}, {})


def test_nothing_is_left_where_the_disk_does_not_take_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: str, content: bytes) -> None:
        if content:
            raise OSError(28, "No space left on device")
        Path(path).touch()

    monkeypatch.setattr(staging, "_write", full)
    with pytest.raises(InternalError, match="No space left on device"):
        staging.stage(str(tmp_path), 7, {"file:1/a": b"", "file:1/b": b"x"})

    assert [] == list((tmp_path / "files").iterdir())


def test_what_nobody_loads_is_discarded(tmp_path: Path) -> None:
    staging.discard(str(tmp_path), staging.stage(str(tmp_path), 7, {"file:1/a": b""}))

    assert [] == list((tmp_path / "files").iterdir())


# ------------------------------------------------------------------------------- prctl
# Requests to the kernel about this process, and its end.


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("stub resnet", "stub resnet"),
        ("stub of_a_long_name", "stub of_a_long_"),
        ("stub 名前のモデル", "stub 名前の"),
    ],
)
def test_a_long_name_is_cut_and_no_letter_with_it(name: str, kept: str) -> None:
    def look() -> bytes:
        prctl.set_name(name)  # of this thread, which ends
        return Path("/proc/thread-self/comm").read_bytes()

    with ThreadPoolExecutor(1) as threads:
        assert f"{kept}\n".encode() == threads.submit(look).result()


def test_the_kernel_adds_nothing_to_the_waits_of_a_thread() -> None:
    get_timer_slack = 30
    libc = ctypes.CDLL(None)

    def look() -> tuple[int, int]:
        before = libc.prctl(get_timer_slack, 0, 0, 0, 0)
        prctl.wake_in_time()
        return before, libc.prctl(get_timer_slack, 0, 0, 0, 0)

    with ThreadPoolExecutor(1) as threads:
        before, after = threads.submit(look).result()

    assert 1 == after < before


def _end_of(program: str, stdout: int = subprocess.PIPE) -> tuple[int, list[str]]:
    """Return the status and the lines of a program that runs its function `main`."""
    code = f"""
import atexit, sys, threading, time
from zmqtriton_floor import prctl
{textwrap.dedent(program)}
prctl.run_program(main)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdout=stdout,
        stderr=subprocess.STDOUT if stdout == subprocess.PIPE else subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": ""},
        text=True,
    )
    return done.returncode, f"{done.stdout or ''}{done.stderr or ''}".splitlines()


def test_a_program_ends_as_in_python_but_for_destructors() -> None:
    program = """
        class Kept:
            def __del__(self):
                print("destroyed")
        kept = Kept()
        has_written = threading.Event()
        def say():
            has_written.wait()
            time.sleep(0.05)
            print("thread")
        def main():
            atexit.register(print, "exit function")
            threading.Thread(target=say).start()
            threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
            sys.stdout.write("without a line's end. ")
            has_written.set()
            return 3
    """

    assert (3, ["without a line's end. thread", "exit function"]) == _end_of(program)


@pytest.mark.parametrize(
    ("end", "status", "said"),
    [
        ("return None", 0, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit(300)", 300 & 0xFF, ""),
        ("sys.exit('a text')", 1, "a text"),
        ("raise ValueError('no')", 1, "ValueError: no"),
    ],
)
def test_the_status_of_a_program_is_that_of_python(end: str, status: int, said: str) -> None:
    ended, lines = _end_of(f"def main(): {end}")

    assert (status, said) == (ended, lines[-1] if lines else "")


def test_output_that_nobody_reads_is_told_as_by_python() -> None:
    read, write = os.pipe()
    os.close(read)

    status, lines = _end_of("def main(): print('unread')", stdout=write)

    os.close(write)
    assert (120, "BrokenPipeError: [Errno 32] Broken pipe") == (status, lines[-1])


# ---------------------------------------------------------------------------- lifeline
# Lifelines: whole messages in order, whatever their size, and descriptors with them.


@pytest.fixture
def ends() -> Iterator[tuple[Lifeline, Lifeline]]:
    left, right = map(Lifeline, pair())
    yield left, right
    left.close()
    right.close()


@pytest.fixture
def left(ends: tuple[Lifeline, Lifeline]) -> Lifeline:
    return ends[0]


@pytest.fixture
def right(ends: tuple[Lifeline, Lifeline]) -> Lifeline:
    return ends[1]


def test_what_does_not_decode_is_counted_and_its_descriptors_are_closed() -> None:
    ours, theirs = pair()
    right = Lifeline(theirs)
    reading, writing = os.pipe()

    socket.send_fds(ours, [b"\x01no message"], [writing])
    os.close(writing)

    assert ([], 1) == (right.receive(), right.malformed)
    assert b"" == os.read(reading, 1), "the writing end is closed everywhere"
    os.close(reading)
    ours.close()
    right.close()


def test_the_end_is_seen_though_a_fork_holds_a_copy(left: Lifeline, right: Lifeline) -> None:
    copy = os.dup(right.fileno())
    right.send(wire.Synced(1))

    right.close()

    assert [(wire.Synced(1), [])] == left.receive()
    assert left.ended
    os.close(copy)


def test_a_fork_abandons_its_copy_and_the_lifeline_goes_on(left: Lifeline, right: Lifeline) -> None:
    Lifeline.inherited(os.dup(right.fileno())).abandon()
    right.send(wire.Synced(1))

    assert [(wire.Synced(1), [])] == left.receive()
    assert not left.ended


def test_threads_may_send_at_once(left: Lifeline, right: Lifeline) -> None:
    def send() -> None:
        for _ in range(200):
            left.send(wire.Sync(5))

    senders = [threading.Thread(target=send) for _ in range(4)]

    for thread in senders:
        thread.start()
    got = 0
    while got < 800:
        assert right.wait(10)
        got += len(right.receive())
        left.flush()
    for thread in senders:
        thread.join()

    assert 0 == right.malformed


def test_waiting_ends_after_the_timeout(right: Lifeline) -> None:
    assert not right.wait(0.001)


def test_what_the_dead_have_sent_is_received_though_nothing_can_be_sent_to_them(
    left: Lifeline, right: Lifeline
) -> None:
    right.send(wire.Sync(1))
    right.close()

    left.send(wire.Sync(2))
    left.send(wire.Sync(3))

    assert not left.ended
    assert not left.is_backed_up
    assert [wire.Sync(1)] == [message for message, _ in left.receive()]
    assert left.ended


class _LastWord:
    """Sends something when the collector destroys it, as an object of a model that logs does."""

    def __init__(self, lifeline: Lifeline) -> None:
        self._lifeline = lifeline
        self._own = self

    def __del__(self) -> None:
        self._lifeline.send(wire.Finalize())


class _Collecting:
    """A descriptor that is asked for amid the sending, where a collection comes."""

    def __init__(self, lifeline: Lifeline, descriptor: int) -> None:
        self._lifeline = lifeline
        self._descriptor = descriptor

    def __index__(self) -> int:
        _LastWord(self._lifeline)
        gc.collect()
        return self._descriptor


def test_what_is_destroyed_while_a_message_is_sent_may_send_one_too() -> None:
    near, far = map(Lifeline, pair())
    descriptor = cast(int, _Collecting(near, near.fileno()))

    # a daemon: it would wait for itself
    sender = threading.Thread(target=near.send, args=(wire.Synced(7), descriptor), daemon=True)
    sender.start()
    received: list[tuple[Any, list[int]]] = []
    while len(received) < 2 and far.wait(20):
        received += far.receive()

    sender.join(20)
    assert not sender.is_alive()
    assert [wire.Finalize(), wire.Synced(7)] == [message for message, _ in received]
    for _, descriptors in received:
        for number in descriptors:
            os.close(number)
    near.close()
    far.close()
