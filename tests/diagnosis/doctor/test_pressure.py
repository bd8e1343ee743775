"""Findings about what a machine is short of."""

from __future__ import annotations

from pathlib import Path

import pytest

from zmqtriton.diagnosis.rules.machine import judge_machine

pytestmark = pytest.mark.slow


def write(root: Path, **waiting: float) -> None:
    folder = root / "proc" / "pressure"
    folder.mkdir(parents=True)
    for resource, share in waiting.items():
        text = f"some avg10=0.00 avg60={share:.2f} avg300=99.00 total=1\nfull avg60=99.00\n"
        (folder / resource).write_text(text)


def test_without_a_server_the_kernel_is_asked(tmp_path: Path) -> None:
    write(tmp_path, cpu=72.8, memory=9.0, io=41.0)

    busy, slow = judge_machine(None, tmp_path)

    assert "CPU is short: for 73 % of the last minute a process waited for that" == busy.text
    assert "disks are slow or busy: for 41 %" in slow.text
    assert "CPUWeight=" in busy.advice


def test_a_kernel_without_pressure_says_nothing(tmp_path: Path) -> None:
    assert [] == [*judge_machine(None, tmp_path)]


def test_a_server_that_measures_is_believed(tmp_path: Path) -> None:
    write(tmp_path, cpu=99.0)
    row = {"resource": "memory", "text": "memory is short", "waiting_percent": 50.0}

    assert [] == [*judge_machine([], tmp_path)]
    assert ["memory is short"] == [one.text for one in judge_machine([row], tmp_path)]
