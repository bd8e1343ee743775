"""Which requests a server captures."""

from __future__ import annotations

import pytest

from zmqtriton_extras.capture.options import problem
from zmqtriton_extras.capture.rates import Rate, Sampler, parse


def test_rates_are_shares_or_numbers_per_second() -> None:
    expected = (Rate("prices", 0.1), Rate("fraud", 0.0, 2.5), Rate("logs*", 1.0))

    assert expected == parse("prices:10%, fraud:2.5/s,logs*")


@pytest.mark.parametrize(
    "text", ["", "a,", ":10%", "a:0%", "a:101%", "a:x", "a:1", "a:-1/s", "a:nan/s", "a:inf/s"]
)
def test_other_rates_are_refused_with_the_reason(text: str) -> None:
    assert problem({"capture": text, "capture_to": "/d"}).startswith(f"'--capture={text}': ")


def test_a_directory_is_needed() -> None:
    assert "--capture-to" in problem({"capture": "a", "capture_to": ""})
    assert problem({"capture": "a", "capture_to": "/d"}) == ""


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("https://logger/events", ""),
        ("https://", "has no host"),
        ("s3://", "must be s3://"),
        ("hf://org/name", "must be a bucket"),
    ],
)
def test_the_place_of_records_is_a_directory_a_bucket_or_an_address(place: str, text: str) -> None:
    assert text in problem({"capture": "a", "capture_to": place})
    assert bool(text) == bool(problem({"capture": "a", "capture_to": place}))


def test_a_name_or_the_beginning_of_names() -> None:
    assert Rate("ab*", 1.0).is_for("abc")
    assert not Rate("ab", 1.0).is_for("abc")


@pytest.mark.parametrize(("share", "least", "greatest"), [(1.0, 1000, 1000), (0.1, 50, 200)])
def test_a_share_of_requests_and_of_sequences(share: float, least: int, greatest: int) -> None:
    sampler = Sampler(Rate("m", share))

    assert least <= sum(sampler.takes(0, is_start=False) for _ in range(1000)) <= greatest
    taken = [sampler.takes(number, is_start=True) for number in range(1, 1001)]
    assert least <= sum(taken) <= greatest
    assert taken == [sampler.takes(number, is_start=False) for number in range(1, 1001)]


def test_so_many_a_second_and_the_rest_of_a_sequence_that_was_begun() -> None:
    now_s = [0.0]
    sampler = Sampler(Rate("m", 0.0, 1.0), lambda: now_s[0])

    assert [sampler.takes(0, is_start=False) for _ in range(2)] == [True, False]
    now_s[0] = 1.0
    assert sampler.takes("a", is_start=True)
    assert not sampler.takes("b", is_start=True)
    assert [sampler.takes(name, is_start=False) for name in "ab"] == [True, False]
    assert not sampler.takes("begun before", is_start=False)
