"""The content of announcements."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from tests.floor.reasons import because
from tests.supervisor.settings import frontend_settings
from zmqtriton_extras.fleet.announcing.announcement import (
    Process,
    Stamp,
    describe_models,
    describe_server,
    server_state,
)
from zmqtriton_floor.settings.frontends import FrontendSettings
from zmqtriton_floor.wire import VersionInfo
from zmqtriton_frontends.inference.catalogue import Catalogue
from zmqtriton_frontends.inference.model_version import ModelVersion

PROCESS = Process("node7", 4711, 1764000000)


def settings(**changes: Any) -> FrontendSettings:
    options: dict[str, Any] = {
        "id": "a",
        "http_port": 9000,
        "grpc_port": 9001,
        "metrics_port": 9002,
    }
    options |= {"http_address": "0.0.0.0", "grpc_address": "127.0.0.1", "metrics_address": "::1"}
    options["allow_metrics"] = False
    return frontend_settings("announcer", **{**options, **changes})


def describe(**changes: Any) -> dict[str, Any]:
    gateway: Any = SimpleNamespace(settings=settings(**changes))
    return describe_server(gateway, PROCESS, lambda: "10.0.0.7")


def version(name: str, **changes: Any) -> VersionInfo:
    return VersionInfo(1, name, 1, "READY", None, 1, "", b"")._replace(**changes)


def test_a_server_that_listens_everywhere_is_announced_by_this_machines_address() -> None:
    assert describe()["addresses"] == {"http": "10.0.0.7:9000", "grpc": "127.0.0.1:9001"}


def test_a_host_that_is_given_stands_in_all_addresses() -> None:
    addresses = describe(announce_host="fd00::7", allow_metrics=True)["addresses"]

    assert addresses == {
        "http": "[fd00::7]:9000",
        "grpc": "[fd00::7]:9001",
        "metrics": "[fd00::7]:9002",
    }


def test_only_services_that_are_there_count_as_encrypted() -> None:
    assert describe()["tls"] == []
    assert describe(http_use_ssl=True)["tls"] == ["http"]
    assert describe(grpc_use_ssl=True, allow_grpc=False)["tls"] == []


@pytest.mark.parametrize(
    ("state", "facts"),
    [
        ("starting", {"is_open": False, "is_ready": True}),
        ("ready", {"is_ready": True}),
        ("unready", {}),
        ("draining", {"is_draining": True}),
        ("stopping", {"is_draining": True, "is_stopping": True}),
        ("stopping", {"is_open": False, "is_stopping": True}),
    ],
)
def test_the_state_of_a_server(state: str, facts: dict[str, bool]) -> None:
    usual = {"is_open": True, "is_draining": False, "is_stopping": False, "is_ready": False}

    assert state == server_state(**{**usual, **facts})


def test_each_version_of_a_model_has_an_entry() -> None:
    catalogue = Catalogue()
    catalogue.update(version("b", is_draining=1))
    catalogue.update(version("a"))
    catalogue.update(
        version("c", state="UNAVAILABLE", reason=because("no module"), ready_instances=0)
    )
    catalogue.update(version("d", version=0))

    def is_ready(version: ModelVersion) -> bool:
        return version.is_ready

    assert describe_models(catalogue.versions(), is_ready) == [
        {"name": "a", "version": "1", "state": "READY", "ready": True, "instances": 1},
        {
            **{"name": "b", "version": "1", "state": "UNAVAILABLE", "reason": "draining"},
            **{"ready": False, "instances": 1},
        },
        {
            **{"name": "c", "version": "1", "state": "UNAVAILABLE", "reason": "no module"},
            **{"ready": False, "instances": 0},
        },
        {"name": "d", "state": "UNAVAILABLE", "ready": False},
    ]


def test_a_later_announcement_has_a_later_time_though_the_clock_is_turned_back() -> None:
    stamp = Stamp()

    times = [json.loads(stamp.stamp({}, {}, now_s))["at_s"] for now_s in (100.0, 100.0, 50.0, 101)]

    assert times == [100.0, 100.001, 100.002, 101.0]


def test_an_announcement_is_one_line() -> None:
    line = Stamp().stamp({"id": "a\nb"}, {"state": "ready"}, 1.0)

    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
