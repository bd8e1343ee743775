"""The memory and the processor time of models, as the kernel tells of their processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from zmqtriton.figures import format_bytes
from zmqtriton_standard.ctl.status import Use, use_of_models


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
