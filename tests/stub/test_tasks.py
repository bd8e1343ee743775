"""Tasks: code that the supervisor has run beside a model, whatever that is doing."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from zmqtriton_floor import wire
from zmqtriton_floor.lifeline import Lifeline, pair
from zmqtriton_stub import tasks
from zmqtriton_stub.supervisor_client import SupervisorClient

WITHIN_S = 60.0


class Instance:
    name = "m_0_0"
    directories: Sequence[str] = ("/models/m",)

    def __init__(self) -> None:
        self.request_ids: Callable[[], list[str]] = lambda: ["7"]
        self.other_threads: Callable[[], Sequence[int]] = tuple


class Line:
    """A stub's client whose main loop is busy, and the supervisor's end."""

    def __init__(self) -> None:
        ours, theirs = pair()
        self.supervisor, self.stub = Lifeline(ours), Lifeline(theirs)
        self.client = SupervisorClient(self.stub, lambda: None)
        self.client.instance = Instance()

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
    line.supervisor.send(wire.SegmentCreated(9, 0, 1, "no"))
    waiting.join(WITHIN_S)
    reading.join(WITHIN_S)

    assert not waiting.is_alive()
    assert [wire.Finalize()] == list(line.client.inbox)
