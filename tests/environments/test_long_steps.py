"""Steps that take minutes say how far they are."""

from __future__ import annotations

import pytest

from zmqtriton.long_steps import StepProgress


def test_a_long_step_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StepProgress, "INTERVAL_S", 0.0)
    said: list[str] = []
    small = StepProgress("Reading x", 200, lambda level, text: said.append(text))
    large = StepProgress("Copying y", 8 << 20, lambda level, text: said.append(text))

    small.update(50)
    small.update(200)
    large.update(2 << 20)

    assert ["Reading x: 25 %", "Reading x: 100 %", "Copying y: 25 % of 8 MiB"] == said


def test_a_short_step_says_nothing() -> None:
    said: list[str] = []

    StepProgress("Reading x", 200, lambda level, text: said.append(text)).update(50)

    assert [] == said
