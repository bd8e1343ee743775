"""On which cores instances run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from zmqtriton.options import Setting
from zmqtriton.supervisor.machine.host_policies import (
    cores_of_policy,
    host_policy_name,
    pin_to_cores,
)


def test_the_policy_is_the_groups_or_that_of_its_kind() -> None:
    assert ["mine", "gpu_1", "cpu", "model"] == [
        host_policy_name(*instance)
        for instance in (("mine", "GPU", 1), ("", "GPU", 1), ("", "CPU", 0), ("", "MODEL", 0))
    ]


def test_cores_are_those_of_the_node_and_those_that_are_named(tmp_path: Path) -> None:
    (tmp_path / "node1").mkdir()
    (tmp_path / "node1" / "cpulist").write_text("4-7,12-15\n")
    settings = [
        Setting("both", "numa-node", "1"),
        Setting("both", "cpu-cores", "6-13"),
        Setting("node", "numa-node", "1"),
        Setting("cores", "cpu-cores", "2,0"),
        Setting("cores", "else", "9"),
        Setting("lost", "numa-node", "5"),
    ]

    cores = {
        n: cores_of_policy(settings, n, tmp_path) for n in ("both", "node", "cores", "lost", "none")
    }

    assert {
        "both": (6, 7, 12, 13),
        "node": (4, 5, 6, 7, 12, 13, 14, 15),
        "cores": (0, 2),
        "lost": (),
        "none": (),
    } == cores


def test_all_threads_of_a_process_are_pinned(caplog: pytest.LogCaptureFixture) -> None:
    core = max(os.sched_getaffinity(0))
    script = (
        "import threading as t; e = t.Event(); t.Thread(target=e.wait).start();"
        "print(flush=True); input(); e.set()"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()

        pin_to_cores(process.pid, (core,))

        threads = [int(name) for name in os.listdir(f"/proc/{process.pid}/task")]
        assert 2 == len(threads)
        assert [{core}] * 2 == [os.sched_getaffinity(thread) for thread in threads]
        pin_to_cores(process.pid, (8191,))
        process.stdin.write(b"\n")
    assert f"process {process.pid} cannot be kept on cores [8191]" in caplog.text
