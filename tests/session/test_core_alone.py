"""The command that tests the core alone."""

from __future__ import annotations

from tools import core_alone


def test_more_options_leave_the_tests_quick() -> None:
    words = core_alone.command(["-n", "2"])

    assert ["-n", "2"] == words[-2:]
    assert "--quick" in words
