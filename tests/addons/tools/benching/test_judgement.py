"""The judgement of the rows of a benchmark."""

from __future__ import annotations

from typing import Any

import pytest

from zmqtriton_addons.tools.benching.results import judge


def row(concurrency: int = 8, **figures: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "concurrency": concurrency,
        "rate": None,
        "requests": 1000,
        "failed": 0,
        "failures": {},
        "requests_per_s": 100.0 * concurrency,
        "mean_ms": 10.0,
        "queue_ms": 1.0,
        "compute_ms": 1.0,
        "batch_size": 1.0,
        "client_cores": 0.2,
    }
    return usual | figures


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({"queue_ms": 8.0}, "the queue is the largest part"),
        ({"queue_ms": 8.0}, "`zmqtriton-ctl scale m N`"),
        ({"queue_ms": 8.0, "batch_size": 1.1}, "dynamic_batching: each request is executed alone"),
        ({"queue_ms": 8.0, "batch_size": 7.5}, "larger max_batch_size: a batch has 7.5 now"),
        ({"compute_ms": 8.0}, "the model is the largest part"),
        ({}, "the way is the largest part"),
        ({}, "of 10 ms a request waits 1 ms, is executed 1 ms, and is on its way 8 ms"),
    ],
)
def test_the_largest_part_decides_what_to_try(figures: dict[str, Any], said: str) -> None:
    (sentence,) = judge("m", [row(**figures)])

    assert said in sentence


def test_more_clients_are_advised_only_while_the_rate_grows() -> None:
    (growing,) = judge("m", [row(1), row(8)])
    (full,) = judge("m", [row(8), row(32, requests_per_s=790.0)])
    (chosen,) = judge("m", [row(8, rate=100.0)])

    assert growing.endswith("try a higher --concurrency, too")
    assert "--concurrency" not in full
    assert "--concurrency" not in chosen


def test_failures_and_a_busy_client_come_first() -> None:
    failing = row(failed=10, failures={"out of memory": 9, "no answer": 1})

    said = judge("m", [failing, row(32, client_cores=0.97)])

    assert said[0].startswith("10 of 2000 requests failed, most with: out of memory; ")
    assert "at its limit with concurrency 32 (a process uses 97% of a core)" in said[1]
    assert 3 == len(said)


def test_what_is_not_known_is_not_judged() -> None:
    assert [] == judge("m", [])
    assert [] == judge("m", [row(queue_ms=None, compute_ms=None)])
