"""Parts of each process: turns of its loop, lines, named tuples and a clock."""

from __future__ import annotations

import copy
import os
import pickle
import re
import threading
import time
import typing
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from tests.support.waiting import eventually, sleep_of_this_thread
from zmqtriton_floor.logs import PipeStream
from zmqtriton_floor.process import named_tuples, wall_clock
from zmqtriton_floor.process.loop_turns import LoopTurns, Use

# -------------------------------------------------------------------------- loop turns
# The length of turns, by a clock and a processor of the test's own.


_MS = 1_000_000


class Machine:
    def __init__(self) -> None:
        self.now_ns = 1_000 * _MS
        self.use = Use(0, 0)

    def pass_time(
        self, *, cpu_ms: int = 0, waited_ms: int = 0, stood_ms: int = 0, others_ms: int = 0
    ) -> None:
        """Pass time; `others_ms` of it other threads of the process have a processor."""
        self.now_ns += (cpu_ms + waited_ms + stood_ms) * _MS
        self.use = Use(
            self.use.cpu_ns + cpu_ms * _MS,
            self.use.waited_ns + waited_ms * _MS,
            self.use.of_process_ns + (cpu_ms + others_ms) * _MS,
        )


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def turns(machine: Machine) -> LoopTurns:
    return LoopTurns(lambda: machine.now_ns, lambda: machine.use)


def take_turn(turns: LoopTurns, machine: Machine, **ms: int) -> None:
    machine.now_ns += 1_000 * _MS
    turns.begin()
    machine.pass_time(**ms)
    turns.end()


def test_own_work_and_calls_count_and_waits_for_a_processor_do_not(
    turns: LoopTurns, machine: Machine
) -> None:
    turns.end()  # before the first one
    take_turn(turns, machine, cpu_ms=300, stood_ms=120, waited_ms=5_000)

    assert turns.longest is not None
    assert turns.longest[:3] == (300 * _MS, 120 * _MS, 5_000 * _MS)
    assert turns.document()["longest"]["cpu_s"] == 0.3


