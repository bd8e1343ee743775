"""Tokens per second of models, of the sums of the process that counts them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from zmqtriton_standard.history.sampler import TokenRates
from zmqtriton_standard.history.samples import ModelSample


@pytest.fixture
def rates() -> TokenRates:
    settings = SimpleNamespace(
        metrics_service=SimpleNamespace(tokens=""), server=SimpleNamespace(runtime_directory="")
    )
    return TokenRates(SimpleNamespace(settings=settings))  # type: ignore[arg-type]


def tokens_of(
    rates: TokenRates, sums: dict[str, int], now_s: float, *names: str
) -> dict[str, float | None]:
    rated = rates.rate({name: ModelSample() for name in names}, sums, now_s)
    return {name: sample.tokens_per_s for name, sample in rated.items()}


def test_tokens_are_those_since_the_last_sample_of_a_model(rates: TokenRates) -> None:
    assert {"a:1": None} == tokens_of(rates, {"a:1": 100}, 10.0, "a:1")
    assert {"a:1": 4.0, "b:1": None} == tokens_of(rates, {"a:1": 120}, 15.0, "a:1", "b:1")
    # b's are there before its sample has its request
    assert {"a:1": 0.0} == tokens_of(rates, {"a:1": 120, "b:1": 10}, 20.0, "a:1")
    assert {"b:1": 2.0} == tokens_of(rates, {"a:1": 120, "b:1": 10}, 25.0, "b:1")


def test_a_process_that_counts_anew_counts_from_zero(rates: TokenRates) -> None:
    tokens_of(rates, {"a:1": 100}, 10.0)

    assert {"a:1": 1.0} == tokens_of(rates, {"a:1": 5}, 15.0, "a:1")
