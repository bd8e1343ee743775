"""The judgement of the rows of a benchmark."""

from __future__ import annotations

from typing import Any

import pytest

from zmqtriton_extras.bench.results import judge


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


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({}, "the time between responses is the largest part, which is the model's pace"),
        ({"mean_first_ms": 600.0}, "the way to the first response is the largest part"),
        (
            {"queue_ms": 700.0, "mean_first_ms": 750.0},
            "several requests at once (`async def`, MAX_",
        ),
        (
            {},
            "of 1e+03 ms a stream waits 1 ms in the queue, has its first response after 50 ms",
        ),
        ({}, "950 ms later the last of 20: "),
    ],
)
def test_a_stream_is_told_where_its_time_goes(figures: dict[str, Any], said: str) -> None:
    usual = {"mean_ms": 1000.0, "mean_first_ms": 50.0, "responses": 20.0, "compute_ms": 2.0}

    (sentence,) = judge("m", [row(**{**usual, **figures})])

    assert said in sentence
    assert ("scale" in sentence) == ("queue_ms" in figures)


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({"queue_ms": 8.0}, "the queue of 'slow', its slowest step, is the largest part"),
        ({"queue_ms": 8.0}, "`zmqtriton-ctl scale slow N`"),
        ({"queue_ms": 8.0}, "a larger max_batch_size: a batch has 4 now"),
        ({"compute_ms": 8.0}, "'slow', its slowest step, is the largest part"),
    ],
)
def test_of_an_ensemble_the_slowest_step_is_named(figures: dict[str, Any], said: str) -> None:
    steps = {
        "fast": {"queue_ms": 0.1, "compute_ms": 0.1, "batch_size": 1.0},
        "slow": {"queue_ms": 4.0, "compute_ms": 4.0, "batch_size": 4.0},
        "unasked": {"queue_ms": None, "compute_ms": None, "batch_size": None},
    }

    (sentence,) = judge("m", [row(steps=steps, **figures)])

    assert said in sentence
    assert "scale m" not in sentence


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
    assert len(said) == 3


def test_what_is_not_known_is_not_judged() -> None:
    assert judge("m", []) == []
    assert judge("m", [row(queue_ms=None, compute_ms=None)]) == []
