"""Log settings as the supervisor keeps them: who is told, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.supervisor.world import SupervisorHarness, make_blueprint
from zmqtriton_floor.errors import InvalidArgument, Unsupported

_FIRST_LOG = {
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
    assert _FIRST_LOG == change(world).result
    assert [] == world.log_options
