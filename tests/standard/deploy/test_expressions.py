"""Alerts and the dashboard read metrics that exist, and the dashboard is the one of today."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import yaml

from tests.support.needs import ROOT
from tools.grafana_dashboard import text
from tools.metrics_table import names_in, read_table

DASHBOARD = ROOT / "deploy" / "grafana" / "zmqtriton.json"
RULES = ROOT / "deploy" / "prometheus" / "zmqtriton.rules.yml"


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> Iterator[dict[str, Any]]:
    """The panels of the dashboard that show something, those of closed rows too."""
    for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]:
        yield from panel["panels"] if panel["type"] == "row" else [panel]


def test_rules_read_metrics_that_exist() -> None:
    table = read_table()
    recorded = {rule["record"] for rule in rules() if "record" in rule}

    for rule in rules():
        names = names_in(rule["expr"], table)
        assert set(names) <= set(table), rule
        others = [word for word in rule["expr"].replace("(", " ").split() if ":" in word]
        assert names or others or "up{" in rule["expr"], rule
        assert all(word.rstrip(")").partition("[")[0] in recorded for word in others), rule


def test_alerts_say_what_happened_and_how_bad_it_is() -> None:
    alerts = [rule for rule in rules() if "alert" in rule]
    readme = (RULES.parent / "README.md").read_text("utf-8")

    for alert in alerts:
        assert {"summary", "description"} == set(alert["annotations"]), alert
        assert alert["labels"]["severity"] in ("critical", "warning", "info")
        assert "$labels" in alert["annotations"]["summary"], alert
        assert f"`{alert['alert']}`" in readme


def test_the_dashboard_is_up_to_date() -> None:
    command = "python -m tools.grafana_dashboard > deploy/grafana/zmqtriton.json"

    assert text() == DASHBOARD.read_text("utf-8"), f"run: {command}"


def test_the_dashboard_reads_metrics_that_exist_and_nearly_all_of_them() -> None:
    table = read_table()
    expressions = [target["expr"] for panel in panels() for target in panel["targets"]]

    used = {name for expression in expressions for name in names_in(expression, table)}

    assert used <= set(table)
    assert not [name for name in expressions if "@" in name]
    left_out = {name for name in set(table) - used if "_summary_" not in name}
    assert left_out == {
        "nv_inference_compute_input_duration_us",
        "nv_inference_compute_output_duration_us",
        "nv_pinned_memory_pool_total_bytes",
        "nv_pinned_memory_pool_used_bytes",
        "zmqtriton_instance_busy_ratio",
    }


def test_panels_lie_beside_each_other_and_have_numbers_of_their_own() -> None:
    panels = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    for row in [panel for panel in panels if panel["type"] == "row"]:
        panels += row["panels"]

    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for position in [panel["gridPos"] for panel in panels]:
        cells = {
            (position["x"] + x, position["y"] + y)
            for x in range(position["w"])
            for y in range(position["h"])
        }
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells
