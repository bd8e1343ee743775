"""Verdicts of Prometheus' own tool on the configuration and the alerts."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.needs import ROOT, find_tool

FILES = ROOT / "deploy" / "prometheus"


@pytest.fixture
def promtool() -> str:
    return find_tool("promtool", package="prometheus")


def test_the_configuration_and_its_rules_are_valid(promtool: str) -> None:
    done = subprocess.run(
        [promtool, "check", "config", "prometheus.yml"],
        cwd=FILES,
        capture_output=True,
        text=True,
        check=False,
    )

    assert 0 == done.returncode, done.stdout + done.stderr
    assert "1 rule files found" in done.stdout


def test_the_configuration_in_compose_is_valid(promtool: str, tmp_path: Path) -> None:
    compose = yaml.safe_load((ROOT / "deploy" / "docker" / "compose.yaml").read_text("utf-8"))
    (tmp_path / "prometheus.yml").write_text(compose["configs"]["prometheus"]["content"])
    shutil.copy(FILES / "zmqtriton.rules.yml", tmp_path)

    subprocess.run([promtool, "check", "config", "prometheus.yml"], cwd=tmp_path, check=True)


def test_alerts_fire_for_what_they_are_about_and_for_nothing_else(
    promtool: str, tmp_path: Path
) -> None:
    names = ("prometheus_cases.yml", "prometheus_hours.yml")
    for name in names:
        cases = (Path(__file__).parent / name).read_text("utf-8")
        (tmp_path / name).write_text(cases.replace("RULES", str(FILES / "zmqtriton.rules.yml")))

    done = subprocess.run(
        [promtool, "test", "rules", *names],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert 0 == done.returncode, done.stdout + done.stderr
