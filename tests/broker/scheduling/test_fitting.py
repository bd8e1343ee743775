"""Which requests share a batch by their cost and their likeness."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.broker.scheduling.fitted_days import FittedDay
from zmqtriton.broker.scheduling.fitting import FittingQueue

pytestmark = pytest.mark.slow

_SEEDS = range(12)


@pytest.mark.parametrize("seed", _SEEDS)
def test_fitted_batches_keep_their_laws_whatever_comes(seed: int) -> None:
    FittedDay(seed).run(200)


_WITHIN, _ARRANGE = FittingQueue._within_budget, FittingQueue._arrange
_TAKE = FittingQueue.take


def _one_more(queue: Any, waiting: Any) -> Any:
    waiting = [*waiting]
    within, closing = _WITHIN(queue, waiting)
    return waiting[: len(within) + 1], closing


def _newest_first(queue: Any, waiting: Any, now_ns: int) -> Any:
    return _ARRANGE(queue, waiting, now_ns)[::-1]


def _by_size_alone(queue: Any, waiting: Any, now_ns: int) -> Any:
    return sorted(waiting, key=lambda one: one.measured.likeness)


def _never(*_: Any) -> bool:
    return False


def _without_the_last(queue: Any, requests: Any) -> Any:
    return _TAKE(queue, requests)[:-1] or requests


def _not_yet(queue: Any, waiting: Any, now_ns: int) -> Any:
    return []


@pytest.mark.parametrize(
    ("name", "broken", "law"),
    [
        ("_within_budget", _one_more, "the budget is exceeded"),
        ("_arrange", _newest_first, "a request starves"),
        ("_arrange", _by_size_alone, "priorities are mixed"),
        ("_is_hurried", _never, "its end is near"),
        ("choose", _not_yet, "a request waits beyond the delay"),
        ("take", _without_the_last, "answers are not whole"),
    ],
)
def test_a_law_that_is_broken_is_found(
    name: str, broken: Callable[..., Any], law: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FittingQueue, name, broken)

    assert any(law in _fault(seed) for seed in _SEEDS)


def _fault(seed: int) -> str:
    try:
        FittedDay(seed).run(200)
    except AssertionError as error:
        return str(error)
    return ""
