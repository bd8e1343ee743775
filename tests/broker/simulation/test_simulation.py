"""Random days of the broker."""

from __future__ import annotations

import pytest

from tests.broker.simulation.days import RandomRun
from zmqtriton.broker.scheduling import execution_rate

pytestmark = pytest.mark.slow


# A few of the days of days.py; tests/faults/simulation.py lives ten thousand of them.


@pytest.mark.parametrize(
    "seed",
    [
        *range(40),
        *(
            pytest.param(
                seed,
                marks=pytest.mark.long(
                    "broker/simulation/test_simulation.py::test_everything_that_is_promised_holds_at_any_moment"
                ),
            )
            for seed in range(40, 100)
        ),
    ],
)
def test_everything_that_is_promised_holds_at_any_moment(seed: int) -> None:
    day = RandomRun(seed)

    day.run(150)

    day.run_to_end()


@pytest.mark.parametrize(
    "seed",
    [
        *range(10),
        *(
            pytest.param(
                seed,
                marks=pytest.mark.long(
                    "broker/simulation/test_simulation.py::test_it_holds_where_models_have_a_pace"
                ),
            )
            for seed in range(10, 40)
        ),
    ],
)
def test_it_holds_where_models_have_a_pace(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution_rate, "_CATCH_UP_NS", 0)
    day = RandomRun(seed, pace="400000")

    day.run(150)

    day.run_to_end()


def test_the_same_seed_is_the_same_day_with_everything() -> None:
    first, second = RandomRun(5), RandomRun(5)

    first.run(100)
    second.run(100)

    assert first.world.replies == second.world.replies
    assert first.world.batched_requests == second.world.batched_requests
