"""Readiness on the metrics page, as the server's probes see it."""

from __future__ import annotations

import json
from typing import Any

from tests.floor.reasons import because
from zmqtriton_floor.reasons import Kind, Reason
from zmqtriton_floor.wire import VersionInfo
from zmqtriton_frontends.inference.catalogue import Catalogue
from zmqtriton_standard.metrics import readiness


def news(name: str, **changed: Any) -> VersionInfo:
    config = json.dumps({"name": name, "metric_tags": {"team": "a"}})
    return VersionInfo(1, name, 1, "READY", None, 1, config, b"")._replace(**changed)


def lines(*messages: VersionInfo) -> list[str]:
    catalogue = Catalogue()
    for message in messages:
        catalogue.update(message)
    return [line for line in readiness.render(catalogue).splitlines() if line[0] != "#"]


def of(model: str) -> str:
    return f'zmqtriton_model_ready{{_team="a",model="{model}",version="1"}}'


def test_a_model_that_cannot_be_read_is_not_ready_and_has_no_version() -> None:
    unread = news("odd", generation=0, version=0, state="UNAVAILABLE", reason=because("bad config"))

    expected = ["zmqtriton_ready 0", 'zmqtriton_model_ready{model="odd",version=""} 0']
    assert expected == lines(unread)


def test_what_need_not_serve_is_not_told_of_but_what_drains_is() -> None:
    rows = lines(
        news("asleep", generation=0, state="UNAVAILABLE", is_on_demand=1),
        news("draining", is_draining=1),
        news(
            "unloaded",
            generation=0,
            state="UNAVAILABLE",
            reason=Reason.of(Kind.UNLOADED, "unloaded"),
        ),
    )

    assert ["zmqtriton_ready 1", f"{of('draining')} 0"] == rows
