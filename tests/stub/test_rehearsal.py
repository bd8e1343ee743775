"""The fork server's rehearsal, of which nothing may be left."""

from __future__ import annotations

import gc
import os
import signal
import threading
from typing import Any

import pytest

from zmqtriton_floor import wire
from zmqtriton_stub import instance as this_process
from zmqtriton_stub import loop
from zmqtriton_stub.fork_server import rehearse


def _state() -> dict[str, Any]:
    gc.collect()
    return {
        "descriptors": sorted(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "instance": (this_process.current, list(this_process.on_fork)),
        "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
        "frozen": gc.get_freeze_count(),
    }


def test_it_leaves_nothing_in_the_process() -> None:
    rehearse()  # what is made once is not what is left each time
    before = _state()

    rehearse()

    assert before == _state()


def test_it_goes_through_the_life_of_a_stub(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    for step in ("_load", "_connect", "_finish", "close"):
        original = getattr(loop.Stub, step)

        def note(*arguments: Any, name: str = step, original: Any = original) -> Any:
            steps.append(name)
            return original(*arguments)

        monkeypatch.setattr(loop.Stub, step, note)
    monkeypatch.delitem(wire.SCHEMAS["Initialize"].__dict__, "read", raising=False)

    rehearse()

    assert ["_load", "_connect", "_finish", "close"] == steps
    assert "read" in wire.SCHEMAS["Initialize"].__dict__
