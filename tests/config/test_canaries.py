"""The settings of canaries: forms, limits, and the texts for what is none."""

from __future__ import annotations

from typing import Any

import pytest

from zmqtriton.config.canaries import CanarySettings, parse_settings
from zmqtriton_floor.errors import InvalidArgument


@pytest.mark.row("L16")
def test_texts_and_numbers_are_read_alike() -> None:
    texts = {
        **{"version": "2", "weight": "12.5%", "header": "X-Try: 1", "shadow": "5"},
        **{"tolerance": "1e-3", "abort_failures": "2%", "abort_latency": "1.5x"},
        **{"min_requests": "10", "promote_after": "2m"},
    }
    numbers = {
        **{"version": 2, "weight": 12.5, "header": "x-try:1", "shadow": 5},
        **{"tolerance": 0.001, "abort_failures": 2, "abort_latency": 1.5},
        **{"min_requests": 10, "promote_after": 120},
    }

    expected = CanarySettings(2, 12.5, ("x-try", "1"), 5.0, 0.001, 2.0, 1.5, 10, 120.0)
    assert expected == parse_settings(texts) == parse_settings(numbers)


def test_limits_can_be_switched_off() -> None:
    settings = parse_settings(
        {"version": 2, "weight": 1, "abort_failures": "off", "promote_after": None}
    )

    assert (None, None) == (settings.abort_failures, settings.promote_after_s)


NO_VALUES: dict[str, tuple[Any, ...]] = {
    "weight": (-1, 100.5, "much", "nan", True, None, [], "1e999"),
    "version": (0, -1, 1.5, "x", 1 << 70),
    "header": ("", "two words: 1", 5, "x: \n", "ä: 1"),
    "abort_latency": (0, "x", "-1x"),
    "promote_after": ("m", "5 d", -1),
    "min_requests": (0, 0.5),
    "tolerance": ("inf",),
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in NO_VALUES.items() for value in values]
)
def test_what_is_no_value_is_refused_with_its_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidArgument, match=f"^'{name}' of a canary is .*, not (an? |the )"):
        parse_settings({"version": 2, "weight": 1, name: value})


def test_the_version_stays() -> None:
    settings = CanarySettings(2, 10.0)

    assert 20.0 == settings.changed({"weight": 20}).weight
    with pytest.raises(InvalidArgument, match="cannot be changed"):
        settings.changed({"version": 3})
