"""The log: where it goes, and its newest lines."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import eventually
from zmqtriton.logs.log import LogOutlet
from zmqtriton.logs.log_ring import KeptLine, LogRing, ProcessLines, StubName
from zmqtriton_floor import logs

# ------------------------------------------------------------------------------ outlet
# The log leaves the server through a thread, whatever stands at the other end.


_LOST = "lines of the log are lost here: nobody has read them in time"


@pytest.fixture(params=["pipe", "socket", "non-blocking pipe"])
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[int, int]]:
    """The reading and the writing end of something."""
    if request.param == "socket":
        reading, writing = (end.detach() for end in socket.socketpair())
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


@pytest.mark.slow
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
            # as a finalizer finds it that runs within any line of the outlet
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


@pytest.mark.slow
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


# -------------------------------------------------------------------------------- ring


def record(text: str, *, level: int = logging.INFO, **extra: Any) -> logging.LogRecord:
    made = logging.LogRecord("x", level, "/a/service.py", 7, "%s", (text,), None)
    made.__dict__.update(extra)
    return made


M = StubName("m", "m_0_0")


@pytest.fixture
def ring() -> LogRing:
    return LogRing(max_lines=3, max_characters=100)


def texts(page: dict[str, Any]) -> list[str]:
    return [line["text"] for line in page["lines"]]


@pytest.mark.parametrize("form", logs.FORMS)
@pytest.mark.parametrize("is_journal", [False, True])
def test_a_line_of_another_process_is_kept_in_each_form(
    ring: LogRing, form: str, is_journal: bool
) -> None:
    formatter = logs.Formatter(is_journal=is_journal)
    formatter.form = form
    written = formatter.format(
        record('says "no"', level=logging.WARNING, origin=(42, "access.py", 5))
    )
    ring.keep_written(f"{written}\n".encode(), 41)

    [line] = ring.read_last("", 0, 10)["lines"]

    assert ("W", 42, "access.py", 5, 'says "no"') == tuple(
        line[key] for key in ("level", "pid", "file", "line", "text")
    )


@pytest.mark.parametrize("text", ["no head", "{}", '{"at": 5}', "<6>[1]", "W1 1 x:y] z"])
def test_any_other_output_of_a_process_is_kept_as_it_is(ring: LogRing, text: str) -> None:
    ring.keep_written(f"{text}\n\n".encode(), 41)

    [line] = ring.read_last("", 0, 10)["lines"]

    assert ("I", 41, text) == (line["level"], line["pid"], line["text"])


def test_a_reader_goes_on_from_where_it_was_and_hears_what_it_lost(ring: LogRing) -> None:
    ring.emit(record("1"))
    first = ring.read_last("", 0, 10)
    ring.emit(record("2"))
    second = ring.read_last("", first["last"], 10)
    for number in range(3, 8):
        ring.emit(record(str(number)))
    third = ring.read_last("", second["last"], 10)

    assert (["1"], 0) == (texts(first), first["lost"])
    assert (["2"], 0) == (texts(second), second["lost"])
    assert (["5", "6", "7"], 2) == (texts(third), third["lost"])
    assert ([], 7, 0) == tuple(ring.read_last("", 7, 10)[key] for key in ("lines", "last", "lost"))


def test_so_many_characters_are_kept_and_no_line_more_is_dropped(ring: LogRing) -> None:
    for text in ("a" * 45, "b" * 45, "c" * 45, "d" * 10):
        ring.emit(record(text))

    assert ["b" * 45, "c" * 45, "d" * 10] == texts(ring.read_last("", 0, 10))


def test_lines_about_a_model_are_its_own_and_the_servers_that_name_it() -> None:
    ring = LogRing()
    ring.emit(record("of its own", stub=StubName("m", "m_0_0")))
    ring.emit(record("of another, about m", stub=StubName("n", "n_0_0")))
    ring.emit(record("loading: m:1"))
    ring.emit(record("successfully loaded 'm'"))
    ring.emit(record("loading: mm:1, a.m, m-2, m_2 and xm"))

    assert ["of its own", "loading: m:1", "successfully loaded 'm'"] == texts(
        ring.read_last("m", 0, 10)
    )


def test_an_exception_is_part_of_its_line(ring: LogRing) -> None:
    error = ValueError("why")
    made = logging.LogRecord("x", logging.ERROR, "a.py", 1, "failed", (), (ValueError, error, None))

    ring.emit(made)

    assert ["failed\nValueError: why"] == texts(ring.read_last("", 0, 1))


def write(ring: LogRing, pid: int, text: str, name: StubName = M) -> None:
    ring.emit(record(text, origin=(pid, name.instance, 1), stub=name))


def kept(ring: LogRing, model: str = "") -> list[tuple[int, list[str]]]:
    return [(process["pid"], texts(process)) for process in ring.process_lines(model)]


def test_of_an_instance_the_last_processes_are_kept(ring: LogRing) -> None:
    for pid in (11, 12, 13, 14):
        write(ring, pid, "a")
        write(ring, pid, "b")

    assert [(12, ["a", "b"]), (13, ["a", "b"]), (14, ["a", "b"])] == kept(ring)


def test_processes_that_are_silent_for_the_longest_are_forgotten() -> None:
    processes = ProcessLines(max_processes=2)
    for pid, model in ((1, "a"), (2, "b"), (1, "a"), (3, "c")):
        processes.add(KeptLine(1, 0.0, "I", pid, model, 1, model, model, "x"))

    assert [1, 3] == [process["pid"] for process in processes.describe("")]


def test_the_beginning_is_told_once_lines_were_dropped(ring: LogRing) -> None:
    ring.emit(record("1"))
    assert 0.0 == ring.read_last("", 0, 10)["begins_s"]

    for number in range(2, 6):
        ring.emit(record(str(number)))
    first = ring.read_last("", 0, 10)

    assert first["lines"][0]["time_s"] == first["begins_s"]


def test_another_log_is_known_by_its_start(ring: LogRing) -> None:
    began = [each.read_last("", 0, 10)["started_s"] for each in (ring, ring, LogRing())]

    assert began[0] == began[1] < began[2]
