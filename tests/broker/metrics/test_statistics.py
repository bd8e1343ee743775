"""Times of requests by buckets, and refusals by the limit that they were for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from zmqtriton.broker.metrics.statistics import ModelStatistics
from zmqtriton.broker.requests.limits import MAX_UNANSWERED_BYTES, Limits
from zmqtriton_floor.metrics import REQUEST_BOUNDS_S
from zmqtriton_floor.settings.broker import RequestLimits

MILLISECOND = 1_000_000


def request(arrived_ns: int = 0) -> Any:
    return SimpleNamespace(arrived_ns=arrived_ns, elements=1, is_cancelled=False)


def test_each_success_falls_into_the_bucket_whose_bound_it_does_not_exceed() -> None:
    counters = ModelStatistics()

    for took_ns in (1, MILLISECOND // 2, MILLISECOND, MILLISECOND + 1, 60_000 * MILLISECOND):
        counters.record_success(request(7), 7 + took_ns)
    counters.record_cache_hit(request(), 3 * MILLISECOND)

    bounds = ["0.0005", "0.001", "0.0025", "0.005"]
    assert bounds == [str(bound) for bound in REQUEST_BOUNDS_S[:4]]
    assert [2, 1, 1, 1] == counters.own()["times"][:4]
    assert 1 == counters.own()["times"][-1]
    assert counters.success.count == sum(counters.own()["times"])


@pytest.mark.parametrize(
    ("unanswered", "in_model", "waiting_bytes", "limit"),
    [
        (10, 1, 0, "max_requests"),
        (5, 3, 0, "max_model_requests"),
        (5, 1, MAX_UNANSWERED_BYTES, "memory"),
    ],
)
def test_a_refusal_tells_the_limit_that_was_reached(
    unanswered: int, in_model: int, waiting_bytes: int, limit: str
) -> None:
    limits, counters = Limits(), ModelStatistics()
    limits.configure(RequestLimits(max_requests=10, max_model_requests=3))
    limits.unanswered, limits.unanswered_bytes = unanswered, waiting_bytes
    generation: Any = SimpleNamespace(max_requests=None, unanswered=in_model, statistics=counters)

    assert limits.is_reached(generation, is_client=True)
    limits.refuse(generation, 7)

    assert (f"Exceeds maximum queue size ({limit})", 7) == counters.last_error
    assert {limit: 1} == counters.own()["refusals"]
    assert (1, 1) == (limits.refused, counters.failures["REJECTED"])


def test_a_refusal_for_the_parameter_of_a_model_names_that() -> None:
    limits, counters = Limits(), ModelStatistics()
    limits.configure(RequestLimits(max_requests=10, max_model_requests=3))
    generation: Any = SimpleNamespace(max_requests=1, unanswered=1, statistics=counters)

    limits.refuse(generation, 7)

    assert ("Exceeds maximum queue size (the model's max_requests)", 7) == counters.last_error
