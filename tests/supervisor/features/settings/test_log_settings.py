"""Log settings as the supervisor keeps them: who is told, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.supervisor.world import SupervisorHarness, make_blueprint
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InvalidArgument, Unsupported
from zmqtriton_floor.logs import LogOptions
from zmqtriton_floor.settings.codec import decode, encode
from zmqtriton_floor.settings.frontends import FrontendSettings

_FIRST = {
    "log_file": "",
    "log_info": True,
    "log_warning": True,
    "log_error": True,
    "log_verbose_level": 0,
    "log_format": "default",
}


@pytest.fixture
def world() -> SupervisorHarness:
    world = SupervisorHarness(make_blueprint("m")).start()
    world.fork_http_worker()
    return world


def change(world: SupervisorHarness, **changes: Any) -> Any:
    return world.call_as(world.serial("http"), "log.settings", {"changes": changes})


def test_a_change_is_told_to_all_that_live_and_to_none_twice(world: SupervisorHarness) -> None:
    assert {**_FIRST, "log_info": False} == change(world, log_info=False).result

    messages = [wire.LogSettings(encode(LogOptions(info=False)))]
    for role in ("broker", "http", "grpc", "metrics", "stub"):
        assert messages == world.messages_to(role, wire.LogSettings), role
    assert [] == world.messages_to("http-arbiter", wire.LogSettings)
    assert [LogOptions(info=False)] == world.log_options
    assert {**_FIRST, "log_info": False} == change(world).result
    assert 1 == len(world.log_options)


def test_who_is_born_later_knows_it_from_its_birth(world: SupervisorHarness) -> None:
    change(world, log_verbose_level=2, log_format="ISO8601")

    world.kill_process(world.serial("grpc")).advance(10)

    settings = decode(FrontendSettings, world.messages_to("grpc", wire.Bootstrap)[-1].settings)
    assert LogOptions("ISO8601", 2) == settings.log


@pytest.mark.parametrize(
    ("changes", "number"),
    [
        ({"log_file": "/tmp/x"}, Unsupported.number),
        ({"log_info": False, "log_file": None}, Unsupported.number),
        ({"log_info": 1}, InvalidArgument.number),
        ({"log_info": False, "log_error": "no"}, InvalidArgument.number),
        ({"log_format": "x"}, InvalidArgument.number),
        ({"log_verbose_level": -1}, InvalidArgument.number),
        ({"log_verbose_level": 2**32}, InvalidArgument.number),
        ({"log_verbose_level": True}, InvalidArgument.number),
        ({"unknown": True}, InvalidArgument.number),
    ],
)
def test_of_what_is_refused_nothing_holds(
    world: SupervisorHarness, changes: dict[str, Any], number: int
) -> None:
    call = change(world, **changes)

    assert call.error is not None
    assert number == call.error[0]
    assert _FIRST == change(world).result
    assert [] == world.log_options
