"""A few of the days of days.py; tests/faults/simulation.py lives ten thousand of them."""

from __future__ import annotations

import pytest

from tests.broker.simulation.days import Day


@pytest.mark.parametrize("seed", range(60))
def test_everything_that_is_promised_holds_at_any_moment(seed: int) -> None:
    day = Day(seed)

    day.run(150)

    day.end()


def test_the_same_seed_is_the_same_day_with_everything() -> None:
    first, second = Day(5), Day(5)

    first.run(100)
    second.run(100)

    assert first.world.replies == second.world.replies
    assert first.world.works == second.world.works
