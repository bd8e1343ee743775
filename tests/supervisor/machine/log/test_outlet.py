"""The log leaves the server through a thread, whatever stands at the other end."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.waiting import eventually
from zmqtriton.supervisor.machine.log import outlet as module
from zmqtriton.supervisor.machine.log.outlet import LogOutlet

_LOST = "lines of the log are lost here: nobody has read them in time"


@pytest.fixture(params=["pipe", "socket", "non-blocking pipe"])
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[int, int]]:
    """The reading and the writing end of something."""
    if request.param == "socket":
        pair = socket.socketpair()
        reading, writing = (end.detach() for end in pair)
    else:
        reading, writing = os.pipe()
        os.set_blocking(writing, request.param == "pipe")
    yield reading, writing
    os.close(reading)
    os.close(writing)


def read(descriptor: int, enough: Callable[[str], bool]) -> str:
    text = ""
    while not enough(text):
        text += os.read(descriptor, 65536).decode()
    return text


def test_a_line_is_there_when_its_writer_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        outlet = LogOutlet(file.fileno())
        # the first wait may be too short for a busy machine, and each may
        seen = set[bool]()
        for number in range(200):
            outlet.put(b"line %d\n" % number)
            seen.add(f"line {number}\n" in path.read_text())

        assert True in seen
        outlet.finish()
        assert 200 == path.read_text().count("\n")


def test_what_nobody_reads_holds_nobody_up_and_is_counted(ends: tuple[int, int]) -> None:
    reading, writing = ends
    outlet = LogOutlet(writing)
    line = b"x" * 999 + b"\n"
    kept = 0
    while outlet.lost < 100:
        outlet.put(line)
        kept += 1
    outlet.finish()  # which gives up

    text = read(reading, lambda text: _LOST in text)
    outlet.put(b"later\n")
    text += read(reading, lambda text: text.endswith("later\n"))

    kept -= outlet.lost
    assert [line.decode().strip()] * kept == text.splitlines()[:kept]
    assert [f"{outlet.lost} {_LOST}", "later"] == text.splitlines()[kept:]
    eventually(lambda: outlet.loss() == {"lost_lines": outlet.lost, "unread_s": 0.0}, 60)


def test_a_reader_that_waits_is_told_for_how_long() -> None:
    now_s = [0.0]
    reading, writing = os.pipe()
    outlet = LogOutlet(writing, clock=lambda: now_s[0])
    outlet.relay(b"x" * 100_000 + b"\n")
    eventually(lambda: outlet._began_s is not None, 60)

    now_s[0] = 7.0

    assert {"lost_lines": 0, "unread_s": 7.0} == outlet.loss()
    read(reading, lambda text: len(text) > 100_000)
    outlet.finish()
    os.close(reading)
    os.close(writing)


def test_writers_do_not_wait_for_a_slow_reader_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = [0.0]
    reading, writing = os.pipe()
    outlet = LogOutlet(writing, clock=lambda: now_s[0])
    waits: list[float] = []

    def wait(within_s: float | None = None) -> bool:
        assert within_s is not None
        waits.append(within_s)
        now_s[0] += within_s
        return False

    monkeypatch.setattr(outlet._has_written, "wait", wait)
    outlet.relay(b"x" * 200_000 + b"\n")

    for _ in range(20):
        outlet.put(b"line\n")
    assert module._PATIENCE_S <= sum(waits) < 1.1 * module._PATIENCE_S

    now_s[0] += 100 * module._PATIENCE_S
    outlet.put(b"line\n")
    assert module._PATIENCE_S == pytest.approx(waits[-1])
    monkeypatch.undo()
    read(reading, lambda text: text.count("line") == 21)
    outlet.finish()
    os.close(reading)
    os.close(writing)


def test_a_disk_that_is_full_is_told_once_a_minute_where_that_can_be_read() -> None:
    now_s, complaints = [5.0], list[str]()
    with open("/dev/full", "wb") as full:
        outlet = LogOutlet(full.fileno(), complaints.append, lambda: now_s[0])
        outlet.relay(b"line\n")
        eventually(lambda: outlet.lost == 1, 60)
        outlet.relay(b"line\nline\n")
        eventually(lambda: outlet.lost == 3, 60)
        now_s[0] = 65.0
        outlet.relay(b"line\n")
        eventually(lambda: len(complaints) == 2, 60)

    text = "cannot write the log: [Errno 28] No space left on device; lines lost so far: "
    assert [f"{text}1\n", f"{text}4\n"] == complaints


def test_the_log_says_what_a_full_disk_has_cost(tmp_path: Path) -> None:
    path = tmp_path / "log"
    full, free = os.open("/dev/full", os.O_WRONLY), os.open(path, os.O_WRONLY | os.O_CREAT)
    outlet = LogOutlet(full)
    for _ in range(3):
        outlet.put(b"line\n")
    eventually(lambda: outlet.lost == 3, 60)

    outlet.run_between(lambda: os.dup2(free, full))
    outlet.put(b"later\n")
    outlet.finish()

    text = "3 lines of the log are lost here: [Errno 28] No space left on device"
    assert [text, "later"] == path.read_text().splitlines()
    os.close(full)
    os.close(free)


def test_a_finalizer_that_prints_while_a_line_is_written_holds_nothing_up(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        outlet = LogOutlet(file.fileno())

        def print_within() -> None:
            with outlet._state:
                outlet.write("from a finalizer\n")

        thread = threading.Thread(target=print_within, daemon=True)
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
        outlet.finish()


@pytest.fixture
def no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)


@pytest.mark.usefixtures("no_thread")
def test_where_no_thread_can_begin_lines_are_written_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "log"
    ran = []
    with path.open("wb") as file:
        outlet = LogOutlet(file.fileno())
        outlet.put(b"first\n")
        outlet.relay(b"x" * 9_999 + b"\n")
        outlet.run_between(lambda: ran.append(path.read_text()))
        outlet.put(b"last\n")
        outlet.finish()

    says = "the log may lose lines where its reader is slow: can't start new thread"
    assert path.read_text().splitlines() == ["first", says, "x" * 9_999, "last"]
    assert len(ran) == 1
    assert "x" * 9_999 in ran[0]


@pytest.mark.usefixtures("no_thread")
def test_without_a_thread_what_nobody_reads_holds_nobody_up_either(ends: tuple[int, int]) -> None:
    reading, writing = ends
    outlet = LogOutlet(writing)
    line = b"x" * 999 + b"\n"
    while outlet.lost < 100:
        outlet.put(line)
    outlet.finish()

    def has_all(text: str) -> bool:
        outlet.put(b"later\n")
        return _LOST in text and text.endswith("later\n")

    text = read(reading, has_all)
    assert f"{outlet.lost} {_LOST}" in text.splitlines()
