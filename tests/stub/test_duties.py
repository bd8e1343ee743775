"""The right to run rounds of the loop, the threads that may have it, and tasks beside the loop."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.stub.supervisor import make_client
from tests.support.waiting import eventually
from zmqtriton_floor import wire
from zmqtriton_floor.lifeline import Lifeline, pair
from zmqtriton_stub import tasks
from zmqtriton_stub.model import PythonModel
from zmqtriton_stub.watch import Watch


@pytest.fixture
def beside() -> Iterator[ThreadPoolExecutor]:
    """A thread that is not the loop's."""
    with ThreadPoolExecutor(1) as thread:
        yield thread


@pytest.fixture
def watch() -> Watch:
    """The watch of a loop amid its own steps."""
    return Watch()


def test_amid_the_steps_of_the_loop_no_other_thread_does_them(
    watch: Watch, beside: ThreadPoolExecutor
) -> None:
    assert not beside.submit(watch.claim, False).result(30)


def test_the_loop_does_them_within_its_own_steps(watch: Watch, beside: ThreadPoolExecutor) -> None:
    """A destructor of the model's may wait for a reply there."""
    assert watch.claim(False)
    watch.give_back()

    assert not beside.submit(watch.claim, False).result(30)


def test_while_code_of_the_model_runs_one_thread_at_a_time_does_them(
    watch: Watch, beside: ThreadPoolExecutor
) -> None:
    watch.give_back()
    assert beside.submit(watch.claim, False).result(30)
    assert not watch.claim(False)
    beside.submit(watch.give_back).result(30)

    assert watch.claim(False)
    assert not beside.submit(watch.claim, False).result(30)
    watch.give_back()

    watch.claim()
    assert not beside.submit(watch.claim, False).result(30)


def test_the_loop_goes_on_once_another_thread_has_done_them(watch: Watch) -> None:
    is_taken, may_end, steps = threading.Event(), threading.Event(), list[str]()

    def attend() -> None:
        eventually(lambda: watch.claim(False), 30)
        is_taken.set()
        may_end.wait(30)
        steps.append("beside")
        watch.give_back()

    thread = threading.Thread(target=attend)
    watch.give_back()
    thread.start()
    assert is_taken.wait(30)
    may_end.set()
    watch.claim()
    steps.append("loop")

    thread.join()
    assert ["beside", "loop"] == steps


def test_who_has_run_a_round_lets_others_run_one(beside: ThreadPoolExecutor) -> None:
    watch = Watch(Mock())
    watch.give_back()

    watch.run_round()

    assert beside.submit(watch.claim, False).result(30)


def test_an_error_of_the_model_gives_them_back_to_the_loop(beside: ThreadPoolExecutor) -> None:
    model = PythonModel(wire.LoadModel("m", "m", 1, "CPU", 0, "/m", "/m/1/model.py", "{}", 0), None)
    # in place of code that is loaded from a file
    model._execute = Mock(side_effect=ValueError("of the model"))

    with pytest.raises(ValueError, match="of the model"):
        model.execute([])

    assert not beside.submit(model.watch.claim, False).result(30)


# -------------------------------------------------------------------------------------------- tasks
# Code that the supervisor has run beside a model, whatever that is doing.


WITHIN_S = 60.0


class Instance:
    name = "m_0_0"
    directories: Sequence[str] = ("/models/m",)

    def request_ids(self) -> list[str]:
        return ["7"]

    def other_threads(self) -> Sequence[int]:
        return ()


class Line:
    """A stub's client whose main loop is busy, and the supervisor's end."""

    def __init__(self) -> None:
        ours, theirs = pair()
        self.supervisor, self.stub = Lifeline(ours), Lifeline(theirs)
        self.client = make_client(self.stub, Instance())

    def ask(self, file: Path, function: str = "run", **values: Any) -> None:
        """Ask for a task, and have a thread read that."""
        request = {"file": str(file), "function": function, "values": values}
        self.supervisor.send(wire.Call(5, tasks.RUN, json.dumps(request)))
        self.client.receive()

    def answer(self) -> wire.CallResult:
        while True:
            assert self.supervisor.wait(WITHIN_S)
            for message, _ in self.supervisor.receive():
                assert isinstance(message, wire.CallResult)
                return message


@pytest.fixture
def line() -> Iterator[Line]:
    line = Line()
    yield line
    line.supervisor.close()
    line.stub.close()


def write(directory: Path, code: str) -> Path:
    path = directory / "task.py"
    path.write_text(code)
    return path


def test_a_task_gets_its_values_and_the_facts_of_the_instance(line: Line, tmp_path: Path) -> None:
    code = """
def run(instance, factor):
    return [instance.name, instance.request_ids(), 2 * factor]
"""

    line.ask(write(tmp_path, code), factor=21)

    assert wire.CallResult(5, 0, "", '["m_0_0", ["7"], 42]') == line.answer()
    assert not line.client.inbox, "the main loop has nothing to do with it"


def test_an_answer_larger_than_the_socket_takes_is_sent_by_the_task_itself(
    line: Line, tmp_path: Path
) -> None:
    line.ask(write(tmp_path, "def run(instance): return 'x' * (4 << 20)"))

    assert (4 << 20) + 2 == len(line.answer().result)


def test_a_message_that_another_thread_has_read_ends_the_wait_for_it(line: Line) -> None:
    reading = threading.Thread(target=line.client.ask, args=(wire.Synced(1), (9,)))
    reading.start()
    waiting = threading.Thread(target=line.client.await_message)
    waiting.start()

    line.supervisor.send(wire.Finalize())
    line.supervisor.send(wire.SegmentCreated(9, 1, "no"))
    waiting.join(WITHIN_S)
    reading.join(WITHIN_S)

    assert not waiting.is_alive()
    assert [wire.Finalize()] == list(line.client.inbox)


def test_who_waits_for_the_supervisor_runs_rounds_of_the_loop(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the answer may depend on them
    answer = wire.CallResult(1, 0, "", "true")
    monkeypatch.setattr(Watch, "poll", lambda _: line.supervisor.send(answer))

    assert line.client.call("load", "{}") is True
