"""The line of a command that waits, and what is told of a load."""

from __future__ import annotations

import re

import pytest

from tests.support.waiting import eventually
from zmqtriton_standard.ctl.loading import describe
from zmqtriton_standard.ctl.output import LiveLine


def test_without_a_terminal_there_is_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(LiveLine, "FIRST_S", 0.01)
    monkeypatch.setattr(LiveLine, "EVERY_S", 0.01)

    with LiveLine("m") as line:
        line.show("it is copied: 25 %")
        expected = re.compile(r"^m: it is copied: 25 %, for \d s$", re.MULTILINE)
        eventually(lambda: expected.search(capsys.readouterr().err), 30)


def test_what_is_quick_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with LiveLine("m") as line:
        line.show("it is copied")

    assert ("", "") == capsys.readouterr()


def test_a_load_is_told_by_its_phase() -> None:
    phases = {"m": "Copying s3://b/m: 60 % of 80 MiB", "n": "its files are read"}

    assert "Copying s3://b/m: 60 % of 80 MiB" == describe(phases, "m")
    assert "m (Copying s3://b/m: 60 % of 80 MiB), n (its files are read)" == describe(phases, "")
    assert "" == describe({}, "x")
