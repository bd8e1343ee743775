"""The header that tells a client the stages of its request."""

from __future__ import annotations

import time

import pytest

from zmqtriton_floor.wire import StageTimes
from zmqtriton_frontends.inference.stage_times import Stages, is_wish


def parts(written: str) -> dict[str, float]:
    pairs = (part.split(";dur=") for part in written.split(", "))
    return {name: float(value) for name, value in pairs}


def test_all_stages_are_told_in_milliseconds() -> None:
    stages = Stages(time.monotonic_ns() - 20_000_000)
    stages.take(StageTimes(7, 1_500_000, 20_000, 12_000_000, 3_000))

    times = parts(stages.write())

    assert 20 <= times.pop("total")
    assert {"queue": 1.5, "compute_input": 0.02, "compute": 12.0, "compute_output": 0.003} == times


def test_a_stage_that_is_not_known_by_itself_is_left_out() -> None:
    stages = Stages(0)
    stages.take(StageTimes(7, 1_000_000, 0, 2_000_000, 0))

    assert ["queue", "compute", "total"] == list(parts(stages.write()))


def test_without_word_of_the_broker_there_is_the_total() -> None:
    assert ["total"] == list(parts(Stages(0).write()))


@pytest.mark.parametrize("value", ["1", "true", " yes "])
def test_who_asks(value: str) -> None:
    assert is_wish(value)


@pytest.mark.parametrize("value", [None, "", "0", "False", "no"])
def test_who_does_not_ask(value: str | None) -> None:
    assert not is_wish(value)
