"""News of a model for frontends: those of each version, or that it has none."""

from __future__ import annotations

import json

from tests.supervisor.world import SupervisorHarness, make_blueprint
from zmqtriton.supervisor.models.blueprint import Blueprint
from zmqtriton_floor import wire
from zmqtriton_floor.reasons import Kind

NAME = "m"


def serve(model: Blueprint, **policy: object) -> SupervisorHarness:
    return SupervisorHarness(
        model, control_mode="explicit", startup_models=(NAME,), exit_on_error=False, **policy
    ).start()


def infos(world: SupervisorHarness) -> list[wire.VersionInfo]:
    return world.core.models[NAME].version_infos()


def test_each_version_has_its_news() -> None:
    news = infos(serve(make_blueprint(NAME, versions=(1, 3))))

    assert [(NAME, 1, "READY", 1), (NAME, 3, "READY", 1)] == [
        (one.model, one.version, one.state, one.ready_instances) for one in news
    ]
    assert {json.dumps({"name": NAME})} == {one.config for one in news}
    assert {(0, 0)} == {(one.is_on_demand, one.is_draining) for one in news}


def test_a_model_without_a_version_is_one_that_is_unavailable() -> None:
    [news] = infos(serve(make_blueprint(NAME, versions=())))

    assert news.reason is not None
    assert Kind.NO_VERSION == news.reason.kind
    assert wire.VersionInfo(0, NAME, 0, "UNAVAILABLE", news.reason, 0, "", b"") == news


def test_a_model_that_has_lost_its_versions_has_news_of_those_that_there_were() -> None:
    world = serve(make_blueprint(NAME))
    world.models[NAME] = make_blueprint(NAME, "2", versions=())

    world.call("load", {"model": NAME})

    assert [1] == [one.version for one in infos(world)]


def test_a_model_that_was_not_loaded_yet_has_no_news() -> None:
    world = serve(make_blueprint(NAME))
    world.models["other"] = make_blueprint("other", "2")
    world.stub_behaviours["other"] = "hangs"
    world.call("load", {"model": "other"})
    other = world.core.models["other"]

    assert [("LOADING", 1)] == [(one.state, one.version) for one in other.version_infos()]
