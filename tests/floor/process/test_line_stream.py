"""A process that prints into a full pipe goes on, and says later what is lost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

import pytest

from zmqtriton_floor.process.line_stream import PipeStream


class Pipe:
    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.reading, False)
        os.set_blocking(self.writing, False)
        self.stream = PipeStream(self.writing)

    def fill(self) -> None:
        """Have no room in the pipe."""
        for size in (4096, 1):
            with suppress(BlockingIOError):
                while True:
                    os.write(self.writing, b"\n" * size)

    def read(self) -> str:
        text = b""
        try:
            while data := os.read(self.reading, 65536):
                text += data
        except BlockingIOError:
            return text.decode()
        return text.decode()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    os.close(pipe.reading)
    os.close(pipe.writing)


def test_a_line_is_written_when_it_is_whole(pipe: Pipe) -> None:
    pipe.stream.write("one\ntw")
    assert "one\n" == pipe.read()

    pipe.stream.write("o\n")
    assert "two\n" == pipe.read()

    pipe.stream.write("three")
    pipe.stream.flush()
    assert "three" == pipe.read()


def test_lines_that_do_not_fit_are_counted_and_told_with_the_next_one(pipe: Pipe) -> None:
    pipe.fill()
    pipe.stream.write("lost\n")
    pipe.stream.write("lost\nlost, too\n")
    lost = pipe.stream.lost
    pipe.read()

    pipe.stream.write("again\n")
    pipe.stream.write("and again\n")

    text = f"{lost} lines of the log are lost here: nobody has read them in time"
    assert 3 == lost
    assert [text, "again", "and again"] == pipe.read().splitlines()


def test_what_is_longer_than_the_pipe_comes_whole_or_not_at_all(pipe: Pipe) -> None:
    table = "".join(f"row {number:06}\n" for number in range(30_000))
    pipe.stream.write(table)
    pipe.stream.write("lost\n")

    text = ""
    while not text.endswith("later\n"):
        text += pipe.read()
        pipe.stream.write("later\n")

    assert text.startswith(table)
    assert "lost\n" not in text


def test_a_text_without_an_end_does_not_fill_the_memory(pipe: Pipe) -> None:
    for _ in range(100):
        pipe.stream.write("x" * 10_000)

    assert len(pipe.stream._unended) < 100_000


def test_a_pipe_that_nobody_holds_ends_nothing(pipe: Pipe) -> None:
    other = os.pipe()
    os.close(other[0])
    stream = PipeStream(other[1])

    stream.write("lost\n")

    assert 1 == stream.lost
    os.close(other[1])