def test_a_stop_of_the_whole_process_does_not_count(
    turns: LoopTurns, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", sleep_of_this_thread(lambda seconds: None))
    turns.nap()  # and nobody has looked since

    take_turn(turns, machine, cpu_ms=20, stood_ms=150)

    assert turns.longest is not None
    assert (20 * _MS, 0, 150 * _MS) == turns.longest[:3]


@pytest.mark.parametrize(
    ("ms", "parts"),
    [
        # the watcher is due after 200 ms
        ({"cpu_ms": 20, "stood_ms": 900, "others_ms": 900}, (20, 180, 0, 720)),
        ({"waited_ms": 400, "stood_ms": 600, "others_ms": 900}, (0, 200, 400, 400)),
        ({"stood_ms": 1_000, "others_ms": 100}, (0, 200, 700, 100)),
    ],
)
def test_a_thread_that_keeps_the_lock_holds_up_the_loop(
    turns: LoopTurns,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    ms: dict[str, int],
    parts: tuple[int, ...],
) -> None:
    monkeypatch.setattr(time, "sleep", sleep_of_this_thread(lambda seconds: None))
    turns.begin()
    turns.nap()

    machine.pass_time(**ms)
    turns.end()

    assert turns.longest is not None
    cpu, stood, waited, _, _, locked = turns.longest
    assert parts == tuple(ns // _MS for ns in (cpu, stood, waited, locked))


def test_the_longest_is_told_for_some_minutes(turns: LoopTurns, machine: Machine) -> None:
    take_turn(turns, machine, cpu_ms=500)
    machine.now_ns += 300_000 * _MS
    take_turn(turns, machine, cpu_ms=20)
    assert turns.document()["longest"]["cpu_s"] == 0.5

    machine.now_ns += 300_000 * _MS

    assert turns.document()["longest"]["cpu_s"] == 0.02


def test_a_turn_that_does_not_end_is_told_once(
    turns: LoopTurns, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    turns.begin()
    for _ in range(5):
        machine.pass_time(stood_ms=3_000)
        turns.look()

    [record] = caplog.records
    assert re.match(r"the loop of \S+ is at one turn for 6 s: look \(", record.message)


def test_a_turn_that_waits_for_a_processor_is_not_said_to_be_endless(
    turns: LoopTurns, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    turns.begin()
    for _ in range(5):
        machine.pass_time(waited_ms=3_000, cpu_ms=20)
        turns.look()

    assert [] == caplog.records


@pytest.mark.slow
def test_a_thread_looks_where_another_one_stands() -> None:
    before = set(threading.enumerate())
    turns = LoopTurns()
    turns.watch()

    def stand() -> str:
        """Return no place where the thread had no processor meanwhile."""
        turns.begin()
        time.sleep(0.5)
        turns.end()
        return turns.longest.place if turns.longest else ""

    assert eventually(stand, 60).startswith("stand (")

    turns.end_watch()
    eventually(lambda: before >= set(threading.enumerate()), 30, "the thread has ended")


def test_where_no_thread_can_begin_turns_are_told_without_a_place(
    turns: LoopTurns, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    turns.watch()

    take_turn(turns, machine, cpu_ms=300)

    assert turns.document()["longest"]["place"] == ""


# ------------------------------------------------------------------------- line stream
# A process that prints into a full pipe goes on, and says later what is lost.


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
    assert (3, [text, "again", "and again"]) == (lost, pipe.read().splitlines())


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

    # what waits for the end of its line shows nowhere
    assert len(pipe.stream._unended) < 100_000


def test_a_pipe_that_nobody_holds_ends_nothing(pipe: Pipe) -> None:
    other = os.pipe()
    os.close(other[0])
    stream = PipeStream(other[1])

    stream.write("lost\n")

    assert 1 == stream.lost
    os.close(other[1])


# ------------------------------------------------------------------------ named tuples
# NamedTuples that write their constructor late: they are as those of Python.


class Late(named_tuples.NamedTuple):
    """A place."""

    x: int
    y: int = 2

    @property
    def total(self) -> int:
        return self.x + self.y


class Early(typing.NamedTuple):
    """A place."""

    x: int
    y: int = 2

    @property
    def total(self) -> int:
        return self.x + self.y


class Empty(named_tuples.NamedTuple):
    """One without fields."""


def test_instances_are_as_those_of_python() -> None:
    late = Late(1)

    assert (1, 2) == late
    assert repr(Early(1)).replace("Early", "Late") == repr(late)
    assert (1, 2, 3) == (late.x, late.y, late.total)
    assert Late(5, 6) == Late(y=6, x=5) == late._replace(x=5, y=6) == Late._make([5, 6])
    assert {"x": 1, "y": 2} == late._asdict()
    assert late == pickle.loads(pickle.dumps(late)) == copy.deepcopy(late)
    assert type(late) is type(copy.copy(late)) is Late
    assert () == Empty()
    assert not hasattr(late, "__dict__")


def test_classes_are_as_those_of_python() -> None:
    for name in ("_fields", "_field_defaults", "__match_args__", "__doc__", "__bases__"):
        assert getattr(Early, name) == getattr(Late, name)
    assert typing.get_type_hints(Early) == typing.get_type_hints(Late)
    assert {} == vars(Empty)["__annotations__"]
    assert type(Late) is type


@pytest.mark.parametrize(
    "make",
    [
        lambda of: of(),
        lambda of: of(1, 2, 3),
        lambda of: of(1, z=3),
        lambda of: of._make([1]),
        lambda of: of(1)._replace(z=3),
    ],
)
def test_wrong_values_are_refused_as_by_python(make: Any) -> None:
    errors = []
    for of in (Early, Late):
        with pytest.raises((TypeError, ValueError)) as raised:
            make(of)
        errors.append((raised.type, str(raised.value).replace("Early", "Late")))

    assert errors[0] == errors[1]


def test_a_default_comes_last() -> None:
    with pytest.raises(TypeError, match="field without a default"):

        class _Wrong(named_tuples.NamedTuple):
            x: int = 1
            y: int  # type: ignore[misc]


# -------------------------------------------------------------------------- wall clock


_WALL_NS = 1_700_000_000_000_000_000


class Clocks:
    """A time module in which the looks take as long as the machine makes them."""

    def __init__(self, *looks_ns: int) -> None:
        self._now_ns = 0
        self._looks_ns = iter(looks_ns)

    def monotonic_ns(self) -> int:
        now_ns = self._now_ns
        self._now_ns += next(self._looks_ns, 100)
        return now_ns

    def time_ns(self) -> int:
        return self._now_ns + _WALL_NS


def test_a_time_that_was_measured_is_told_as_the_wall_says() -> None:
    assert abs(time.time_ns() - (time.monotonic_ns() + wall_clock.offset_ns())) < 60_000_000_000


@pytest.mark.parametrize("disturbed", [0, 1, 2, 3])
def test_the_clocks_are_compared_in_an_undisturbed_moment(
    monkeypatch: pytest.MonkeyPatch, disturbed: int
) -> None:
    looks_ns = [100] * 8
    looks_ns[2 * disturbed] = 1_000_000_000
    monkeypatch.setattr(wall_clock, "time", Clocks(*looks_ns))

    assert 0 <= wall_clock.offset_ns() - _WALL_NS <= 100
