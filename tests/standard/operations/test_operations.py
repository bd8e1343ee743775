"""Operations on models, and directories of models that come and go while the server runs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.supervisor.world import HANGS, SupervisorHarness, make_blueprint
from zmqtriton_floor.errors import InvalidArgument, NotFound, Unavailable, Unsupported


@pytest.fixture
def world() -> SupervisorHarness:
    return SupervisorHarness(make_blueprint("m"), make_blueprint("n"), control_mode="none").start()


def test_the_stubs_of_one_model_are_asked_where_they_are(world: SupervisorHarness) -> None:
    stub = world.instance("m")

    answer = world.call("stacks", {"model": "m"}).result

    row = {"instance": "m_0_0", "pid": stub.pid, "state": "READY", "lines": ["stack of m_0_0"]}
    assert [row] == answer
    assert [] == world.call("stacks", {"model": "nobody"}).result
    assert world.has_logged("stacks 'm' for an unknown client")


def test_who_is_dead_is_not_asked_where_he_is(world: SupervisorHarness) -> None:
    world.kill_process(world.serial("m_0_0"))

    assert [] == world.call("stacks", {"model": "m"}).result


def test_one_instance_is_restarted_and_its_neighbour_goes_on() -> None:
    world = SupervisorHarness(make_blueprint("m", instances=2), control_mode="none").start()
    hung, well = world.serial("m_0_0"), world.serial("m_0_1")

    unknown = world.call("restart", {"model": "m", "instance": "m_1"})
    done = world.call("restart", {"model": "m", "instance": "m_0_0"})

    assert "model 'm' has no instance 'm_1'; it has m_0_0, m_0_1" in unknown.error[1]
    assert 1 == done.result
    world.advance(1.0)
    assert hung not in world.alive
    assert world.serial("m_0_0") != hung
    assert world.serial("m_0_1") == well


def test_a_model_that_was_given_up_is_loaded(world: SupervisorHarness) -> None:
    world.stub_behaviours["m"] = "ValueError: no"
    world.kill_process(world.serial("m_0_0")).advance(600.0)
    assert [("m", "UNAVAILABLE")] == [(e["name"], e["state"]) for e in world.index()[:1]]

    refused = world.call("restart", {"model": "m"})
    del world.stub_behaviours["m"]
    done = world.call("restart", {"model": "m"})

    assert "ValueError: no" in refused.error[1]
    assert 0 == done.result
    assert [("m", "READY")] == [(e["name"], e["state"]) for e in world.index()[:1]]


def test_a_load_is_begun_again_without_waiting_for_it() -> None:
    world = SupervisorHarness(make_blueprint("m"), control_mode="explicit").start()
    world.stub_behaviours["m"] = HANGS
    hanging = world.call("load", {"model": "m"})

    assert 0 == world.call("restart", {"model": "m", "wait": False}).result
    assert "it was restarted by an operator" in hanging.error[1]
    assert [("m", "LOADING")] == [(e["name"], e["state"]) for e in world.index()]


def test_nothing_is_restarted_while_the_server_ends(world: SupervisorHarness) -> None:
    world.core.stop_requested()

    assert (Unavailable.number, "Server exiting") == world.call("restart", {"model": "m"}).error


def explicit() -> SupervisorHarness:
    return SupervisorHarness(
        make_blueprint("m"), control_mode="explicit", repositories=("/models",)
    ).start()


@pytest.mark.row("F22")
def test_a_repository_is_added_and_the_status_shows_it() -> None:
    world = explicit()

    assert ["/more"] == world.call("repository.register", {"path": "/more"}).result
    assert "I Model repository registered: /more" in world.log
    assert ["/more"] == world.call("status").result["repositories"]


def test_what_the_disk_says_against_it_is_the_answer() -> None:
    world = explicit()
    world.repository_error = NotFound("failed to unregister '/more', repository not found")

    call = world.call("repository.unregister", {"path": "/more"})

    assert (NotFound.number, "failed to unregister '/more', repository not found") == call.error
    assert not world.has_logged("Model repository unregistered")


@pytest.mark.row("F22")
@pytest.mark.parametrize("mode", ["none", "poll"])
@pytest.mark.parametrize("what", ["registration", "unregistration"])
def test_only_where_models_are_asked_for(mode: str, what: str) -> None:
    world = SupervisorHarness(control_mode=mode).start()
    verb = "repository.register" if what == "registration" else "repository.unregister"

    call, odd = world.call(verb, {"path": "/more"}), world.call(verb, {"path": ""})

    text = f"repository {what} is not allowed if model control mode is not EXPLICIT"
    hint = ". Start the server with --model-control-mode=explicit"
    assert (Unsupported.number, text + hint) == call.error == odd.error


@pytest.mark.parametrize("path", [None, 7, "", "models", "/x\0y"])
def test_a_path_that_is_none_is_refused(path: Any) -> None:
    code, text = explicit().call("repository.register", {"path": path}).error

    assert (InvalidArgument.number, "a repository must be an absolute path") == (code, text)


def test_a_directory_may_have_a_key_and_its_model_another_name() -> None:
    world = explicit()
    world.call("repository.register", {"path": "/more", "names": {"folder": "m"}, "key": "hash"})

    places = {"hash": {"path": "/more", "folder": "folder", "model": "m"}}
    assert places == world.call("repository.keys").result
    world.call("load", {"model": "m", "parameters": {}})
    world.call("unload", {"model": "m"})
    world.call("repository.unregister", {"path": "/more"})
    assert {} == world.call("repository.keys").result
    assert "m" not in world.core.models


@pytest.mark.parametrize("names", [["m"], {"folder": 5}, {"folder": ""}, {"folder": "a/b"}])
def test_other_names_must_be_names_of_models(names: Any) -> None:
    call = explicit().call("repository.register", {"path": "/more", "names": names})

    assert InvalidArgument.number == call.error[0]


def test_models_may_not_change_them() -> None:
    world = SupervisorHarness(
        make_blueprint("m"), control_mode="explicit", startup_models=("m",)
    ).start()

    call = world.call_as(world.serial("m_0_0"), "repository.register", {"path": "/more"})

    assert (
        InvalidArgument.number,
        "a model may not call 'repository.register': call it from a client",
    ) == call.error
