"""Values that stand for the observations in an engine's histogram."""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections import Counter

import pytest

from zmqtriton_extras.backends.engine_metrics import values_of


@pytest.mark.parametrize("seed", range(20))
def test_they_fall_into_the_same_buckets_and_have_the_same_sum(seed: int) -> None:
    chance = random.Random(seed)
    bounds = sorted(
        {chance.uniform(-1 if seed % 2 else 0, 10) for _ in range(chance.randrange(1, 9))}
    )
    observed = [chance.uniform(bounds[0] - 0.5, 15) for _ in range(chance.randrange(1, 200))]
    places = Counter(bisect_left(bounds, value) for value in observed)
    counts = [places[place] for place in range(len(bounds) + 1)]

    values = list(values_of(bounds, counts, sum(observed)))

    assert places == Counter(bisect_left(bounds, value) for value in values)
    assert math.isclose(sum(observed), sum(values), rel_tol=1e-9, abs_tol=1e-9)


def test_nothing_new_is_no_value() -> None:
    assert list(values_of([1.0], [0, 0], 0.0)) == []
