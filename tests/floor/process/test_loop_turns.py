"""The length of turns, by a clock and a processor of the test's own."""

from __future__ import annotations

import re
import threading
import time

import pytest

from tests.support.waiting import eventually, sleep_of_this_thread
from zmqtriton_floor.process.loop_turns import LoopTurns, Use

_MS = 1_000_000


class Machine:
    def __init__(self) -> None:
        self.now_ns = 1_000 * _MS
        self.use = Use(0, 0)

    def pass_time(self, *, cpu_ms: int = 0, waited_ms: int = 0, stood_ms: int = 0) -> None:
        self.now_ns += (cpu_ms + waited_ms + stood_ms) * _MS
        self.use = Use(self.use.cpu_ns + cpu_ms * _MS, self.use.waited_ns + waited_ms * _MS)


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
    take_turn(turns, machine, cpu_ms=300, stood_ms=120, waited_ms=5_000)

    assert turns.longest is not None
    assert turns.longest[:3] == (300 * _MS, 120 * _MS, 5_000 * _MS)
    assert turns.document()["longest"]["cpu_s"] == 0.3


def test_short_turns_are_nobodys_trouble(turns: LoopTurns, machine: Machine) -> None:
    take_turn(turns, machine, cpu_ms=9)
    take_turn(turns, machine, cpu_ms=1, waited_ms=900)

    assert turns.document() == {"counts": [0] * 9, "sum_s": 0.0, "longest": None}


def test_turns_are_counted_by_their_length(turns: LoopTurns, machine: Machine) -> None:
    for ms in (20, 30, 30, 20_000):
        take_turn(turns, machine, cpu_ms=ms)

    assert turns.document()["counts"] == [1, 2, 0, 0, 0, 0, 0, 0, 1]
    assert turns.document()["sum_s"] == 20.08


def test_the_longest_is_told_for_some_minutes(turns: LoopTurns, machine: Machine) -> None:
    take_turn(turns, machine, cpu_ms=500)
    machine.now_ns += 300_000 * _MS
    take_turn(turns, machine, cpu_ms=20)
    assert turns.document()["longest"]["cpu_s"] == 0.5

    machine.now_ns += 300_000 * _MS

    assert turns.document()["longest"]["cpu_s"] == 0.02


def test_a_loop_that_others_run_tells_by_how_late_it_is(turns: LoopTurns, machine: Machine) -> None:
    due_ns = machine.now_ns + 100 * _MS
    turns.beat(machine.now_ns, due_ns)
    machine.now_ns = due_ns
    turns.beat(due_ns, due_ns + 100 * _MS)
    machine.pass_time(stood_ms=100)
    machine.pass_time(cpu_ms=200, stood_ms=70)

    turns.beat(due_ns + 100 * _MS, machine.now_ns + 100 * _MS)

    assert turns.longest is not None
    assert turns.longest[:3] == (200 * _MS, 70 * _MS, 0)


def test_a_long_turn_is_told_in_the_log_with_its_place(
    turns: LoopTurns, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    turns.begin()
    machine.pass_time(cpu_ms=260)
    turns.look()
    turns.end()

    [record] = caplog.records
    assert "0.260 s of CPU, 0.000 s in calls" in record.message
    assert ", at look (loop_turns.py:" in record.message
    assert "test_a_long_turn_is_told_in_the_log_with_its_place" in record.message


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


def test_that_the_whole_process_was_stopped_does_not_count(
    turns: LoopTurns, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watcher comes as late as the loop does."""
    monkeypatch.setattr(
        time, "sleep", sleep_of_this_thread(lambda seconds: machine.pass_time(stood_ms=1_200))
    )
    turns.begin()
    turns.nap()

    turns.end()

    assert turns.longest is not None
    assert turns.longest[:3] == (0, 200 * _MS, 1_000 * _MS)
