"""Lines that processes print, and the last words of those that crash."""

from __future__ import annotations

import logging
import os
import selectors
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from tests.support.failing.threads import no_thread_begins
from tests.support.waiting import eventually
from zmqtriton.logs.log_ring import StubName
from zmqtriton.supervisor.machine.processes import output as module
from zmqtriton.supervisor.machine.processes.output import StubOutput, log_line
from zmqtriton.supervisor.machine.processes.output_reader import OutputReader
from zmqtriton.supervisor.machine.processes.output_reader import Pipe as OutputPipe
from zmqtriton_floor import wire

pytestmark = pytest.mark.slow


# ------------------------------------------------------------------------------ output


_CRASH = (
    b"Fatal Python error: Aborted\n\nCurrent thread 0x1 (most recent call first):\n"
    b'  File "/models/m/1/model.py", line 5 in execute\n'
    b'  File "/x/zmqtriton_stub/model.py", line 1 in run\n'
)


class Pipe:
    """The output of a stub, whose lines are logged as they come."""

    def __init__(self) -> None:
        self.output = StubOutput(StubName("m", "m_0_0"), 42, lambda output: None)

    def write(self, data: bytes) -> None:
        self.output.take(data)
        while self.output.log_some():
            pass


@pytest.fixture
def pipe(caplog: pytest.LogCaptureFixture) -> Pipe:
    caplog.set_level(logging.INFO)
    return Pipe()


def test_each_line_is_a_record_with_the_instances_name(
    pipe: Pipe, caplog: pytest.LogCaptureFixture
) -> None:
    pipe.write(b"one\ntw")
    pipe.write(b"o\nthree")
    pipe.output.close()

    assert [("one", 1), ("two", 2), ("three", 3)] == [
        (record.getMessage(), record.__dict__["origin"][2]) for record in caplog.records
    ]
    assert caplog.records[0].__dict__["origin"][:2] == (42, "m_0_0")


def test_a_flood_is_cut_and_counted(
    pipe: Pipe, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = time.monotonic()
    # All within one moment, however long the machine takes.
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now_s))
    for _ in range(100):
        pipe.write(b"x\n" * 200)
    pipe.output.close()

    assert pipe.output.dropped_lines > 10_000
    assert len(caplog.records) < 5_000
    assert f"{pipe.output.dropped_lines} lines of 'm_0_0' were dropped" in caplog.text


def test_of_a_progress_bar_its_last_state_is_a_line(
    pipe: Pipe, caplog: pytest.LogCaptureFixture
) -> None:
    pipe.write(b"\r  0%|   \r 50%|#  \r100%|###\r\nnext\r\n\r\n")
    pipe.output.close()

    assert ["100%|###", "next", ""] == [record.getMessage() for record in caplog.records]


def test_a_line_without_an_end_does_not_fill_the_memory(pipe: Pipe) -> None:
    for _ in range(100):
        pipe.write(b"x" * 10_000)

    # what waits for the end of its line shows nowhere
    assert len(pipe.output._lines._rest) < 40_000
    assert len(pipe.output.last_words) < 20_000
    pipe.output.close()


def test_the_last_words_are_the_last_line_that_says_something(pipe: Pipe) -> None:
    assert ("", "") == (pipe.output.crash, pipe.output.last_words)

    pipe.write(b"first\nMemoryError: no\n\n  \n")
    pipe.output.close()

    assert ("", "MemoryError: no") == (pipe.output.crash, pipe.output.last_words)


def test_lines_that_nobody_takes_are_dropped_the_oldest_first(
    pipe: Pipe, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3_000):
        pipe.output.take(b"%d " % number + b"x" * 2000 + b"\n")
    pipe.output.close()

    numbers = [int(r.getMessage().split()[0]) for r in caplog.records if "xxx" in r.getMessage()]
    assert [*range(3_000 - len(numbers), 3_000)] == numbers
    assert 3_000 == len(numbers) + pipe.output.dropped_lines
    assert caplog.records[0].__dict__["origin"][2] == numbers[0] + 1


def test_a_flood_is_not_read_for_what_explains_a_death_but_at_its_end(pipe: Pipe) -> None:
    pipe.write(b"x\n" * 30_000 + b"the last\n")
    assert "the last" == pipe.output.last_words

    pipe.write(b"x\n" * 30_000 + _CRASH + b"x\n" * 30_000)
    assert "Aborted\n\nAt:\n  /models/m/1/model.py(5): execute" == pipe.output.crash


