"""The right to do the loop's duties, and the threads that may have it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import pytest

from tests.support.waiting import eventually
from zmqtriton_floor import wire
from zmqtriton_stub.duties import LoopDuties
from zmqtriton_stub.model import PythonModel


@pytest.fixture
def beside() -> Iterator[ThreadPoolExecutor]:
    """A thread that is not the loop's."""
    with ThreadPoolExecutor(1) as thread:
        yield thread


@pytest.fixture
def duties() -> LoopDuties:
    """The duties of a loop amid its own steps."""
    duties = LoopDuties()
    duties.claim()
    return duties


def test_amid_the_steps_of_the_loop_no_other_thread_does_them(
    duties: LoopDuties, beside: ThreadPoolExecutor
) -> None:
    assert not beside.submit(duties.take).result(30)


def test_the_loop_does_them_within_its_own_steps(
    duties: LoopDuties, beside: ThreadPoolExecutor
) -> None:
    """A destructor of the model's may wait for a reply there."""
    assert duties.take()
    duties.give_back()

    assert not beside.submit(duties.take).result(30)


def test_while_code_of_the_model_runs_one_thread_at_a_time_does_them(
    duties: LoopDuties, beside: ThreadPoolExecutor
) -> None:
    duties.give_back()
    assert beside.submit(duties.take).result(30)
    assert not duties.take()
    beside.submit(duties.give_back).result(30)

    assert duties.take()
    assert not beside.submit(duties.take).result(30)
    duties.give_back()

    duties.claim()
    assert not beside.submit(duties.take).result(30)


def test_the_loop_goes_on_once_another_thread_has_done_them(duties: LoopDuties) -> None:
    is_taken, may_end, steps = threading.Event(), threading.Event(), list[str]()

    def attend() -> None:
        eventually(duties.take, 30)
        is_taken.set()
        may_end.wait(30)
        steps.append("beside")
        duties.give_back()

    thread = threading.Thread(target=attend)
    duties.give_back()
    thread.start()
    assert is_taken.wait(30)
    may_end.set()
    duties.claim()
    steps.append("loop")

    thread.join()
    assert ["beside", "loop"] == steps


def test_an_error_of_the_model_gives_them_back_to_the_loop(beside: ThreadPoolExecutor) -> None:
    model = PythonModel(wire.LoadModel("m", "m", 1, "CPU", 0, "/m", "/m/1/model.py", "{}", 0), None)
    model._execute = Mock(side_effect=ValueError("of the model"))

    with pytest.raises(ValueError, match="of the model"):
        model.execute([])

    assert not beside.submit(model.duties.take).result(30)
