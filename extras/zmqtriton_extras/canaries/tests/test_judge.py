"""Judgements about canaries: when there is one, and what it compares."""

from __future__ import annotations

from collections import Counter

import pytest

from zmqtriton_extras.canaries.judge import Judge, VersionCounts
from zmqtriton_extras.canaries.settings import CanarySettings, LatencyMeasure

SETTINGS = CanarySettings(
    2,
    10.0,
    abort_failures=5.0,
    abort_latency=2.0,
    min_requests=10,
    latency=LatencyMeasure(is_compute=False, percentile=0.0),
)
MS, S = 1_000_000, 1_000_000_000


def counts(succeeded: int, failed: int = 0, mean_ms: float = 1.0) -> VersionCounts:
    return VersionCounts(succeeded, failed, int(succeeded * mean_ms * MS))


def test_requests_before_the_canary_do_not_count() -> None:
    judge = Judge()

    assert judge.judge(SETTINGS, counts(1000), counts(0, 1000)) == ""
    assert judge.judge(SETTINGS, counts(1100), counts(100, 1000)) == ""
    assert (judge.total.stable.requests, judge.total.canary.requests) == (100, 100)


@pytest.mark.row("L16")
def test_each_judgement_is_about_what_is_new() -> None:
    judge = Judge()
    judge.judge(SETTINGS, counts(0), counts(0))
    assert judge.judge(SETTINGS, counts(10_000), counts(10_000)) == ""

    assert judge.judge(SETTINGS, counts(10_100), counts(10_000, 9)) == ""
    assert "10 of 10" in judge.judge(SETTINGS, counts(10_100), counts(10_000, 10))


def test_failures_of_the_stable_version_excuse_as_many() -> None:
    judge = Judge()
    judge.judge(SETTINGS, counts(0), counts(0))

    assert judge.judge(SETTINGS, counts(80, 20), counts(75, 25)) == ""
    assert "26.0 % against 20.0 %" in judge.judge(SETTINGS, counts(160, 40), counts(149, 51))


def test_a_stable_version_with_few_requests_is_judged_by_all_that_it_had() -> None:
    judge = Judge()
    judge.judge(SETTINGS, counts(0), counts(0))
    judge.judge(SETTINGS, counts(50, 50), counts(50, 50))

    assert judge.judge(SETTINGS, counts(51, 50), counts(60, 60)) == ""


def test_without_any_answer_of_the_stable_version_no_latency_is_too_long() -> None:
    judge = Judge()
    judge.judge(SETTINGS, counts(0), counts(0))

    assert judge.judge(SETTINGS, counts(0), counts(100, mean_ms=1000.0)) == ""


def test_latency_is_that_of_what_succeeded() -> None:
    judge = Judge()
    judge.judge(SETTINGS, counts(0), counts(0))

    assert judge.judge(SETTINGS, counts(100, mean_ms=1), counts(100, mean_ms=2)) == ""
    reason = judge.judge(SETTINGS, counts(200, mean_ms=1), counts(200, mean_ms=3))
    assert "the mean latency was 4.00 ms against 1.00 ms" in reason


def test_a_new_broker_counts_from_zero_and_nothing_is_lost() -> None:
    judge = Judge()
    judge.judge(SETTINGS, counts(0), counts(0))
    judge.judge(SETTINGS, counts(100), counts(50))

    assert judge.judge(SETTINGS, counts(5), counts(0, 5)) == ""
    assert judge.judge(SETTINGS, counts(10), counts(0, 14)) == ""
    assert (judge.total.stable.requests, judge.total.canary.requests) == (105, 59)
    assert "10 of 10" in judge.judge(SETTINGS, counts(10), counts(0, 15))


