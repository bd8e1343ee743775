"""Models that requests have loaded: one load for all who wait, and when they go again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.standard.memory.world_memory import WorldMemory
from tests.supervisor.settings import failed
from tests.supervisor.world import (
    HANGS,
    LOADS,
    Call,
    SupervisorHarness,
    make_blueprint,
    make_ensemble,
)
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InternalError, Unavailable
from zmqtriton_standard.on_demand.evictions import GRACE_S
from zmqtriton_standard.on_demand.loader import (
    AWAITING_FIRST_REQUEST,
    FIRST_RETRY_PAUSE_S,
    MIN_LISTING_INTERVAL_S,
)

MIB = 1 << 20


def demanding(*names: str, **policy: Any) -> SupervisorHarness:
    models = [make_blueprint(name) for name in names]
    return SupervisorHarness(
        *models, control_mode="explicit", load_on_demand=True, **policy
    ).start()


def want(world: SupervisorHarness, model: str) -> Call:
    return world.call("demand", {"model": model})


def stat(model: str, last_s: float = 0.0, unanswered: int = 0, sequences: int = 0) -> Any:
    own = {
        "pending": 0,
        "unanswered": unanswered,
        "sequences": sequences,
        "last_arrival_ns": int(last_s * 1e9),
        "busy_ns": 0,
        "direct_responses": 0,
        "brokered_responses": 0,
    }
    counts = {"success": {"count": 0}, "fail": {"count": 0}}
    return {
        "name": model,
        "version": "1",
        "inference_stats": counts,
        "execution_count": 0,
        "zmqtriton": own,
    }


def use(world: SupervisorHarness, *models: str) -> None:
    """Each had a request now, in this order."""
    for model in models:
        world.advance(1.0)
        others = [s for s in world.model_stats if s["name"] != model]
        world.model_stats = [*others, stat(model, world.now_s)]


def states(world: SupervisorHarness) -> dict[str, str]:
    return {entry["name"]: entry.get("state", "") for entry in world.index()}


def reason(world: SupervisorHarness, model: str) -> str:
    return next(str(e.get("reason", "")) for e in world.index() if e["name"] == model)


def history(world: SupervisorHarness, model: str) -> dict[str, Any]:
    rows = world.call("status").result["on_demand"]["models"]
    return next(dict(row) for row in rows if row["model"] == model)


# ------------------------------------------------------------------------ loads


@pytest.mark.row("L07")
def test_the_first_request_has_the_model_loaded_for_all_who_wait() -> None:
    world = demanding("m")
    (entry,) = world.index()
    assert ("UNAVAILABLE", AWAITING_FIRST_REQUEST.text) == (entry["state"], entry["reason"])
    world.stub_behaviours["m"] = HANGS

    calls = [want(world, "m") for _ in range(3)]

    assert [None] * 3 == [call.answer for call in calls]
    assert {"m": 3} == world.call("status").result["on_demand"]["waiting"]
    assert 1 == len([name for name in world.stub_names.values() if name == "m_0_0"])
    world.receive(world.serial("m_0_0"), wire.ConfigCompleted("{}"))
    world.receive(world.serial("m_0_0"), wire.ModelLoaded())
    assert [True] * 3 == [call.result for call in calls]
    assert 1 == world.latest_version_info("m").is_on_demand


def test_a_model_that_is_nowhere_is_nobodys_to_load_and_is_looked_for_once_a_while() -> None:
    world = demanding("m")

    assert want(world, "nobody").result is False
    world.models["late"] = make_blueprint("late")
    assert want(world, "late").result is False
    world.advance(MIN_LISTING_INTERVAL_S)
    assert want(world, "late").result is True


def test_a_failed_load_tells_all_why_and_is_not_tried_by_each() -> None:
    world = demanding("m")
    world.stub_behaviours["m"] = "no such weights"

    texts = [want(world, "m").error for _ in range(3)]

    assert {(Unavailable.number, texts[0][1])} == set(texts)
    assert "no such weights" in texts[0][1]
    assert 1 == list(world.stub_names.values()).count("m_0_0")
    assert 1 == world.latest_version_info("m").is_on_demand
    world.stub_behaviours["m"] = LOADS
    world.advance(FIRST_RETRY_PAUSE_S)
    assert want(world, "m").result is True
    assert (1, 1) == (history(world, "m")["failures"], history(world, "m")["loads"])


def test_who_waits_when_the_server_stops_is_told() -> None:
    world = demanding("m")
    world.stub_behaviours["m"] = HANGS
    call = want(world, "m")

    world.core.stop_requested()
    world.run_until_idle()

    assert "Server exiting" in call.error[1]
    assert "Server exiting" == want(world, "m").error[1]


# ------------------------------------------------------------------------- idle


@pytest.mark.row("L07")
def test_an_idle_model_goes_and_the_next_request_brings_it_back() -> None:
    world = demanding("m", unload_idle_after=10.0)
    want(world, "m")
    use(world, "m")

    world.advance(9.0)
    assert {"m": "READY"} == states(world)
    world.advance(4.0)

    assert {"m": "UNAVAILABLE"} == states(world)
    assert reason(world, "m").startswith("not loaded: unloaded after 1")
    assert 1 == world.latest_version_info("m").is_on_demand
    assert (1, 1) == (history(world, "m")["loads"], history(world, "m")["idle"])
    assert want(world, "m").result is True


IDLE_GO = {"control_mode": "explicit", "load_on_demand": True, "unload_idle_after": 5.0}


def test_a_member_goes_after_its_ensemble_and_comes_with_it() -> None:
    world = SupervisorHarness(make_blueprint("m"), make_ensemble("e", "m"), **IDLE_GO).start()
    assert want(world, "e").result is True
    assert {"e": "READY", "m": "READY"} == states(world)
    world.model_stats = [stat("m"), stat("e", unanswered=1)]
    world.advance(60.0)
    assert {"e": "READY", "m": "READY"} == states(world)

    world.model_stats = [stat("m"), stat("e")]
    world.advance(20.0)

    assert {"e": "UNAVAILABLE", "m": "UNAVAILABLE"} == states(world)
    order = [line for line in world.log if "successfully unloaded" in line]
    assert ["'e'" in order[0], "'m'" in order[1]] == [True, True]


def test_what_was_loaded_by_name_stays_and_its_members_with_it() -> None:
    models = (make_blueprint("m"), make_ensemble("e", "m"))
    world = SupervisorHarness(*models, model_memory_budget=30 * MIB, **IDLE_GO).start()
    WorldMemory(world).by_model = {"m": 40 * MIB}
    assert want(world, "m").result is True
    world.call("load", {"model": "e"})

    world.model_stats = [stat("m"), stat("e")]
    world.advance(60.0)

    assert {"e": "READY", "m": "READY"} == states(world)


# ------------------------------------------------------------------------ budget


def budgeted(*names: str, budget: int = 100, **sizes: int) -> SupervisorHarness:
    """A server whose models cannot sleep."""
    world = demanding(*names, model_memory_budget=budget * MIB)
    world.core.perform = lambda verb, arguments: failed(InternalError("no sleep()"))
    WorldMemory(world).by_model = {name: sizes.get(name, 40) * MIB for name in names}
    return world


@pytest.mark.row("L07")
def test_the_one_that_was_not_used_for_longest_makes_room() -> None:
    world = budgeted("a", "b", "c")
    want(world, "a")
    want(world, "b")
    use(world, "a", "b", "a")
    world.advance(GRACE_S)

    assert want(world, "c").result is True

    assert {"a": "READY", "b": "UNAVAILABLE", "c": "READY"} == states(world)
    assert "not loaded: unloaded to make room for 'c'" == reason(world, "b")
    assert 1 == history(world, "b")["memory"]
    unloaded = world.log.index("I successfully unloaded 'b' version 1")
    assert unloaded < world.log.index("I loading: c:1")


def test_a_load_that_waits_for_room_ends_when_an_operator_has_unloaded_the_model() -> None:
    world = budgeted("a", "b", budget=40)
    for model in ("b", "a"):
        want(world, model)
        world.advance(GRACE_S)
    world.is_busy = True  # what is evicted has something to finish
    call = want(world, "b")
    assert call.answer is None

    world.call("unload", {"model": "b"})
    world.is_busy = False
    world.receive(world.serial("broker"), wire.Drained(world.generation("a").number))

    assert call.result is False
    assert states(world)["b"] == "UNAVAILABLE"


@pytest.mark.parametrize("uptime_s", [0.0, 1000.0])
def test_a_model_that_was_just_loaded_for_somebody_is_not_taken_from_them(uptime_s: float) -> None:
    world = budgeted("a", "b", budget=40)
    world.advance(uptime_s)
    want(world, "a")

    call = want(world, "b")
    assert (None, "READY") == (call.answer, states(world)["a"])
    use(world, "a")
    world.advance(GRACE_S)

    assert call.result is True
    assert {"a": "UNAVAILABLE", "b": "READY"} == states(world)
