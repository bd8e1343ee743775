"""Causes of trouble on the metrics page."""

from __future__ import annotations

from typing import Any

from zmqtriton_floor.reasons import Kind, Reason
from zmqtriton_standard.metrics.readiness import render_troubles

TAGGED = {"metric_tags": {"team": "a"}}
KILLED = Reason.of(Kind.KILLED, "killed", signal="SIGKILL")
GIVEN_UP = Reason.of(Kind.GIVEN_UP, "given up", KILLED, instance="m_0", deaths=5, retry_after_s=30)


def stub(model: str, *reasons: Reason) -> dict[str, Any]:
    why = {"why": reasons[0].document()} if reasons else {}
    return {"role": "stub", "model": model, "version": 1, **why}


def lines(status: dict[str, Any]) -> list[str]:
    text = render_troubles(status, lambda model, version: TAGGED if version else {})
    return [line for line in text.splitlines() if line[0] != "#"]


def test_versions_loads_and_instances_have_the_innermost_cause() -> None:
    rows = [{"model": "m", "version": "2", "what": "load", "cause": "CONFIG_WRONG"}]
    processes = [
        {"role": "broker", "why": KILLED.document()},
        stub("m", GIVEN_UP),
        stub("m", KILLED),
        stub("well"),
    ]

    first, second = lines({"troubles": rows, "processes": processes})
    name = "zmqtriton_model_trouble_info"
    assert f'{name}{{_team="a",cause="config_wrong",model="m",version="2",what="load"}} 1' == first
    assert f'{name}{{_team="a",cause="killed",model="m",version="1",what="instance"}} 1' == second


def test_a_model_that_cannot_be_read_has_no_version() -> None:
    row = {"model": "m", "version": "", "what": "version", "cause": "CONFIG_UNREADABLE"}

    [line] = lines({"troubles": [row], "processes": []})

    assert line.endswith('{cause="config_unreadable",model="m",version="",what="version"} 1')
