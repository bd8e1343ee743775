"""The command that tests the core alone."""

from __future__ import annotations

import pytest

from tools import core_alone


def test_more_options_leave_the_tests_quick() -> None:
    words = core_alone.command(["-n", "2"])

    assert ["-n", "2"] == words[-2:]
    assert "--quick" in words


@pytest.mark.extra("functions", "jobs", "openai", "routes", "web_sockets")
def test_extras_that_need_one_are_left_out_with_it() -> None:
    assert ["functions", "jobs", "openai", "routes"] == core_alone.with_those_that_need(["routes"])
    assert ["jobs", "openai", "web_sockets"] == core_alone.with_those_that_need(["web_sockets"])
