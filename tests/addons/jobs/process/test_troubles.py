"""Troubles that last are told at their beginning and their end."""

from __future__ import annotations

import pytest

from zmqtriton_addons.jobs.process.troubles import Trouble


def test_a_trouble_is_told_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    trouble = Trouble("it cannot be", "it is over")
    for who in "abab":
        trouble.goes_on(OSError("the disk is full"), who)
    assert ["it cannot be, and it is tried again: the disk is full"] == caplog.messages

    trouble.ends("a")
    trouble.ends("c")
    assert 1 == len(caplog.messages)
    trouble.ends("b")
    trouble.ends("b")

    assert ["it is over"] == caplog.messages[1:]
    trouble.goes_on(OSError("again"), "a")
    assert 3 == len(caplog.messages)
