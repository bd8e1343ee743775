"""Steps that take minutes say how far they are."""

from __future__ import annotations

import pytest

from tests.support.reports import Reports
from zmqtriton.long_steps import StepProgress
from zmqtriton_standard.environments.reports import ByteCounter


def test_a_long_step_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ByteCounter, "LOG_EVERY_S", 0.0)
    said = Reports()
    small = ByteCounter("Reading x", 200, said)
    large = ByteCounter("Copying y", 8 << 20, said)

    small.add(50)
    small.add(150)
    large.add(2 << 20)

    texts = ["Reading x: 25 %", "Reading x: 100 %", "Copying y: 25 % of 8 MiB"]
    assert [("I", text) for text in texts] == said.lines
    assert [0.0, 0.0, 0.25, 1.0, 0.25] == [step.share for step in said.steps]


def test_each_percent_is_reported_and_a_short_step_is_not_in_the_log() -> None:
    said = Reports()
    counter = ByteCounter("Reading x", 1000, said)

    for count in (1, 8, 1, 9, 981):
        counter.add(count)

    assert ([], [0, 10, 1000]) == (said.lines, [step.done for step in said.steps])


def test_a_step_of_unknown_length_has_a_title_alone() -> None:
    step = StepProgress("Installing numpy")

    assert ("Installing numpy", None) == (str(step), step.share)
