"""Loads that take too long, and reloads that fail: how they end and what is said of them."""

from __future__ import annotations

import dataclasses

from tests.supervisor.models.test_loading import LOAD_M, change, loaded
from tests.supervisor.world import HANGS, SupervisorHarness, make_blueprint
from zmqtriton.supervisor.models.model_report import is_loaded, troubles


def test_a_load_that_takes_too_long_ends_and_says_where_it_was() -> None:
    model = dataclasses.replace(make_blueprint("m"), max_load_s=2.0)
    world = SupervisorHarness(model, control_mode="explicit").start()
    world.stub_behaviours["m"] = HANGS
    call = world.call("load", LOAD_M)
    serial = world.serial("m_0_0")
    world.stubborn.add("stub")
    world.advance(1.9)
    assert call.answer is None

    world.advance(0.1)
    assert call.answer is None, "it is asked where it is"
    world.kill_process(serial, "killed by SIGABRT", "Aborted, At: model.py(5): initialize")

    took = "loading took longer than max_load_seconds (2): Aborted, At: model.py(5): initialize"
    assert took in call.error[1]


def test_one_that_does_not_say_where_it_hangs_is_killed() -> None:
    model = dataclasses.replace(make_blueprint("m"), max_load_s=2.0)
    world = SupervisorHarness(model, control_mode="explicit").start()
    world.stub_behaviours["m"] = HANGS
    world.stubborn.add("stub")
    call = world.call("load", LOAD_M)

    world.advance(3.5)

    assert "loading took longer than max_load_seconds (2)" in call.error[1]


def test_a_load_in_time_is_not_bounded_afterwards() -> None:
    model = dataclasses.replace(make_blueprint("m"), max_load_s=2.0)
    world = SupervisorHarness(model, control_mode="explicit", startup_models=("*",)).start()
    before = world.instance("m").serial

    world.advance(100.0)

    assert before == world.instance("m").serial
    assert "READY" == world.latest_version_info("m").state


def test_the_index_says_why_what_serves_was_not_replaced() -> None:
    world = loaded("m")
    served = [{"name": "m", "version": "1", "state": "READY"}]
    world.stub_behaviours["m"] = "no luck"
    change(world)
    assert world.call("load", LOAD_M).answer is not None

    (entry,) = world.index()
    assert ("READY", "still served, the last load failed: Internal: no luck") == (
        entry["state"],
        entry["reason"],
    )
    assert is_loaded(world.core.models["m"])

    change(world, fingerprint="1")
    assert "unchanged" == world.call("load", LOAD_M).result
    assert served == world.index(), "what was there is back"


def test_a_version_that_still_loads_is_not_ready_for_that_cause() -> None:
    world = SupervisorHarness(make_blueprint("m"), control_mode="explicit").start()
    world.stub_behaviours["m"] = HANGS
    world.call("load", LOAD_M)

    cause = {"model": "m", "version": "1", "what": "version", "cause": "LOADING"}
    assert [cause] == list(troubles(world.core.models["m"]))