def timed(request_ms: dict[int, int], compute_ms: dict[int, int]) -> VersionCounts:
    """Counts with so many requests of each duration."""
    number = sum(request_ms.values())
    return VersionCounts(
        number,
        executed=number,
        success_ns=sum(ms * count * MS for ms, count in request_ms.items()),
        compute_ns=sum(ms * count * MS for ms, count in compute_ms.items()),
        request_times=Counter({ms * MS: count for ms, count in request_ms.items()}),
        compute_times=Counter({ms * MS: count for ms, count in compute_ms.items()}),
    )


@pytest.mark.parametrize(
    ("measure", "reason"),
    [
        (LatencyMeasure(is_compute=True, percentile=90.0), ""),
        (LatencyMeasure(is_compute=True, percentile=0.0), "the mean execution time was 1.90 ms"),
        (LatencyMeasure(is_compute=True, percentile=99.0), "the 99th percentile of the execution"),
        (LatencyMeasure(is_compute=False, percentile=50.0), "the 50th percentile of the latency"),
    ],
)
def test_latency_is_compared_as_the_settings_say(measure: LatencyMeasure, reason: str) -> None:
    settings = SETTINGS._replace(latency=measure, abort_latency=1.5)
    judge = Judge()
    judge.judge(settings, counts(0), counts(0))

    stable = timed({10: 1000}, {1: 1000})
    verdict = judge.judge(settings, stable, timed({90: 100}, {1: 90, 10: 10}))

    assert verdict.startswith(reason)
    assert bool(reason) == bool(verdict)


def test_streams_are_compared_by_their_requests() -> None:
    settings = SETTINGS._replace(latency=LatencyMeasure())
    judge = Judge()
    judge.judge(settings, counts(0), counts(0), is_decoupled=True)

    stable, canary = timed({10: 100}, {1: 100}), timed({90: 100}, {1: 100})
    reason = judge.judge(settings, stable, canary, is_decoupled=True)

    assert "the 90th percentile of the latency was 90.00 ms against 10.00 ms" in reason


def test_clients_that_leave_count_and_those_that_leave_the_stable_version_excuse_them() -> None:
    judge = Judge()
    judge.judge(SETTINGS, counts(0), counts(0))

    some_left = VersionCounts(80, cancelled=20)
    assert judge.judge(SETTINGS, some_left, VersionCounts(79, cancelled=21)) == ""
    reason = judge.judge(SETTINGS, VersionCounts(180, cancelled=20), VersionCounts(79, 5, 0, 116))
    assert "100 of 100 requests failed (95 left by their clients), 100.0 % against 0.0 %" in reason


def test_an_instance_that_hangs_among_others_counts_as_a_failed_request() -> None:
    judge = Judge()
    judge.judge(SETTINGS, counts(0), counts(0))

    hanging = [(31 * S, 31 * S), (31 * S, 31 * S), (0, 0)]
    assert judge.judge(SETTINGS, counts(100), counts(50), hanging) == ""
    reason = judge.judge(SETTINGS, counts(200), counts(58), hanging)
    assert "2 of 10 requests failed (2 hanging), 20.0 % against 0.0 %" in reason


def test_executions_hang_when_they_last_longer_than_the_stable_version_lets_expect() -> None:
    settings = SETTINGS._replace(abort_hang_s=1.0)
    judge = Judge()
    judge.judge(settings, counts(0), counts(0))

    stable = counts(100, mean_ms=300)
    assert judge.judge(settings, stable, counts(0), [(2 * S, 2 * S)]) == ""
    assert "for 4 s" in judge.judge(settings, stable, counts(0), [(4 * S, 4 * S)])
    off = settings._replace(abort_hang_s=None)
    assert judge.judge(off, stable, counts(0), [(4 * S, 4 * S)]) == ""


def test_a_stream_hangs_only_in_comparison_with_others() -> None:
    judge = Judge()
    judge.judge(SETTINGS, counts(0), counts(0), is_decoupled=True)

    long = [(100 * S, 100 * S)]
    assert judge.judge(SETTINGS, counts(0), counts(0), long, is_decoupled=True) == ""
    assert judge.judge(SETTINGS, counts(9, mean_ms=1000), counts(0), long, is_decoupled=True)
