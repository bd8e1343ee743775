from __future__ import annotations

import logging
from typing import Any

import pytest

from zmqtriton.supervisor.machine.log_ring import LogRing, StubName


def record(text: str, *, level: int = logging.INFO, **extra: Any) -> logging.LogRecord:
    made = logging.LogRecord("x", level, "/a/service.py", 7, "%s", (text,), None)
    made.__dict__.update(extra)
    return made


@pytest.fixture
def ring() -> LogRing:
    return LogRing(max_lines=3, max_characters=100)


def texts(found: dict[str, Any]) -> list[str]:
    return [line["text"] for line in found["lines"]]


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
