"""The output of children is read whatever the loop does."""

from __future__ import annotations

import os
import selectors
from collections.abc import Iterator

import pytest

from tests.support.failing.threads import no_thread_begins
from tests.support.waiting import eventually
from zmqtriton.supervisor.machine.processes.output_reader import OutputReader

pytestmark = pytest.mark.slow


@pytest.fixture
def loop() -> Iterator[selectors.BaseSelector]:
    with selectors.DefaultSelector() as loop:
        yield loop


@pytest.fixture
def reader(loop: selectors.BaseSelector) -> Iterator[OutputReader]:
    reader = OutputReader(loop)
    yield reader
    reader.close()


@pytest.fixture
def writing() -> Iterator[int]:
    """The end of a pipe; `reading_of` is its other."""
    reading, writing = os.pipe()
    _READING[writing] = reading
    yield writing
    os.close(writing)


_READING: dict[int, int] = {}


def reading_of(writing: int) -> int:
    return _READING.pop(writing)


def test_a_process_can_print_more_than_a_pipe_holds(reader: OutputReader, writing: int) -> None:
    parts: list[bytes] = []
    reader.watch(reading_of(writing), parts.append)

    for _ in range(100):
        os.write(writing, b"x" * 65536)

    eventually(lambda: sum(map(len, parts)) == 100 * 65536, 30, "all of it")


def test_what_is_there_is_read_before_the_pipe_is_left(reader: OutputReader, writing: int) -> None:
    parts: list[bytes] = []
    pipe = reader.watch(reading_of(writing), parts.append)
    os.write(writing, b"the last words\n")

    reader.leave(pipe)

    assert b"the last words\n" == b"".join(parts)
    with pytest.raises(BrokenPipeError):
        os.write(writing, b"of a child of the model\n")


def test_the_end_of_a_pipe_is_told_and_its_number_may_be_another_s(
    reader: OutputReader, writing: int
) -> None:
    reading, other = os.pipe()
    first: list[bytes] = []
    pipe = reader.watch(reading, first.append)
    os.write(other, b"one\n")
    os.close(other)
    eventually(lambda: first == [b"one\n", b""], 30, "the end")
    second: list[bytes] = []
    os.dup2(reading_of(writing), reading)
    later = reader.watch(reading, second.append)

    reader.leave(pipe)
    os.write(writing, b"two\n")

    eventually(lambda: second == [b"two\n"], 30, "the other")
    reader.leave(later)


def test_what_a_reader_raises_ends_its_pipe_alone(
    reader: OutputReader, writing: int, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(data: bytes) -> None:
        raise ValueError("no")

    reading, other = os.pipe()
    parts: list[bytes] = []
    reader.watch(reading, refuse)
    reader.watch(reading_of(writing), parts.append)

    os.write(other, b"one\n")
    eventually(lambda: "is not read any more" in caplog.text, 30, "a line in the log")
    os.write(writing, b"two\n")

    eventually(lambda: parts == [b"two\n"], 30, "the other")
    os.close(other)


def test_where_no_thread_can_begin_the_loop_reads_until_one_can(
    reader: OutputReader,
    loop: selectors.BaseSelector,
    writing: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    first: list[bytes] = []
    second: list[bytes] = []
    with no_thread_begins():
        reader.watch(reading_of(writing), first.append)
        os.write(writing, b"one\n")
        [(key, _)] = loop.select(0)
        key.data()
        assert [b"one\n"] == first

    reading, other = os.pipe()
    reader.watch(reading, second.append)
    os.write(writing, b"two\n")
    os.write(other, b"three\n")
    os.close(other)

    eventually(lambda: b"two\n" in first and second == [b"three\n", b""], 30, "the thread reads")
    assert not loop.get_map()
    [line] = caplog.messages
    assert "the loop itself reads what processes print: can't start new thread" == line


def test_a_reader_closes_though_no_thread_could_begin(
    loop: selectors.BaseSelector, writing: int
) -> None:
    parts: list[bytes] = []
    reader = OutputReader(loop)
    with no_thread_begins():
        reader.watch(reading_of(writing), parts.append)
    os.write(writing, b"the last words\n")

    reader.close()

    assert [b"the last words\n"] == parts
    assert not loop.get_map()
