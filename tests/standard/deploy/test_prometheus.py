"""Verdicts of Prometheus' own tool on the configuration and the alerts."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.standard.deploy.test_expressions import panels
from tests.support.needs import ROOT, find_tool

FILES = ROOT / "deploy" / "prometheus"


@pytest.fixture
def promtool() -> str:
    return find_tool("promtool", package="prometheus")


def run(directory: Path, *command: str) -> str:
    """Return the output of a command, which must succeed."""
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout


def test_the_configuration_and_its_rules_are_valid(promtool: str) -> None:
    assert "1 rule files found" in run(FILES, promtool, "check", "config", "prometheus.yml")


def test_the_configuration_in_compose_is_valid(promtool: str, tmp_path: Path) -> None:
    compose = yaml.safe_load((ROOT / "deploy" / "docker" / "compose.yaml").read_text("utf-8"))
    (tmp_path / "prometheus.yml").write_text(compose["configs"]["prometheus"]["content"])
    shutil.copy(FILES / "zmqtriton.rules.yml", tmp_path)

    run(tmp_path, promtool, "check", "config", "prometheus.yml")


@pytest.mark.long(
    "standard/deploy/test_prometheus.py::test_the_configuration_and_its_rules_are_valid"
)
def test_alerts_fire_for_what_they_are_about_and_for_nothing_else(
    promtool: str, tmp_path: Path
) -> None:
    names = ("prometheus_cases.yml", "prometheus_hours.yml")
    for name in names:
        cases = (Path(__file__).parent / name).read_text("utf-8")
        (tmp_path / name).write_text(cases.replace("RULES", str(FILES / "zmqtriton.rules.yml")))

    run(tmp_path, promtool, "test", "rules", *names)


def test_prometheus_understands_every_panel_of_the_dashboard(promtool: str, tmp_path: Path) -> None:
    variables = {"$__rate_interval": "1m", "$__range": "1h", "$instance": ".*", "$model": ".*"}
    text = json.dumps([target["expr"] for panel in panels() for target in panel["targets"]])
    for name, value in variables.items():
        text = text.replace(name, value)
    rules = [{"record": f"panel:{n}", "expr": e} for n, e in enumerate(json.loads(text))]
    assert len(rules) > 60
    (tmp_path / "panels.yml").write_text(
        yaml.safe_dump({"groups": [{"name": "p", "rules": rules}]})
    )

    run(tmp_path, promtool, "check", "rules", "panels.yml")
