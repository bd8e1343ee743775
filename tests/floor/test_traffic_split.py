"""The division of requests between two versions."""

from __future__ import annotations

import pytest

from zmqtriton_floor.routing import ALL, goes_to_canary, is_copied
from zmqtriton_floor.wire import TrafficSplit


def split(weight: int, shadow: int = 0) -> TrafficSplit:
    return TrafficSplit("m", 1, 2, weight, shadow=shadow)


@pytest.mark.parametrize("correlation", [0, "", 7, "a"])
def test_none_and_all_are_exact(correlation: int | str) -> None:
    for _ in range(100):
        assert not goes_to_canary(split(0), correlation)
        assert goes_to_canary(split(ALL), correlation)


@pytest.mark.row("L16")
def test_shares_are_about_right() -> None:
    sequences = sum(goes_to_canary(split(2000), number) for number in range(1, 10_001))
    others = sum(goes_to_canary(split(2000), 0) for _ in range(10_000))
    copies = sum(is_copied(split(0, shadow=2000)) for _ in range(10_000))

    for count in (sequences, others, copies):
        assert 1500 < count < 2500


def test_a_sequence_stays_and_a_greater_share_takes_none_away() -> None:
    for correlation in [*range(1, 200), *"abcdefgh", "\udc80"]:
        choices = [goes_to_canary(split(weight), correlation) for weight in range(0, ALL, 500)]

        assert sorted(choices) == choices
        assert choices[3] == goes_to_canary(split(1500), correlation)
