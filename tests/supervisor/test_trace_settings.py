"""Trace settings as the supervisor keeps them: one model's over those of all."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.supervisor.world import World
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.trace_settings import TraceSettings
from zmqtriton_floor.errors import InvalidArgument, Unsupported

_FIRST = {
    "trace_level": ["OFF"],
    "trace_rate": "1000",
    "trace_count": "-1",
    "log_frequency": "0",
    "trace_file": "/t",
    "trace_mode": "triton",
}


def trace(**options: Any) -> TraceSettings:
    return TraceSettings(Plan(0.0), json.dumps({"trace": options}))


def test_a_models_own_setting_stands_until_it_is_undone() -> None:
    settings = trace(file="/t")
    settings.handle("m", {"trace_rate": "7"})
    settings.handle("", {"trace_rate": "8", "trace_count": "9"})

    assert {**_FIRST, "trace_rate": "7", "trace_count": "9"} == settings.handle("m", {})
    assert {**_FIRST, "trace_rate": "8", "trace_count": "9"} == settings.handle("other", {})

    settings.handle("m", {"trace_rate": None})
    assert "8" == settings.handle("m", {})["trace_rate"]
    settings.handle("", {"trace_rate": None, "trace_count": None})
    assert _FIRST == settings.handle("m", {})


def test_undoing_goes_back_to_what_the_server_was_started_with() -> None:
    settings = trace(file="/t", level=["TENSORS"], rate=3, count=4, log_frequency=5)

    settings.handle("", {"trace_level": ["OFF"], "trace_rate": "1"})
    found = settings.handle("", {"trace_level": None, "trace_rate": None})

    assert (["TENSORS"], "3", "4", "5") == (
        found["trace_level"],
        found["trace_rate"],
        found["trace_count"],
        found["log_frequency"],
    )


def test_there_is_no_tracing_to_a_file_without_a_file() -> None:
    settings = trace()

    with pytest.raises(InvalidArgument, match=r"setting :trace file name is not given$"):
        settings.handle("", {"trace_level": ["TIMESTAMPS"], "trace_rate": "1"})

    assert {**_FIRST, "trace_file": ""} == settings.handle("", {"trace_count": "-1"})


def test_an_exporter_shows_its_own_settings_and_no_file() -> None:
    settings = trace(mode="opentelemetry", opentelemetry=[["url", "http://c"]], file="/t")

    assert {
        "trace_level": ["TENSORS"],
        "trace_rate": "1000",
        "trace_count": "-1",
        "trace_mode": "opentelemetry",
        "bsp_max_export_batch_size": "512",
        "bsp_schedule_delay": "5000",
        "bsp_max_queue_size": "2048",
        "url": "http://c",
    } == settings.handle("", {"trace_level": ["TENSORS"], "log_frequency": "4"})


def test_that_nothing_is_traced_yet_is_logged_once() -> None:
    world = World().start()
    world.core.trace_settings = TraceSettings(world.core.plan, '{"trace": {"file": "/t"}}')

    for _ in range(2):
        world.call("trace.settings", {"changes": {"trace_level": ["TIMESTAMPS"]}})

    assert 1 == sum("nothing is traced yet" in line for line in world.log)


@pytest.mark.parametrize("changes", [{"trace_rate": 5}, {"trace_level": "x"}, {"other": "1"}])
def test_what_frontends_do_not_send_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        trace(file="/t").handle("", changes)


def test_the_file_stays() -> None:
    with pytest.raises(Unsupported, match=r"^trace file location can not be updated through"):
        trace(file="/t").handle("", {"trace_file": "/etc/x"})


def test_a_model_that_is_no_longer_known_leaves_nothing() -> None:
    settings = trace(file="/t")
    settings.handle("m", {"trace_rate": "7"})

    settings.forget("m")

    assert _FIRST == settings.handle("m", {})
