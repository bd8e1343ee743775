"""The alerts that fire for what a real server shows, found out by Prometheus' own tool.

    before = page(server)
    ...
    for alert in firing(before, page(server), 5.0, tmp_path):
        assert alert.labels["model"] == "broken"

What happened between two looks goes on for an hour: counters grow as fast, from 0 where they were
not there, and all else stays.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import yaml

from tests.support.needs import ROOT, find_tool
from tests.support.server import Server

RULES = ROOT / "deploy" / "prometheus" / "zmqtriton.rules.yml"
_MINUTES = 60
_TARGET = {"instance": "a", "job": "zmqtriton"}
_ALERT = re.compile(r"Labels:\{(.*)\}\n\s*Annotations:\{(.*?)\},?$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Page(NamedTuple):
    values: dict[str, float]
    #: Names of families that count.
    counters: frozenset[str]


class Alert(NamedTuple):
    name: str
    labels: dict[str, str]
    #: What it says to the person whom it wakes.
    text: str


def page(server: Server) -> Page:
    values: dict[str, float] = {}
    counters = set()
    for line in server.metrics_text().splitlines():
        if line.startswith("# TYPE ") and line.endswith(" counter"):
            counters.add(line.split()[2])
        elif line and line[0] != "#":
            series, _, value = line.rpartition(" ")
            values[series] = float(value)
    return Page(values, frozenset(counters))


def firing(before: Page, after: Page, seconds: float, directory: Path) -> list[Alert]:
    """Return the alerts about models after an hour."""
    rows = [{"series": f"up{_labelled('{}')}", "values": f"1x{_MINUTES}"}]
    for series, value in after.values.items():
        name, _, labels = series.partition("{")
        step = 0.0
        if name in after.counters:
            step = (value - before.values.get(series, 0.0)) / seconds * 60
        values = f"{value:.6f}+{max(0.0, step):.6f}x{_MINUTES}"
        rows.append({"series": f"{name}{_labelled('{' + labels)}", "values": values})
    groups = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    names = [rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule]
    when = f"{_MINUTES}m"
    case = {
        "interval": "1m",
        "input_series": rows,
        # none is expected, so that those that fire are printed
        "alert_rule_test": [{"alertname": name, "eval_time": when} for name in names],
    }
    document = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [case]}
    path = directory / "alerts.yml"
    path.write_text(yaml.safe_dump(document, width=10_000))
    done = subprocess.run(
        [find_tool("promtool", package="prometheus"), "test", "rules", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0 or "alertname:" in said, said
    return [_alert(labels, text) for labels, text in _ALERT.findall(said)]


def _labelled(labels: str) -> str:
    inner = labels.strip("{}")
    own = [f'{name}="{value}"' for name, value in _TARGET.items()]
    return "{" + ",".join([*filter(None, [inner]), *own]) + "}"


def _alert(labels: str, text: str) -> Alert:
    by_name = dict(_LABEL.findall(labels))
    return Alert(by_name.pop("alertname", ""), by_name, text)
