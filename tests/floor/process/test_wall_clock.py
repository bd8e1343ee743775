from __future__ import annotations

import time

import pytest

from zmqtriton_floor.process import wall_clock

_WALL_NS = 1_700_000_000_000_000_000


class Clocks:
    """A time module in which the looks take as long as the machine makes them."""

    def __init__(self, *looks_ns: int) -> None:
        self._now_ns = 0
        self._looks_ns = iter(looks_ns)

    def monotonic_ns(self) -> int:
        now_ns = self._now_ns
        self._now_ns += next(self._looks_ns, 100)
        return now_ns

    def time_ns(self) -> int:
        return self._now_ns + _WALL_NS


def test_a_time_that_was_measured_is_told_as_the_wall_says() -> None:
    told_ns = time.monotonic_ns() + wall_clock.offset_ns()

    assert abs(time.time_ns() - told_ns) < 60_000_000_000


@pytest.mark.parametrize("disturbed", [0, 1, 2, 3])
def test_the_clocks_are_compared_in_an_undisturbed_moment(
    monkeypatch: pytest.MonkeyPatch, disturbed: int
) -> None:
    looks_ns = [100] * 8
    looks_ns[2 * disturbed] = 1_000_000_000
    monkeypatch.setattr(wall_clock, "time", Clocks(*looks_ns))

    assert 0 <= wall_clock.offset_ns() - _WALL_NS <= 100
