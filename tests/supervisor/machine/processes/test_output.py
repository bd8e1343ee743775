from __future__ import annotations

import logging
import time
from types import SimpleNamespace

import pytest

from zmqtriton.supervisor.machine.log.ring import StubName
from zmqtriton.supervisor.machine.processes import output as module
from zmqtriton.supervisor.machine.processes.output import StubOutput, log_line
from zmqtriton_floor import wire

pytestmark = pytest.mark.slow

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

    assert len(pipe.output._lines._rest) < 40_000
    assert len(pipe.output.last_words) < 20_000
    pipe.output.close()


def test_the_last_words_are_the_last_line_that_says_something(pipe: Pipe) -> None:
    pipe.write(b"first\nMemoryError: no\n\n  \n")
    pipe.output.close()

    assert pipe.output.last_words == "MemoryError: no"


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


def test_the_last_words_of_a_crash_name_the_line_of_the_model(pipe: Pipe) -> None:
    pipe.write(
        b"loading\nFatal Python error: Segmentation fault\n\n"
        b"Current thread 0x00007f (most recent call first):\n"
        b'  File "/usr/lib/python3/ctypes/__init__.py", line 519 in string_at\n'
        b'  File "/models/m/1/model.py", line 5 in initialize\n'
        b'  File "/opt/zmqtriton_stub/model.py", line 90 in initialize\n\n'
        b"Extension modules: numpy (total: 1)\n"
    )

    assert (
        "Segmentation fault\n\nAt:\n"
        "  /usr/lib/python3/ctypes/__init__.py(519): string_at\n"
        "  /models/m/1/model.py(5): initialize"
    ) == pipe.output.last_words


def test_a_crash_at_import_names_the_line_and_not_what_imports_it(pipe: Pipe) -> None:
    pipe.write(
        b"Fatal Python error: Aborted\n\nCurrent thread 0x00007f (most recent call first):\n"
        b'  File "/models/m/1/model.py", line 1 in <module>\n'
        b'  File "<frozen importlib._bootstrap>", line 241 in _call_with_frames_removed\n'
        b'  File "/usr/lib/python3/importlib/__init__.py", line 126 in import_module\n'
        b'  File "/opt/zmqtriton_stub/model.py", line 228 in _import\n'
    )

    assert "Aborted\n\nAt:\n  /models/m/1/model.py(1): <module>" == pipe.output.last_words


def test_a_deep_crash_names_where_it_was_and_who_of_the_model_had_called(pipe: Pipe) -> None:
    frames = "".join(f'  File "/f.py", line {n} in f{n}\n' for n in range(9))
    pipe.write(
        b"Fatal Python error: Aborted\n\nCurrent thread 0x00007f (most recent call first):\n"
        + frames.encode()
    )

    shown = "Aborted\n\nAt:\n  /f.py(0): f0\n  /f.py(7): f7\n  /f.py(8): f8"
    assert shown == pipe.output.crash == pipe.output.last_words


def test_what_a_model_writes_is_no_crash(pipe: Pipe) -> None:
    pipe.write(b"one\ntwo\n")

    assert "" == pipe.output.crash


def test_the_last_words_are_the_last_line_where_nothing_crashed(pipe: Pipe) -> None:
    assert "" == pipe.output.last_words
    pipe.write(b"one\ntwo\n\n")

    assert "two" == pipe.output.last_words


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


def test_a_crash_within_pb_utils_is_told_from_the_models_frame(pipe: Pipe) -> None:
    pipe.write(
        b"Fatal Python error: Aborted\n\nCurrent thread 0x1 (most recent call first):\n"
        b'  File "/x/zmqtriton_stub/api/tensor.py", line 5 in as_numpy\n'
        b'  File "/models/m/1/model.py", line 7 in execute\n'
        b'  File "/x/zmqtriton_stub/model.py", line 1 in run\n'
    )

    assert "Aborted\n\nAt:\n  /models/m/1/model.py(7): execute" == pipe.output.crash


def test_lines_that_come_another_way_follow_those_that_were_printed_before(
    pipe: Pipe, caplog: pytest.LogCaptureFixture
) -> None:
    pipe.output.read = lambda: pipe.output.take(b"printed before\n")

    log_line(wire.LogLine("I", "model.py", 7, "said", ""), 42, pipe.output)

    assert ["printed before", "said"] == [record.getMessage() for record in caplog.records]
