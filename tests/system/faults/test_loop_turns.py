"""Each process knows how long its loop's turns take, and what it was at in a long one."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.scraping import sum_series
from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

#: At a signal, a process stands in its loop's next turn, longer each time; at another one a thread
#: keeps the interpreter's lock, as one does that reads a large document.
_STANDING = """
import itertools, signal, sys, threading, time
def keep_the_lock():
    sum(range(next(lengths) * 50_000_000))
lengths = itertools.count(1)
def stand(frame, event, argument):
    if event == "call" and frame.f_code.co_name in ("tick", "_beat"):
        sys.setprofile(None)
        time.sleep(0.6 * next(lengths))
install = signal.signal
install(signal.SIGRTMIN, lambda number, frame: sys.setprofile(stand))
install(signal.SIGRTMAX, lambda number, frame: threading.Thread(target=keep_the_lock).start())
own = (signal.SIGRTMIN, signal.SIGRTMAX)
# the supervisor has a handler for all others
signal.signal = lambda number, handler: number in own or install(number, handler)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("turns")
    (directory / "sitecustomize.py").write_text(_STANDING)
    path = os.pathsep.join([str(directory), *filter(None, [os.environ.get("PYTHONPATH")])])
    options = [f"--runtime-directory={directory}/run"]
    with Server(
        directory / "s",
        ["add_sub"],
        options=options,
        environment={"PYTHONPATH": path},
        frontends=("metrics",),
    ) as server:
        yield server


def longest_turn(server: Server, role: str) -> dict[str, Any]:
    _, status = server.request_json("/v2/zmqtriton/status")
    [turn] = [p.get("longest_turn") for p in status["processes"] if p["role"] == role]
    return turn or {"stood_s": 0.0, "locked_s": 0.0}


@pytest.mark.parametrize("role", ["supervisor", "http", "metrics"])
def test_a_loop_that_stands_is_told_with_its_place(server: Server, role: str) -> None:
    [*_, pid] = server.pids()[role]

    def has_stood() -> bool:
        # on a busy machine it stands elsewhere, too, and its watcher may miss where
        os.kill(pid, signal.SIGRTMIN)
        turn = longest_turn(server, role)
        return "stand (sitecustomize.py:" in str(turn) and turn["stood_s"] > 0.4

    eventually(has_stood, 60, f"{role} has stood")

    eventually(
        lambda: sum_series(server, "zmqtriton_loop_turn_seconds_max", process=role) > 0.4, 60
    )
    assert sum_series(server, "zmqtriton_loop_turn_seconds_count", process=role) >= 1
    eventually(lambda: "a turn of the loop of zmqtriton" in server.log_text(), 60)


def test_a_loop_that_waits_for_the_interpreters_lock_is_told(server: Server) -> None:
    [*_, pid] = server.pids()["http"]

    def has_waited() -> bool:
        os.kill(pid, signal.SIGRTMAX)
        turn = longest_turn(server, "http")
        return "keep_the_lock (" in str(turn) and turn["locked_s"] > 0.4

    eventually(has_waited, 120, "http has waited")

    eventually(lambda: " s for a lock" in server.log_text(), 60)
