"""A server that stops, as clients of its door meet it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.faults.replacements.ways import ByTakeOver
from tests.support.server import Server
from tests.support.waiting import eventually
from zmqtriton_extras.door.client.connection import Door
from zmqtriton_extras.door.tests.raw_door import RawDoor, floats
from zmqtriton_floor.errors import Unavailable, ZmqTritonError

pytestmark = pytest.mark.system


def test_a_server_that_stops_answers_until_its_clients_are_quiet(tmp_path: Path) -> None:
    options = ("--zmq-door", f"--runtime-directory={tmp_path}/r")
    server = Server(tmp_path / "s", ["identity_fp32"], options=options, frontends=())
    with server, RawDoor(f"{tmp_path}/r/door") as door:
        other = Door(f"{tmp_path}/r/door")
        process = server.process
        assert process is not None
        assert "leaving" not in door.ask("server.live")[1]
        process.send_signal(signal.SIGTERM)
        eventually(lambda: not Path(f"{tmp_path}/r/door").exists(), 30)

        for _ in range(20):
            kind, fields, _ = door.ask("infer", floats("identity_fp32", 1), bytes(4))
            assert (kind, fields["leaving"]) == ("response", True)
            assert door.ask("server.live")[1] == {"live": True, "leaving": True}
        assert process.poll() is None
        assert other.metadata()["name"]
        with pytest.raises(Unavailable, match="the server is stopping"):
            other.metadata()

        assert process.wait(60) == 0
        with pytest.raises(Unavailable, match="the server is stopping"):
            other.metadata()
    with Server(tmp_path / "t", ["identity_fp32"], options=options, frontends=()):
        assert other.metadata()["name"]
    other.close()


class Asking:
    """A thread that asks until it is told to stop, and what it saw."""

    def __init__(self, path: str, ask: Callable[[Door, int], Any], *, is_kept: bool) -> None:
        self._path, self._ask, self._is_kept = path, ask, is_kept
        self.is_over = threading.Event()
        self.right = 0
        self.failures: list[str] = []

    def run(self) -> None:
        door = None
        while not self.is_over.wait(0.01):
            try:
                door = door or Door(self._path)
                self._ask(door, self.right)
                self.right += 1
            except (ZmqTritonError, TimeoutError) as error:
                self.failures.append(f"{type(error).__name__} {error}")
            if door is not None and not self._is_kept:
                door.close()
                door = None
        if door is not None:
            door.close()


def plain(door: Door, number: int) -> None:
    [answer] = door.model("identity_fp32").infer(inputs={"INPUT0": np.array([number], np.float32)})
    assert answer.error is None, answer.error
    assert [number] == list(answer.outputs["OUTPUT0"])


def overlapping(door: Door, number: int) -> None:
    """Ask while something is open, so that there is no moment to connect anew."""
    value = {"INPUT0": np.array([number], np.float32)}
    model = door.model("identity_fp32")
    first, second = model.infer(inputs=value), model.infer(inputs=value)
    [answer] = first
    third = model.infer(inputs=value)
    for each in (answer, *second, *third):
        assert each.error is None, each.error
        assert [number] == list(each.outputs["OUTPUT0"])


def sequence(door: Door, number: int) -> None:
    for step in range(6):
        [answer] = door.model("sequences").infer(
            inputs={"VALUE": np.ones((1, 1), np.int32)},
            correlation_id=number + 1,
            sequence_start=step == 0,
            sequence_end=step == 5,
        )
        if answer.error is not None:
            raise answer.error
        assert step + 1 == answer.outputs["SUM"].item()
        threading.Event().wait(0.1)


@pytest.mark.long(
    "extras/door/system/test_leaving.py::test_a_server_that_stops_answers_until_its_clients_are_quiet",
    "system/replacements/test_take_over.py::test_a_server_is_replaced_without_a_failed_request",
)
def test_a_server_that_takes_over_loses_no_request_at_the_door(tmp_path: Path) -> None:
    path = f"{tmp_path}/r/door"
    way = ByTakeOver(tmp_path / "s", ("--zmq-door", f"--runtime-directory={tmp_path}/r"))
    way.start()
    eventually(lambda: Path(path).exists(), 60)
    asking = [
        Asking(path, plain, is_kept=True),
        Asking(path, plain, is_kept=False),
        Asking(path, overlapping, is_kept=True),
        Asking(path, sequence, is_kept=True),
    ]
    with ThreadPoolExecutor() as threads:
        ends = [threads.submit(each.run) for each in asking]
        try:
            way.replace()
            before = [each.right for each in asking]
            eventually(
                lambda: all(a.right > b + 1 for a, b in zip(asking, before, strict=True)), 60
            )
        finally:
            for each in asking:
                each.is_over.set()
            [end.result(60) for end in ends]
            way.close()

    assert [text for each in asking for text in each.failures] == []