def test_what_is_no_text_is_shown_anyway(pipe: Pipe, caplog: pytest.LogCaptureFixture) -> None:
    pipe.write(b"\xff\xfe\n")
    pipe.output.close()

    assert caplog.records[0].getMessage() == "��"


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        pytest.param(
            b"loading\nFatal Python error: Segmentation fault\n\n"
            b"Current thread 0x00007f (most recent call first):\n"
            b'  File "/usr/lib/python3/ctypes/__init__.py", line 519 in string_at\n'
            b'  File "/models/m/1/model.py", line 5 in initialize\n'
            b'  File "/opt/zmqtriton_stub/model.py", line 90 in initialize\n\n'
            b"Extension modules: numpy (total: 1)\n",
            "Segmentation fault\n\nAt:\n"
            "  /usr/lib/python3/ctypes/__init__.py(519): string_at\n"
            "  /models/m/1/model.py(5): initialize",
            id="the_line_of_the_model",
        ),
        pytest.param(
            b"Fatal Python error: Aborted\n\nCurrent thread 0x00007f (most recent call first):\n"
            b'  File "/models/m/1/model.py", line 1 in <module>\n'
            b'  File "<frozen importlib._bootstrap>", line 241 in _call_with_frames_removed\n'
            b'  File "/usr/lib/python3/importlib/__init__.py", line 126 in import_module\n'
            b'  File "/opt/zmqtriton_stub/model.py", line 228 in _import\n',
            "Aborted\n\nAt:\n  /models/m/1/model.py(1): <module>",
            id="at_import_not_what_imports_it",
        ),
        pytest.param(
            b"Fatal Python error: Aborted\n\nCurrent thread 0x00007f (most recent call first):\n"
            + b"".join(b'  File "/f.py", line %d in f%d\n' % (n, n) for n in range(9)),
            "Aborted\n\nAt:\n  /f.py(0): f0\n  /f.py(7): f7\n  /f.py(8): f8",
            id="deep_where_it_was_and_who_of_the_model_had_called",
        ),
        pytest.param(
            b"Fatal Python error: Aborted\n\nCurrent thread 0x1 (most recent call first):\n"
            b'  File "/usr/lib/python3/threading.py", line 327 in wait\n'
            b'  File "/usr/lib/python3/threading.py", line 629 in wait\n'
            b'  File "/models/m/1/model.py", line 21 in answer\n'
            b'  File "/models/m/1/model.py", line 15 in <listcomp>\n'
            b'  File "/models/m/1/model.py", line 15 in execute\n'
            b'  File "/x/zmqtriton_stub/model.py", line 1 in run\n',
            "Aborted\n\nAt:\n  /usr/lib/python3/threading.py(327): wait\n"
            "  /models/m/1/model.py(21): answer\n  /models/m/1/model.py(15): <listcomp>\n"
            "  /models/m/1/model.py(15): execute",
            id="the_innermost_line_of_the_model",
        ),
        pytest.param(
            b"Fatal Python error: Aborted\n\nCurrent thread 0x1 (most recent call first):\n"
            b'  File "/x/zmqtriton_stub/api/tensor.py", line 5 in as_numpy\n'
            b'  File "/models/m/1/model.py", line 7 in execute\n'
            b'  File "/x/zmqtriton_stub/model.py", line 1 in run\n',
            "Aborted\n\nAt:\n  /models/m/1/model.py(7): execute",
            id="within_pb_utils_the_models_frame",
        ),
    ],
)
def test_the_last_words_of_a_crash_name_the_line_of_the_model(
    pipe: Pipe, printed: bytes, shown: str
) -> None:
    pipe.write(printed)

    assert shown == pipe.output.crash == pipe.output.last_words


def test_a_crash_deep_in_a_recursion_is_told_from_its_head(pipe: Pipe) -> None:
    frames = [f'  File "/models/m/1/model.py", line {n} in walk' for n in range(100)]
    report = [
        "Fatal Python error: Segmentation fault",
        "",
        "Current thread 0x1 (most recent call first):",
    ]
    pipe.write(
        "\n".join(
            [*report, *frames, '  File "/x/zmqtriton_stub/model.py", line 1 in run', ""]
        ).encode()
    )
    pipe.write(b"x" * 100 + b"\n")

    assert pipe.output.crash.startswith(
        "Segmentation fault\n\nAt:\n  /models/m/1/model.py(0): walk"
    )


def test_lines_that_come_another_way_follow_those_that_were_printed_before(
    pipe: Pipe, caplog: pytest.LogCaptureFixture
) -> None:
    pipe.output.read = lambda: pipe.output.take(b"printed before\n")

    log_line(wire.LogLine("I", "model.py", 7, "said", ""), 42, pipe.output)

    assert ["printed before", "said"] == [record.getMessage() for record in caplog.records]


# ----------------------------------------------------------------------- output reader
# The output of children is read whatever the loop does.


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
    reader.watch(OutputPipe(reading_of(writing), parts.append))

    for _ in range(100):
        os.write(writing, b"x" * 65536)

    eventually(lambda: sum(map(len, parts)) == 100 * 65536, 30, "all of it")


def test_what_is_there_is_read_before_the_pipe_is_left(reader: OutputReader, writing: int) -> None:
    parts: list[bytes] = []
    pipe = reader.watch(OutputPipe(reading_of(writing), parts.append))
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
    pipe = reader.watch(OutputPipe(reading, first.append))
    os.write(other, b"one\n")
    os.close(other)
    eventually(lambda: first == [b"one\n", b""], 30, "the end")
    second: list[bytes] = []
    os.dup2(reading_of(writing), reading)
    later = reader.watch(OutputPipe(reading, second.append))

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
    reader.watch(OutputPipe(reading, refuse))
    reader.watch(OutputPipe(reading_of(writing), parts.append))

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
        reader.watch(OutputPipe(reading_of(writing), first.append))
        os.write(writing, b"one\n")
        [(key, _)] = loop.select(0)
        key.data()
        assert [b"one\n"] == first

    reading, other = os.pipe()
    reader.watch(OutputPipe(reading, second.append))
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
        reader.watch(OutputPipe(reading_of(writing), parts.append))
    os.write(writing, b"the last words\n")

    reader.close()

    assert [b"the last words\n"] == parts
    assert not loop.get_map()
