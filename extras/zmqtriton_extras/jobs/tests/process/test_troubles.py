"""Troubles that last are told at their beginning and their end."""

from __future__ import annotations

import pytest

from zmqtriton_extras.jobs.process.troubles import Trouble


def test_a_trouble_is_told_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    trouble = Trouble("it cannot be", "it is over")
    for who in "abab":
        trouble.goes_on(OSError("the disk is full"), who)
    assert caplog.messages == ["it cannot be, and it is tried again: the disk is full"]

    trouble.ends("a")
    trouble.ends("c")
    assert len(caplog.messages) == 1
    trouble.ends("b")
    trouble.ends("b")

    assert caplog.messages[1:] == ["it is over"]
    trouble.goes_on(OSError("again"), "a")
    assert len(caplog.messages) == 3
