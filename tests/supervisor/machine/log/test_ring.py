from __future__ import annotations

import logging
from typing import Any

import pytest

from zmqtriton.supervisor.machine.log.ring import LogLine, LogRing, ProcessLines, StubName


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


def test_a_line_knows_where_it_comes_from(ring: LogRing) -> None:
    ring.emit(record("said", origin=(42, "m_0_0", 5), stub=StubName("m", "m_0_0")))
    ring.emit(record("done", level=logging.ERROR))

    said, done = ring.read_last("", 0, 10)["lines"]

    assert (1, "I", 42, "m_0_0", 5) == tuple(
        said[k] for k in ("number", "level", "pid", "file", "line")
    )
    assert ("m", "m_0_0", "said") == (said["model"], said["instance"], said["text"])
    assert (2, "E", "service.py", 7, "") == tuple(
        done[key] for key in ("number", "level", "file", "line", "model")
    )


def test_old_lines_go_when_there_are_too_many(ring: LogRing) -> None:
    for number in range(1, 6):
        ring.emit(record(str(number)))

    assert ["3", "4", "5"] == texts(ring.read_last("", 0, 10))
    assert ["4", "5"] == texts(ring.read_last("", 0, 2))


def test_old_lines_go_when_they_take_too_much_memory(ring: LogRing) -> None:
    ring.emit(record("a" * 60))
    ring.emit(record("b" * 60))
    assert ["b" * 60] == texts(ring.read_last("", 0, 10))

    ring.emit(record("c" * 200))
    assert ["c" * 200] == texts(ring.read_last("", 0, 10))


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


def test_the_lines_of_a_dead_process_stay_when_others_have_filled_the_ring(ring: LogRing) -> None:
    write(ring, 11, "last words")
    for number in range(10):
        write(ring, 12, str(number), StubName("n", "n_0_0"))

    assert "last words" not in texts(ring.read_last("", 0, 10))
    assert [(11, ["last words"])] == kept(ring, "m")


def test_of_an_instance_the_last_processes_are_kept(ring: LogRing) -> None:
    for pid in (11, 12, 13, 14):
        write(ring, pid, "a")
        write(ring, pid, "b")

    assert [(12, ["a", "b"]), (13, ["a", "b"]), (14, ["a", "b"])] == kept(ring)


def test_processes_that_are_silent_for_the_longest_are_forgotten() -> None:
    processes = ProcessLines(max_processes=2)
    for pid, model in ((1, "a"), (2, "b"), (1, "a"), (3, "c")):
        processes.add(LogLine(1, 0.0, "I", pid, model, 1, model, model, "x"))

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
