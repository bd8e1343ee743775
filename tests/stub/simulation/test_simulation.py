"""Random days of the stub."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest

from tests.stub.simulation.days import SECOND_NS, Day
from zmqtriton_floor import wire
from zmqtriton_stub.broker import bls_client, line, unconfirmed_answers
from zmqtriton_stub.execution import executions, streams

pytestmark = pytest.mark.slow


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Day]]:
    """The time of a day, which is in this list; hellos and windows are small."""
    days: list[Day] = []

    def now_ns() -> int:
        return days[0].now_ns if days else SECOND_NS

    clock: Any = Mock(time, monotonic_ns=now_ns, monotonic=lambda: now_ns() / SECOND_NS)
    for module in (bls_client, line, streams):
        monkeypatch.setattr(module, "time", clock)
    for module in (unconfirmed_answers, executions):
        monkeypatch.setattr(module, "_now_ns", now_ns)
    monkeypatch.setattr(wire, "MAX_ROWS", 4)
    monkeypatch.setattr(wire, "STREAM_WINDOW", 4)
    yield days
    for day in days:
        day.close()


@pytest.mark.parametrize("seed", range(40))
def test_everything_that_is_promised_holds_at_any_moment(clock: list[Day], seed: int) -> None:
    day = Day(seed)
    clock.append(day)

    day.run(300)

    day.run_to_end()
