"""Models that requests have loaded: one load for all who wait, and when they go again."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from tests.standard.memory.world_memory import WorldMemory
from tests.supervisor.world import HANGS, LOADS, Call, SupervisorHarness, make_blueprint
from zmqtriton.config.errors import ConfigError
from zmqtriton.reading.blueprint import EnsembleBlueprint, FinalConfig
from zmqtriton.supervisor.story import kept
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InternalError, Unavailable
from zmqtriton_standard.on_demand.evictions import GRACE_S, IDLE_PARAMETER
from zmqtriton_standard.on_demand.loader import (
    AWAITING_FIRST_REQUEST,
    FIRST_RETRY_PAUSE_S,
    IDLE_WITHIN_S,
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


def test_who_comes_while_a_listing_is_under_way_has_its_answer_too() -> None:
    world = demanding("m")
    world.models |= {name: make_blueprint(name) for name in ("late", "later")}
    calls = [wire.Call(1, "demand", json.dumps({"model": name})) for name in ("late", "later")]
    caller = world.core.plan.new_serial()

    for own_id, call in enumerate(calls, 1):
        world.core.events.message_received(caller, call._replace(id=own_id))
    world.run_until_idle()

    answers = [m for serial, m in world.sent if serial == caller]
    assert ["true", "true"] == [answer.result for answer in answers]


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


def test_each_failure_is_followed_by_a_longer_pause() -> None:
    world = demanding("m")
    world.stub_behaviours["m"] = "broken"
    want(world, "m")
    world.advance(FIRST_RETRY_PAUSE_S)
    want(world, "m")

    world.advance(FIRST_RETRY_PAUSE_S)
    want(world, "m")
    assert 2 == history(world, "m")["failures"]
    world.advance(FIRST_RETRY_PAUSE_S)
    want(world, "m")

    assert 3 == history(world, "m")["failures"]


def test_what_somebody_unloaded_stays_away_until_somebody_loads_it() -> None:
    world = demanding("m")
    want(world, "m")

    world.call("unload", {"model": "m"})

    assert want(world, "m").result is False
    assert 0 == world.latest_version_info("m").is_on_demand
    world.call("load", {"model": "m"})
    assert want(world, "m").result is True


def test_without_the_option_nothing_is_loaded() -> None:
    world = SupervisorHarness(make_blueprint("m"), control_mode="explicit").start()

    assert want(world, "m").result is False
    assert [{"name": "m"}] == world.index()


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
    world = demanding("m", unload_idle_after_s=10.0)
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


@pytest.mark.parametrize("use_of_it", [{"unanswered": 1}, {"sequences": 1}])
def test_what_executes_or_has_a_sequence_open_is_not_idle(use_of_it: dict[str, int]) -> None:
    world = demanding("m", unload_idle_after_s=10.0)
    want(world, "m")
    world.model_stats = [stat("m", 0.0, **use_of_it)]

    world.advance(60.0)

    assert {"m": "READY"} == states(world)
    world.model_stats = [stat("m", 0.0)]
    world.advance(13.0)
    assert {"m": "UNAVAILABLE"} == states(world)


def test_whoever_is_called_by_one_that_executes_is_in_use() -> None:
    world = demanding("caller", "callee", unload_idle_after_s=10.0)
    want(world, "caller")
    want(world, "callee")
    number = world.generation("caller").number
    world.receive(world.serial("broker"), wire.ModelCalled(number, "callee"))
    world.model_stats = [stat("caller", unanswered=1), stat("callee")]

    world.advance(60.0)

    assert {"caller": "READY", "callee": "READY"} == states(world)


def test_what_was_loaded_by_name_stays() -> None:
    world = demanding("m", startup_models=("m",), unload_idle_after_s=10.0)
    world.model_stats = [stat("m")]

    world.advance(60.0)

    assert {"m": "READY"} == states(world)


def test_a_model_says_itself_how_long_it_may_be_idle() -> None:
    config = json.dumps({"name": "m", "parameters": {IDLE_PARAMETER: {"string_value": "2"}}})
    plain = make_blueprint("m")
    finished = FinalConfig(config, b"", (plain.first_slot,))
    own = dataclasses.replace(plain, finalize_config=lambda reply: finished)
    world = SupervisorHarness(
        own, make_blueprint("n"), control_mode="explicit", load_on_demand=True
    ).start()
    want(world, "m")
    want(world, "n")
    world.model_stats = [stat("m"), stat("n")]

    world.advance(4.0)

    assert {"m": "UNAVAILABLE", "n": "READY"} == states(world)


def test_while_the_broker_does_not_answer_nobody_goes() -> None:
    world = demanding("m", unload_idle_after_s=5.0)
    want(world, "m")
    world.silent = {world.serial("broker")}

    world.advance(60.0)

    assert {"m": "READY"} == states(world)


def _ensemble(name: str, *members: str) -> Any:
    def finish(configs: Any) -> FinalConfig:
        return FinalConfig(json.dumps({"name": name}), b"", ())

    steps = tuple((member, -1) for member in members)
    ensemble = EnsembleBlueprint(steps, finish, step_error=lambda _, text: ConfigError(text))
    return dataclasses.replace(make_blueprint(name), ensemble=ensemble, final_config=None)


def test_a_member_goes_after_its_ensemble_and_comes_with_it() -> None:
    models = (make_blueprint("m"), _ensemble("e", "m"))
    world = SupervisorHarness(
        *models, control_mode="explicit", load_on_demand=True, unload_idle_after_s=5.0
    ).start()
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


# ------------------------------------------------------------------------ budget


def budgeted(*names: str, budget: int = 100, **sizes: int) -> SupervisorHarness:
    """A server whose models cannot sleep."""
    world = demanding(*names, memory_budget_bytes=budget * MIB)
    world.core.perform = lambda verb, arguments: kept(InternalError("no sleep()"))
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


def test_a_request_for_the_one_that_goes_waits_until_it_is_back() -> None:
    world = budgeted("a", "b", "c")
    want(world, "a")
    want(world, "b")
    use(world, "b", "a")
    world.advance(GRACE_S)
    world.is_busy = True  # what is evicted has something to finish
    for_c, for_b = want(world, "c"), want(world, "b")

    assert (None, None) == (for_c.answer, for_b.answer)
    use(world, "a")
    world.is_busy = False
    world.receive(world.serial("broker"), wire.Drained(world.generation("b").number))

    assert for_c.result is True
    assert {"c": "READY"} == {k: v for k, v in states(world).items() if k == "c"}
    assert for_b.answer is not None


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


def test_where_nobody_can_go_the_load_is_refused_and_says_why() -> None:
    world = budgeted("a", "b", "c", a=90)
    world.call("load", {"model": "a"})
    world.model_stats = [stat("a")]
    want(world, "b")
    world.advance(1.0)
    world.model_stats = [stat("a"), stat("b", unanswered=1)]

    call = want(world, "c")
    world.advance(IDLE_WITHIN_S - 1)
    assert call.answer is None
    world.advance(1)

    refused = call.error
    assert Unavailable.number == refused[0]
    assert "130.0 MiB of the 100.0 MiB that --model-memory-budget allows" in refused[1]
    assert "READY" == states(world)["a"]


def test_what_turns_out_larger_than_there_is_room_for_drives_others_out() -> None:
    world = budgeted("a", "b", b=80)
    want(world, "a")
    use(world, "a")
    want(world, "b")
    use(world, "b")

    world.advance(10.0)

    assert {"a": "UNAVAILABLE", "b": "READY"} == states(world)
    assert reason(world, "a").endswith("models took more than their memory budget")


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


def test_a_load_waits_for_room_until_another_model_is_idle() -> None:
    world = budgeted("a", "b", budget=40)
    want(world, "a")
    world.model_stats = [stat("a", unanswered=1)]
    world.advance(GRACE_S)
    call = want(world, "b")
    world.advance(1.0)
    assert (None, "READY") == (call.answer, states(world)["a"])

    world.model_stats = [stat("a", world.now_s)]
    world.advance(1.0)

    assert call.result is True
    assert {"a": "UNAVAILABLE", "b": "READY"} == states(world)


def test_a_load_that_waits_for_room_ends_when_an_operator_has_loaded_the_model() -> None:
    world = budgeted("a", "b", budget=40)
    want(world, "a")
    world.model_stats = [stat("a", unanswered=1)]
    world.advance(GRACE_S)
    call = want(world, "b")

    world.call("load", {"model": "b"})
    world.advance(1.0)

    assert call.result is True


def test_a_model_of_unknown_size_drives_out_no_more_than_it_must() -> None:
    world = budgeted("a", "b", "c", a=60, b=40, c=1)
    for name in ("a", "b"):
        want(world, name)
        use(world, name)
    world.advance(GRACE_S)

    assert want(world, "c").result is True

    assert {"a": "UNAVAILABLE", "b": "READY", "c": "READY"} == states(world)


def test_what_is_loaded_on_demand_stays_so_after_a_reload() -> None:
    world = demanding("m")
    want(world, "m")
    world.models["m"] = dataclasses.replace(world.models["m"], fingerprint="2")

    assert ["m"] == world.call("reload").result["loaded"]
    assert world.core.models["m"].is_on_demand
