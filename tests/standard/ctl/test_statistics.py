"""The rates of models between two readings."""

from __future__ import annotations

from typing import Any

from tests.standard.ctl.fake_server import run
from zmqtriton_standard.ctl.statistics import Rates, compute_rates


def reading(**figures: int) -> dict[str, Any]:
    names = ("succeeded", "failed", "success_ns", "queue_ns", "compute_ns", "executions")
    usual = dict.fromkeys((*names, "inferences", "pending"), 0)
    return {"model": "m", "version": 1, **usual, **figures}


def test_rates_and_means_are_those_of_the_interval() -> None:
    before = reading(succeeded=10, success_ns=10**9, inferences=10, executions=10)
    grown = {"success_ns": 10**9 + 40_000_000, "queue_ns": 20_000_000, "compute_ns": 16_000_000}
    after = reading(succeeded=14, failed=2, inferences=26, executions=12, pending=3, **grown)
    after["unanswered"] = 5

    assert [Rates("m", 1, 2.0, 1.0, 10.0, 5.0, 4.0, 8.0, 3, 2)] == compute_rates(
        [before], [after], 2.0
    )


def test_without_requests_there_are_no_means() -> None:
    same = reading(succeeded=10, success_ns=5, executions=3, inferences=10)

    assert [Rates("m", 1, 0.0, 0.0, None, None, None, None, 0)] == compute_rates(
        [same], [same], 1.0
    )


def test_a_version_that_is_loaded_anew_counts_from_zero() -> None:
    before, after = reading(succeeded=10), reading(succeeded=2, success_ns=4_000_000)

    (rates,) = compute_rates([before], [after], 1.0)

    assert (2.0, 2.0) == (rates.requests_per_s, rates.mean_ms)


def test_a_total_is_not_repeated() -> None:
    refused = run("stats", "--total", "--count", "2")

    assert 2 == refused.exit_code
    assert "--total prints one table" in refused.stderr


def test_tokens_are_those_of_the_interval_or_of_a_new_process_of_theirs() -> None:
    before, after, anew = ({**reading(), "tokens": made} for made in (10, 30, 6))

    (rates,) = compute_rates([before], [after], 2.0)
    (later,) = compute_rates([after], [anew], 2.0)
    (none,) = compute_rates([reading()], [reading()], 2.0)

    assert (10.0, 3.0, None) == (rates.tokens_per_s, later.tokens_per_s, none.tokens_per_s)


def test_spare_requests_are_what_instances_compute_beyond_the_present() -> None:
    # 40 requests in 2 s, 4 together, each of 50 ms: two instances would compute 160 each second
    grown = {"succeeded": 40, "executions": 10, "inferences": 40, "compute_ns": 40 * 50_000_000}
    before, after = reading(), reading(**grown)

    (spare,) = compute_rates([before], [{**after, "instances": 2}], 2.0)
    (full,) = compute_rates([before], [{**after, "instances": 2}], 0.1)
    (none_ready,) = compute_rates([before], [{**after, "instances": 0}], 2.0)
    (idle,) = compute_rates([after], [{**after, "instances": 2}], 2.0)

    assert (140.0, 0.0) == (spare.spare_per_s, full.spare_per_s)
    assert (None, None) == (none_ready.spare_per_s, idle.spare_per_s)
