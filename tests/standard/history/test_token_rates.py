"""Tokens per second of models, of the sums of the process that counts them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest

from zmqtriton_floor.metrics import TOKENS
from zmqtriton_floor.settings.offers import Offers
from zmqtriton_standard.history.sampler import TokenRates
from zmqtriton_standard.history.samples import ModelSample


def rates_of(module: str) -> TokenRates:
    settings = SimpleNamespace(
        offers=Offers().adding(TOKENS.name, module) if module else Offers(),
        server=SimpleNamespace(runtime_directory=""),
    )
    return TokenRates(SimpleNamespace(settings=settings))  # type: ignore[arg-type]


@pytest.fixture
def rates() -> TokenRates:
    return rates_of("")


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


def made_tokens(directory: Path) -> dict[str, int]:
    """Return the sums, where the module of --token-metrics would."""
    return {"a:1": 100}


async def _play(rates: TokenRates) -> list[float | None]:
    models = {"a:1": ModelSample()}
    return [(await rates.add_to(models))["a:1"].tokens_per_s for _ in range(2)]


@pytest.mark.parametrize(("module", "expected"), [(__name__, [None, 0.0]), ("", [None, None])])
def test_only_a_server_that_counts_tokens_has_rates(
    module: str, expected: list[float | None]
) -> None:
    assert expected == asyncio.run(_play(rates_of(module)))


def test_a_process_that_counts_anew_counts_from_zero(rates: TokenRates) -> None:
    tokens_of(rates, {"a:1": 100}, 10.0)

    assert {"a:1": 1.0} == tokens_of(rates, {"a:1": 5}, 15.0, "a:1")
