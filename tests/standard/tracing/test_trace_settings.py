"""Trace settings as the supervisor keeps them: one model's over those of all."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.supervisor.features.core_parts import core_parts
from tests.supervisor.settings import settings as server_settings
from tests.supervisor.world import SupervisorHarness
from zmqtriton.options import TraceOptions
from zmqtriton.supervisor.control.verbs import ControlCall
from zmqtriton.supervisor.plan import Plan
from zmqtriton_floor.errors import InvalidArgument, Unsupported
from zmqtriton_floor.settings.tracing import TracingSettings
from zmqtriton_standard.tracing.settings import TraceSettingsFeature

_FIRST = {
    "trace_level": ["OFF"],
    "trace_rate": "1000",
    "trace_count": "-1",
    "log_frequency": "0",
    "trace_file": "/t",
    "trace_mode": "triton",
}


def trace(**options: Any) -> TraceSettingsFeature:
    return announced_to(lambda tracing: None, **options)


def announced_to(
    announce: Callable[[TracingSettings], None], **options: Any
) -> TraceSettingsFeature:
    introductions = SimpleNamespace(change_tracing=announce)
    info = SimpleNamespace(settings=SimpleNamespace(trace=TraceOptions(**options)))
    return TraceSettingsFeature(core_parts(plan=Plan(), introductions=introductions, info=info))


def test_there_is_no_tracing_to_a_file_without_a_file() -> None:
    settings = trace()

    with pytest.raises(InvalidArgument, match=r"setting :trace file name is not given$"):
        settings.update("", {"trace_level": ["TIMESTAMPS"], "trace_rate": "1"})

    assert {**_FIRST, "trace_file": ""} == settings.update("", {"trace_count": "-1"})


def test_an_exporter_shows_its_own_settings_and_no_file() -> None:
    settings = trace(mode="opentelemetry", opentelemetry=(("url", "http://c"),), file="/t")

    assert {
        "trace_level": ["TENSORS"],
        "trace_rate": "1000",
        "trace_count": "-1",
        "trace_mode": "opentelemetry",
        "bsp_max_export_batch_size": "512",
        "bsp_schedule_delay": "5000",
        "bsp_max_queue_size": "2048",
        "url": "http://c",
    } == settings.update("", {"trace_level": ["TENSORS"], "log_frequency": "4"})


def test_the_settings_show_how_many_traces_are_left() -> None:
    told: list[TracingSettings] = []
    settings = announced_to(told.append, file="/t")

    def count(traced: int, counter: str) -> None:
        call = ControlCall(1, {"counts": {counter: traced, "[]": 1}})
        settings.verbs["trace.counted"].handle(call)

    def left(model: str = "") -> str:
        shown = settings.update(model, {})["trace_count"]
        assert isinstance(shown, str)
        return shown

    settings.update("", {"trace_count": "5"})
    settings.update("own", {"trace_count": "3"})
    of_all, of_own = (sampling.counter for sampling in told[-1].models)
    count(3, of_all)
    count(1, of_own)

    assert ("2", "2", "2") == (left(), left("other"), left("own"))
    # other settings do not begin a new count, and a model without a limit has that of all
    assert "2" == settings.update("", {"trace_rate": "3"})["trace_count"]
    assert "2" == settings.update("rated", {"trace_rate": "3"})["trace_count"]
    assert "2" == settings.update("own", {"trace_count": None})["trace_count"]
    count(1, of_all)  # by a process that has begun anew
    assert "2" == left()
    count(9, of_all)
    assert "0" == left()
    for number in ("0", "7"):
        assert number == settings.update("", {"trace_count": number})["trace_count"]
    count(5, of_all)  # of earlier settings
    assert "7" == left()
    settings.update("", {"trace_count": "-1"})
    count(5, told[-1].models[0].counter)
    assert "-1" == left()


@pytest.mark.parametrize("counts", [None, [], {"[]": "1"}, {"[]": True}])
def test_counts_that_are_none_are_refused(counts: Any) -> None:
    world = SupervisorHarness().start()

    assert InvalidArgument.number == world.call("trace.counted", {"counts": counts}).error[0]


def test_without_a_place_for_them_no_traces_are_asked_for() -> None:
    announced: list[TracingSettings] = []

    announced_to(announced.append)

    assert [TracingSettings()] == announced


@pytest.mark.parametrize("changes", [{"trace_rate": 5}, {"trace_level": "x"}, {"other": "1"}])
def test_what_frontends_do_not_send_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        trace(file="/t").update("", changes)


def test_the_file_stays() -> None:
    with pytest.raises(Unsupported, match=r"^trace file location can not be updated through"):
        trace(file="/t").update("", {"trace_file": "/etc/x"})


def test_a_model_that_is_no_longer_known_leaves_nothing() -> None:
    settings = trace(file="/t")
    settings.update("m", {"trace_rate": "7"})

    settings.forget_model("m")

    assert _FIRST == settings.update("m", {})


@pytest.mark.parametrize(
    ("mode", "level", "is_warned"),
    [
        ("opentelemetry", "TENSORS", True),
        ("opentelemetry", "TIMESTAMPS", False),
        ("triton", "TENSORS", False),
    ],
)
def test_an_exporter_is_not_asked_for_tensors_in_silence(
    mode: str, level: str, is_warned: bool
) -> None:
    world = SupervisorHarness(settings=server_settings(trace=TraceOptions(mode, file="/t"))).start()

    world.call("trace.settings", {"changes": {"trace_level": [level]}})

    assert is_warned == world.has_logged("Tensor level tracing is not supported")


def test_of_the_exporters_options_one_may_be_given_several_times() -> None:
    given = (("resource", "a=1"), ("url", "x"), ("resource", "b=2"), ("url", "y"))
    options = TraceOptions("opentelemetry", opentelemetry=(*given, ("resource", "c=3")))

    world = SupervisorHarness(settings=server_settings(trace=options)).start()

    shown = world.call("trace.settings", {"model": ""}).result
    assert (["a=1", "b=2", "c=3"], "y") == (shown["resource"], shown["url"])
