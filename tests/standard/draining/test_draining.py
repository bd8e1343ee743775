"""Drains of models, instances and the server, in a world without processes."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.supervisor.world import HANGS, Call, SupervisorHarness, make_blueprint, make_ensemble
from zmqtriton.supervisor.states import InstanceState
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InvalidArgument, NotFound

_OTHER_COUNTS = (
    "last_arrival_ns",
    "direct_responses",
    "brokered_responses",
    "busy_ns",
    "instances",
)


def serve(*, instances: int = 1, **policy: Any) -> SupervisorHarness:
    blueprints = [make_blueprint(name, instances=instances) for name in ("m", "n")]
    policy = {"control_mode": "explicit", "startup_models": ("m", "n"), **policy}
    return SupervisorHarness(*blueprints, **policy).start()


def count(world: SupervisorHarness, unanswered: int, *, sequences: int = 0) -> None:
    """Let the broker count so many requests of m."""
    empty = {"count": 0, "ns": 0}
    stats = {name: empty for name in ("success", "fail")}
    own = {"pending": 0, "unanswered": unanswered, "sequences": sequences}
    own |= dict.fromkeys(_OTHER_COUNTS, 0)
    entry = {"name": "m", "version": "1", "inference_stats": stats, "execution_count": 0}
    world.model_stats = [{**entry, "zmqtriton": own}]


def drain(world: SupervisorHarness, **arguments: Any) -> Call:
    return world.call("drain", arguments)


def state(world: SupervisorHarness, **arguments: Any) -> str:
    return str(world.call("drain.state", arguments).result["state"])


def is_avoided(world: SupervisorHarness, model: str) -> bool:
    info = world.latest_version_info(model)
    assert ("READY", True) == (info.state, bool(info.generation)), "requests are answered"
    return bool(info.is_draining)


def told_of_server(world: SupervisorHarness, role: str = "metrics") -> list[int]:
    return [m.is_draining for m in world.messages_to(role, wire.ServerDraining)]


def serials(world: SupervisorHarness, model: str = "m") -> set[int]:
    return {one.serial for one in world.generation(model).instances}


# ------------------------------------------------------------------- models


@pytest.mark.row("L14")
def test_a_model_is_avoided_until_it_is_undrained() -> None:
    world = serve()
    count(world, 2)

    call = drain(world, model="m")
    world.advance(5.0)

    assert (True, False) == (is_avoided(world, "m"), is_avoided(world, "n"))
    assert call.answer is None, "something is under way"
    assert ("UNAVAILABLE", "draining") == (world.index()[0]["state"], world.index()[0]["reason"])
    assert not world.call("ready", {"model": "m"}).result
    count(world, 0)
    world.advance(2.0)
    assert ("drained", 0) == (call.result["state"], call.result["under_way"])
    assert "serving" == world.call("undrain", {"model": "m"}).result["state"]
    assert not is_avoided(world, "m")
    assert "READY" == world.index()[0]["state"]


def test_whom_a_drained_ensemble_calls_serve_on() -> None:
    models, policy = (make_blueprint("m"), make_ensemble("e", "m")), {"startup_models": ("e",)}
    world = SupervisorHarness(*models, control_mode="explicit", **policy).start()

    call = drain(world, model="e", then="unload")
    world.advance(5.0)

    assert "unloaded" == call.result["state"]
    assert ["m"] == [entry["name"] for entry in world.index() if entry.get("state") == "READY"]


def test_a_model_that_does_not_come_back_says_why() -> None:
    world = serve()
    count(world, 0)

    call = drain(world, model="m", then="restart")
    world.stub_behaviours["m"] = "no luck"
    world.advance(2.0)

    assert call.answer is not None
    assert "no luck" in call.error[1]
    assert "failed" == state(world, model="m")


def test_who_does_not_wait_is_answered_at_once() -> None:
    world = serve()
    count(world, 1)

    call = drain(world, model="m", wait=False)

    assert "draining" == call.result["state"] == state(world, model="m")


def test_what_is_not_drained_serves() -> None:
    world = serve()

    assert {"state": "serving"} == world.call("undrain", {"model": "m"}).result
    assert {"state": "serving"} == world.call("undrain").result


@pytest.mark.parametrize(
    ("verb", "arguments", "code", "text"),
    [
        (
            "drain",
            {"model": "x"},
            NotFound.number,
            "there is no model 'x'; `zmqtriton-ctl models` lists them",
        ),
        ("drain", {"model": "m", "then": "stop"}, InvalidArgument.number, "'then' must be one of"),
        (
            "drain",
            {"then": "unload"},
            InvalidArgument.number,
            "'then' must be one of nothing, stop",
        ),
        (
            "drain",
            {"instance": "m_0_0"},
            InvalidArgument.number,
            "the model of the instance is missing: name it",
        ),
        ("drain", {"model": "m", "instance": "m_7"}, NotFound.number, "has no instance 'm_7'"),
        ("drain", {"model": "m", "wait": 1}, InvalidArgument.number, "'wait' must be a boolean"),
        (
            "drain",
            {"model": "m", "within": 5},
            InvalidArgument.number,
            "a drain has no setting 'within'",
        ),
        (
            "undrain",
            {"model": "x"},
            NotFound.number,
            "there is no model 'x'; `zmqtriton-ctl models` lists them",
        ),
        ("undrain", {"model": "m", "wait": 1}, InvalidArgument.number, "has no setting 'wait'"),
        (
            "drain.state",
            {"model": "x"},
            NotFound.number,
            "there is no model 'x'; `zmqtriton-ctl models` lists them",
        ),
    ],
)
def test_what_cannot_be_done_is_refused(
    verb: str, arguments: dict[str, Any], code: int, text: str
) -> None:
    world = serve()

    error = world.call(verb, arguments).error

    assert code == error[0]
    assert text in error[1]
    assert not is_avoided(world, "m")


# ---------------------------------------------------------------- instances


def test_the_last_instance_cannot_stay_out() -> None:
    world = serve()

    assert "is the last one that is ready" in drain(world, model="m", instance="m_0_0").error[1]
    assert InstanceState.READY is world.instance("m").state


def test_an_instance_that_hangs_is_ended_when_its_time_is_over() -> None:
    world = serve(instances=2)
    world.is_busy = True

    call = drain(world, model="m", instance="m_0_0", then="restart", within_s=2.0)
    world.advance(2.0)
    before = call.answer
    world.advance(5.0)

    assert before is None
    assert ("restarted", True) == (call.result["state"], call.result["is_late"])
    assert 2 == world.latest_version_info("m").ready_instances


def test_a_restart_of_an_instance_whose_model_is_unloaded_ends_with_it() -> None:
    world = serve(instances=2)
    world.stub_behaviours["m"] = HANGS
    call = drain(world, model="m", instance="m_0_0", then="restart")
    world.advance(2.0)
    before = call.answer

    world.call("unload", {"model": "m"})
    world.advance(5.0)

    assert before is None
    assert call.answer is not None
    assert [] == world.call("status").result["drains"]


# --------------------------------------------------------------- the server


def test_the_server_is_avoided_and_answers() -> None:
    world = serve()
    count(world, 0)

    call = drain(world)
    worker = world.fork_http_worker()
    world.advance(2.0)

    assert "drained" == call.result["state"]
    assert [1] == told_of_server(world)
    assert (worker, wire.ServerDraining(1)) in world.sent, "so is one that comes later"
    assert "draining; 2 of 2" in world.call("status").result["server"]["ready"]
    assert not is_avoided(world, "m"), "that is the server's"
    world.call("undrain")
    assert [1, 0] == told_of_server(world)


def test_a_drained_server_stops() -> None:
    world = serve()
    count(world, 3)

    call = drain(world, then="stop")
    world.advance(5.0)
    before = world.status
    count(world, 0)
    world.advance(5.0)

    assert before is None
    assert "stopping" == call.result["state"]
    assert 0 == world.status


def test_a_signal_drains_first_where_that_is_wanted() -> None:
    world = serve(exit_drain_secs=4.0, watchdog_interval_s=1.0)
    count(world, 0)

    world.core.stop_requested()
    world.run_until_idle().advance(3.9)

    assert [1] == told_of_server(world)
    assert world.status is None
    assert [] == world.messages_to("grpc", wire.Retire), "it answers"
    assert any(text.startswith("STOPPING=1") for text in world.service_manager_texts)
    assert "is being stopped" in world.call("undrain").error[1]
    world.advance(5.0)
    assert 0 == world.status


# ------------------------------------------------------------------- random


@pytest.mark.row("L14")
@pytest.mark.parametrize(
    "seed",
    [
        *range(8),
        *(
            pytest.param(
                seed,
                marks=pytest.mark.long(
                    "standard/draining/test_draining.py::test_whatever_happens_everything_serves_in_the_end"
                ),
            )
            for seed in range(8, 30)
        ),
    ],
)
def test_whatever_happens_everything_serves_in_the_end(seed: int) -> None:
    """Drains amid loads, unloads, deaths and changes of the broker's counts."""
    world, chance = serve(instances=2), random.Random(seed)
    calls: list[Call] = []

    def model() -> dict[str, str]:
        return {"model": chance.choice(["m", "n"])}

    def start_drain() -> None:
        target = chance.choice(
            [{}, model(), {**model(), "instance": chance.choice(["m_0_0", "n_0_1"])}]
        )
        then = chance.choice(["nothing", "nothing", "unload", "restart"])
        within_s = chance.choice([None, 0.0, 3.0])
        calls.append(drain(world, **target, then=then, within_s=within_s))

    def undrain() -> None:
        calls.append(world.call("undrain", chance.choice([{}, model()])))

    moves = [
        (start_drain, 6),
        (undrain, 3),
        (lambda: count(world, chance.choice([0, 0, 2]), sequences=chance.choice([0, 0, 1])), 4),
        (lambda: calls.append(world.call("load", {**model(), "parameters": {}})), 3),
        (lambda: calls.append(world.call("unload", model())), 1),
        (lambda: world.kill_process(chance.choice(world.living("stub") or [0])), 2),
        (lambda: world.kill_process(world.serial("broker")), 1),
    ]
    for _ in range(60):
        [(move, _)] = chance.choices(moves, [weight for _, weight in moves])
        move()
        world.advance(chance.choice([0.0, 0.1, 1.0, 4.0]))

    count(world, 0)
    world.advance(120.0)
    for key in ({}, {"model": "m"}, {"model": "n"}):
        world.call("undrain", key)
    for name in ("m", "n"):
        for number in (0, 1):
            world.call("undrain", {"model": name, "instance": f"{name}_0_{number}"})
        world.call("load", {"model": name, "parameters": {}})
    world.advance(120.0)

    assert [] == [call for call in calls if call.answer is None]
    assert [] == world.call("status").result["drains"]
    assert ["READY", "READY"] == [entry["state"] for entry in world.index()]
    for name in ("m", "n"):
        assert not is_avoided(world, name)
        ready = world.latest_version_info(name).ready_instances
        assert ready == len(world.generation(name).instances)
        assert ready > 0
