"""Reloads under load and of what is broken, and loads without end."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.faults import stamps
from tests.faults.stamps import MODEL, SteadyLoad, control_model
from tests.support.server import Server
from tests.support.waiting import eventually

PER_SECOND = 50
#: Above what allocators and caches need at first, below what a kept load would cost.
MAX_KIB_PER_LOAD = 100


pytestmark = [
    pytest.mark.system,
    pytest.mark.server(models=[MODEL]),
]


@pytest.fixture(autouse=True)
def loaded(server: Server) -> None:
    """Load the model, if another test has unloaded it."""
    assert (200, "") == control_model(server, "load")


@pytest.mark.row("F10", "F15")
def test_what_is_broken_changes_nothing_and_the_reason_says_where(server: Server) -> None:
    assert stamps.reload_broken(server) > 0


@pytest.mark.row("F10")
def test_reloads_under_load_fail_no_request_and_mix_nothing(server: Server) -> None:
    asking, stale = stamps.reload_often(server, 10, pause_s=0.05)

    assert ([], 0) == (asking.failed(), stale)
    assert len(asking.answers) > 50


@pytest.mark.row("F10")
def test_a_load_runs_what_the_files_have_however_soon_after_the_last(server: Server) -> None:
    """All saves are of one moment and one size, as tools that copy times make them."""
    directory = server.add_model(MODEL, "steps") / "1"
    second = time.time_ns() // 10**9 * 10**9
    code = (directory / "model.py").read_text()
    # whatever this process has inherited
    fresh = "import sys\nsys.dont_write_bytecode = False\nfrom package.steps import STAMP\n"
    (directory / "package").mkdir()
    (directory / "model.py").write_text(code.replace("STAMP = 0\n", fresh))
    stamps = []
    for stamp in range(1, 6):
        path = directory / "package" / "steps.py"
        written = path.with_name("draft") if stamp % 2 else path
        written.write_text(f"STAMP = {stamp}\n")
        os.utime(written, ns=(second, second))
        written.replace(path)
        assert (200, "") == control_model(server, "load", "steps")
        with SteadyLoad(server.http_port, per_second=PER_SECOND, model="steps") as asking:
            eventually(lambda: len(asking.answers) > 5, 30, "answers of both instances")
        stamps.append({answer.stamps for answer in asking.answers})

    assert stamps == [{(stamp, stamp)} for stamp in range(1, 6)]
    assert not list(directory.rglob("__pycache__"))
    [runtime] = {
        Path(mark.rpartition(":")[0])
        for pid in server.stub_pids("steps")
        for mark in [psutil.Process(pid).environ()["ZMQTRITON_STUB"].strip()]
    }
    kept = {path.name for path in (runtime / "bytecode").iterdir()}
    control_model(server, "unload", "steps")
    eventually(
        lambda: len({path.name for path in (runtime / "bytecode").iterdir()}) < len(kept),
        30,
        "the bytecode is gone with its generation",
    )


@pytest.mark.row("F11")
def test_instances_come_and_go_under_load_without_a_failed_request(server: Server) -> None:
    config = server.repository / MODEL / "config.pbtxt"
    kept = set(server.stub_pids(MODEL))
    with SteadyLoad(server.http_port, per_second=stamps.PER_SECOND) as asking:
        for count in (4, 1, 3, 2):
            config.write_text(re.sub(r"count: \d", f"count: {count}", config.read_text()))
            assert (200, "") == control_model(server, "load")
            eventually(lambda count=count: len(server.stub_pids(MODEL)) == count, 30, "instances")  # type: ignore[misc]
            kept &= set(server.stub_pids(MODEL))
            time.sleep(0.1)
    assert not asking.failed()
    assert 1 == len(kept), "the first one was never started anew"


def test_loads_and_unloads_leave_nothing_in_the_processes_that_stay(server: Server) -> None:
    control_model(server, "unload")
    # the supervisor keeps a page of each of the last 32 stubs, of which a load has two
    stamps.load_and_unload(server, 20)
    before = stamps.sample_resources(server)

    times = 20
    stamps.load_and_unload(server, times)

    def grown() -> list[str]:
        after = stamps.sample_resources(server)
        return [
            f"{role}: {held}, then {after[role]}"
            for role, held in before.items()
            if after[role].descriptors > held.descriptors + 2
            or after[role].mappings > held.mappings + 10
            or after[role].own_kib - held.own_kib >= times * MAX_KIB_PER_LOAD
        ]

    # What the supervisor has of a stub it gives up a moment after the stub has ended.
    with suppress(AssertionError):
        eventually(lambda: not grown(), 60)
    assert [] == grown()
