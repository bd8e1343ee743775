"""Rates, memory and processor time of models between two readings, and stacks of instances."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.standard.ctl.fake_server import run
from zmqtriton.diagnosis.facts.asking import lines_of_instance
from zmqtriton.figures import format_bytes
from zmqtriton_standard.ctl.statistics import Rates, compute_rates
from zmqtriton_standard.ctl.status import Use, use_of_models


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


def write(proc: Path, pid: int, ticks: int, pages: int) -> None:
    fields = ["S", *["0"] * 10, str(ticks), "0", *["0"] * 8, str(pages)]
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "stat").write_text(f"{pid} (a ) name) {' '.join(fields)}\n")


def test_instances_of_a_version_are_added_up(tmp_path: Path) -> None:
    tick, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    write(tmp_path, 5, 2 * tick, 10)
    write(tmp_path, 6, tick, 20)
    rows = [
        {"role": "stub", "pid": pid, "model": "m", "version": 1}
        for pid in (5, 6, 7)  # 7 has gone
    ]

    use = use_of_models([*rows, {"role": "broker", "pid": 5}], tmp_path)

    assert {("m", 1): Use(30 * page, 3.0)} == use


def test_instances_that_are_threads_of_one_process_count_once(tmp_path: Path) -> None:
    write(tmp_path, 5, 0, 10)
    row = {"role": "stub", "pid": 5, "model": "m", "version": 1}

    use = use_of_models([row, row, row], tmp_path)

    assert {("m", 1): Use(10 * os.sysconf("SC_PAGE_SIZE"), 0.0)} == use


def test_this_process_has_some() -> None:
    use = use_of_models([{"role": "stub", "pid": os.getpid(), "model": "m", "version": 1}])

    assert use["m", 1].memory_bytes > 1 << 20


@pytest.mark.parametrize(
    ("size", "text"),
    [(None, "-"), (0, "0 B"), (999, "999 B"), (60 << 20, "60 MiB"), (3 << 29, "1.5 GiB")],
)
def test_sizes_are_short(size: int | None, text: str) -> None:
    assert text == format_bytes(size)


FIRST = ["Thread 0x00007f01 (most recent call first):", '  File "/m/1/model.py", line 3 in execute']
SECOND = ["Current thread 0x00007f02 (most recent call first):", '  File "/w.py", line 1 in wait']
OTHER = ["Thread 0x00007f03 [pool] (most recent call first):", '  File "/p.py", line 9 in run']
NAMES = ["Thread 0x00007f01 is instance m_0_0", "Thread 0x00007f02 is instance m_0_1"]


def test_a_process_of_one_instance_has_all_of_them() -> None:
    lines = [*FIRST, *SECOND]

    assert lines == lines_of_instance(lines, "m_0_0")


def test_of_several_instances_each_has_its_own_thread_and_those_of_none() -> None:
    lines = [*FIRST, *OTHER, *SECOND, *NAMES]

    assert [*FIRST, *OTHER] == lines_of_instance(lines, "m_0_0")
    assert [*OTHER, *SECOND] == lines_of_instance(lines, "m_0_1")


def test_the_thread_that_writes_the_stacks_is_left_out() -> None:
    writer = [
        "Current thread 0x00007f04 (most recent call first):",
        '  File "/lib/signal.py", line 82 in sigwait',
        '  File "/s/zmqtriton_stub/process.py", line 99 in await_signals',
    ]

    assert [*FIRST, *OTHER] == lines_of_instance([*writer, *FIRST, *OTHER], "m_0_0")
    assert FIRST == lines_of_instance([*FIRST, *writer], "m_0_0")


def test_the_stack_of_a_process_that_can_show_one_thread_alone_is_kept() -> None:
    lines = ["Stack (most recent call first):", '  File "/m/1/model.py", line 3 in execute']

    assert lines == lines_of_instance(lines, "m_0_0")
