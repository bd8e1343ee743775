"""The settings of canaries: forms, limits, and the texts for what is none."""

from __future__ import annotations

from typing import Any

import pytest

from zmqtriton_extras.canaries.settings import (
    CanarySettings,
    LatencyMeasure,
    parse_settings,
)
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

    assert (settings.abort_failures, settings.promote_after_s) == (None, None)


def test_times_may_be_parts_of_a_second() -> None:
    assert parse_settings({"version": 2, "weight": 1, "abort_within": 0.5}).abort_within_s == 0.5


NO_VALUES: dict[str, tuple[Any, ...]] = {
    "weight": (-1, 100.5, "much", "nan", True, None, [], "1e999"),
    "version": (0, -1, 1.5, "x", 1 << 70),
    "header": ("", "two words: 1", 5, "x: \n", "ä: 1"),
    "abort_latency": (0, "x", "-1x"),
    "promote_after": ("m", "5 d", -1),
    "min_requests": (0, 0.5),
    "tolerance": ("inf",),
    "sticky": ("", "two words", 5),
    "latency": ("", "p0", "p100", "p", "compute request p90 mean", "fast", 90),
    "abort_hang": (0, "-1s", "x", "1e9s"),
    "abort_within": (0, "soon"),
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in NO_VALUES.items() for value in values]
)
def test_what_is_no_value_is_refused_with_its_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidArgument, match=f"^'{name}' of a canary is .*, not (an? |the )"):
        parse_settings({"version": 2, "weight": 1, name: value})


def test_the_version_stays() -> None:
    settings = CanarySettings(2, 10.0)

    assert settings.changed({"weight": 20}).weight == 20.0
    with pytest.raises(InvalidArgument, match="cannot be changed"):
        settings.changed({"version": 3})


@pytest.mark.parametrize(
    ("text", "measure"),
    [
        ("p99", LatencyMeasure(is_compute=True, percentile=99.0)),
        ("request p99.9", LatencyMeasure(is_compute=False, percentile=99.9)),
        ("mean request", LatencyMeasure(is_compute=False, percentile=0.0)),
        ("compute", LatencyMeasure(is_compute=True, percentile=90.0)),
    ],
)
def test_a_measure_of_latency_is_one_word_or_two(text: str, measure: LatencyMeasure) -> None:
    settings = parse_settings({"version": 2, "weight": 1, "latency": text})

    assert measure == settings.latency
    assert measure == settings.changed({"latency": str(measure)}).latency


def test_a_key_and_the_limits_of_executions_are_read_and_switched_off() -> None:
    on = {"sticky": "X-User", "abort_hang": "2m", "abort_within": 5}
    settings = parse_settings({"version": 2, "weight": 1, **on})
    off = settings.changed(dict.fromkeys(on, "off"))

    limits = settings.abort_hang_s, settings.abort_within_s
    assert (settings.sticky, *limits) == ("x-user", 120.0, 5.0)
    assert (off.sticky, off.abort_hang_s, off.abort_within_s) == ("", None, None)


@pytest.mark.parametrize(
    ("header", "words"), [("X-Try", "those with 'x-try'"), ("X-Try: 1", "those with 'x-try: 1'")]
)
def test_a_canary_is_described_with_its_header(header: str, words: str) -> None:
    assert words in parse_settings({"version": 2, "header": header}).describe()
