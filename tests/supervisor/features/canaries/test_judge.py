"""Judgements about canaries: when there is one, and what it compares."""

from __future__ import annotations

import pytest

from zmqtriton.config.canaries import CanarySettings
from zmqtriton.supervisor.features.canaries.judge import Judge, VersionCounts

SETTINGS = CanarySettings(2, 10.0, abort_failures=5.0, abort_latency=2.0, min_requests=10)
MS = 1_000_000


def counts(succeeded: int, failed: int = 0, mean_ms: float = 1.0) -> VersionCounts:
    return VersionCounts(succeeded, failed, int(succeeded * mean_ms * MS))


def test_requests_before_the_canary_do_not_count() -> None:
    judge = Judge()

    assert "" == judge.judge(SETTINGS, counts(1000), counts(0, 1000))
    assert "" == judge.judge(SETTINGS, counts(1100), counts(100, 1000))
    assert (100, 100) == (judge.total.stable.requests, judge.total.canary.requests)


@pytest.mark.row("L16")
def test_each_judgement_is_about_what_is_new() -> None:
    judge = Judge()
    judge.judge(SETTINGS, counts(0), counts(0))
    assert "" == judge.judge(SETTINGS, counts(10_000), counts(10_000))

    assert "" == judge.judge(SETTINGS, counts(10_100), counts(10_000, 9))
    assert "10 of 10" in judge.judge(SETTINGS, counts(10_100), counts(10_000, 10))


def test_failures_of_the_stable_version_excuse_as_many() -> None:
    judge = Judge()
    judge.judge(SETTINGS, counts(0), counts(0))

    assert "" == judge.judge(SETTINGS, counts(80, 20), counts(75, 25))
    assert "26.0 % against 20.0 %" in judge.judge(SETTINGS, counts(160, 40), counts(149, 51))


def test_a_stable_version_with_few_requests_is_judged_by_all_that_it_had() -> None:
    judge = Judge()
    judge.judge(SETTINGS, counts(0), counts(0))
    judge.judge(SETTINGS, counts(50, 50), counts(50, 50))

    assert "" == judge.judge(SETTINGS, counts(51, 50), counts(60, 60))


def test_without_any_answer_of_the_stable_version_no_latency_is_too_long() -> None:
    judge = Judge()
    judge.judge(SETTINGS, counts(0), counts(0))

    assert "" == judge.judge(SETTINGS, counts(0), counts(100, mean_ms=1000.0))


def test_latency_is_that_of_what_succeeded() -> None:
    judge = Judge()
    judge.judge(SETTINGS, counts(0), counts(0))

    assert "" == judge.judge(SETTINGS, counts(100, mean_ms=1), counts(100, mean_ms=2))
    reason = judge.judge(SETTINGS, counts(200, mean_ms=1), counts(200, mean_ms=3))
    assert "the mean latency was 4.00 ms against 1.00 ms" in reason


def test_a_new_broker_counts_from_zero_and_nothing_is_lost() -> None:
    judge = Judge()
    judge.judge(SETTINGS, counts(0), counts(0))
    judge.judge(SETTINGS, counts(100), counts(50))

    assert "" == judge.judge(SETTINGS, counts(5), counts(0, 5))
    assert "" == judge.judge(SETTINGS, counts(10), counts(0, 14))
    assert (105, 59) == (judge.total.stable.requests, judge.total.canary.requests)
    assert "10 of 10" in judge.judge(SETTINGS, counts(10), counts(0, 15))
