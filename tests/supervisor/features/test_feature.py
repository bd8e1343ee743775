"""The seam: a core calls the hooks of features that it does not know. Settings of the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest

from tests.floor.reasons import because
from tests.supervisor.world import SupervisorHarness, make_blueprint
from zmqtriton.reading.blueprint import Blueprint
from zmqtriton.supervisor.control.verbs import Verb, Verbs
from zmqtriton.supervisor.features.feature import Feature
from zmqtriton.supervisor.features.table import all_features
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InvalidArgument, Unsupported
from zmqtriton_floor.reasons import Reason


class Witness(Feature):
    """Shows itself wherever a feature may."""

    @property
    def verbs(self) -> Verbs:
        return {"look": Verb(lambda call: "seen")}

    @property
    def why_never_loaded(self) -> Reason:
        return because("nobody has looked")

    def news(self) -> Iterable[Any]:
        return [wire.ServerDraining(1)]

    def describe(self, counts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        return {"witness": list(counts)}

    def describe_process(self, process: Mapping[str, Any]) -> dict[str, Any]:
        return {"witnessed": process["role"]}

    @property
    def phase(self) -> str:
        return "watching"


def test_what_a_feature_shows_is_in_status_index_and_news() -> None:
    world = SupervisorHarness(
        make_blueprint("m"), features=[*all_features(), Witness], control_mode="explicit"
    ).start()
    world.fork_http_worker()

    status = world.call("status").result

    assert [] == status["witness"]
    assert all(row["role"] == row["witnessed"] for row in status["processes"])
    assert status["server"]["ready"].startswith("watching; ")
    assert {"name": "m", "state": "UNAVAILABLE", "reason": "nobody has looked"} == world.index()[0]
    assert [wire.ServerDraining(1)] == world.messages_to("http", wire.ServerDraining)


class Broken(Feature):
    """Fails in every hook of the server's life."""

    def start(self) -> None:
        raise KeyError("start")

    def stop(self) -> None:
        raise KeyError("stop")

    def load_began(self, blueprint: Blueprint) -> None:
        raise KeyError("load_began")

    def load_ended(self, name: str) -> None:
        raise KeyError("load_ended")

    def news(self) -> Iterator[Any]:
        yield wire.ServerDraining(1)
        raise KeyError("news")

    def describe(self, counts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        raise KeyError("describe")


@pytest.mark.addons
def test_a_feature_that_fails_leaves_the_others_and_the_server_alone() -> None:
    world = SupervisorHarness(
        make_blueprint("m"), features=[Broken, *all_features()], control_mode="explicit"
    ).start()
    world.fork_http_worker()

    loaded = world.call("load", {"model": "m"})
    assert (None, True) == (loaded.result, world.call("ready", {"model": "m"}).result)
    assert "drains" in world.call("status").result
    assert world.has_logged("E feature Broken has failed: 'start'")
    world.stop()
    assert 0 == world.status


def test_a_verb_has_one_answer() -> None:
    with pytest.raises(ValueError, match=r"two tables answer the control calls \['look'"):
        SupervisorHarness(features=[Witness, Witness])


@pytest.mark.parametrize("left_out", [None, *all_features()])
def test_a_server_serves_without_any_of_its_features(left_out: type[Feature] | None) -> None:
    features = [] if left_out is None else [one for one in all_features() if one is not left_out]

    world = SupervisorHarness(
        make_blueprint("m"), features=features, control_mode="explicit", startup_models=("m",)
    ).start()
    world.kill_process(world.serial("m_0_0")).tick()
    reloaded, unloaded = world.call("load", {"model": "m"}), world.call("unload", {"model": "m"})
    world.stop()

    assert ("unchanged", None, 0) == (reloaded.result, unloaded.result, world.status)


# ------------------------------------------------------------------------ log settings
# Log settings as the supervisor keeps them: who is told, and what is refused.


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
