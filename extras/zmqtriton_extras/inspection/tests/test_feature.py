"""Profiles, from the operator's call to the answer: who is asked, who answers, and who may not."""

from __future__ import annotations

import json
import signal
from typing import Any, cast

import pytest

from tests.supervisor.world import HANGS, SupervisorHarness, make_blueprint
from zmqtriton.supervisor.actions import Send, Signal
from zmqtriton_extras.inspection import sampler
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InternalError

SEEN = {"seconds": 1.0}


#: A task that has failed, with the frames that the stub adds.
ERROR = "no\n\nAt:\n  /server/sampler.py(9): run\n"


@pytest.fixture
def world() -> SupervisorHarness:
    models = make_blueprint("m", instances=2), make_blueprint("n")
    return SupervisorHarness(*models, control_mode="none").start()


def asked(world: SupervisorHarness, instance: str) -> list[wire.Call]:
    """The tasks that an instance was asked for."""
    serial = world.serial(instance)
    return [m for s, m in world.sent if s == serial and isinstance(m, wire.Call)]


def answer(world: SupervisorHarness, instance: str, result: Any = SEEN, code: int = 0) -> None:
    [*_, call] = asked(world, instance)
    document = result if isinstance(result, str) else json.dumps(result)
    world.receive(
        world.serial(instance), wire.CallResult(call.id, code, ERROR if code else "", document)
    )


def test_all_instances_of_the_model_are_asked_and_their_answers_come_together(
    world: SupervisorHarness,
) -> None:
    call = world.call("profile", {"model": "m", "seconds": 2, "request": "7"})
    [task] = asked(world, "m_0_0")

    answer(world, "m_0_1")
    before = call.answer
    answer(world, "m_0_0")

    assert [] == asked(world, "n_0_0")
    assert "run" == task.verb
    request = json.loads(task.arguments)
    assert (sampler.__file__, "sample") == (request["file"], request["function"])
    assert {"seconds": 2.0, "request": "7", "most_bytes": 1 << 20} == request["values"]
    assert before is None
    assert "m" == call.result["model"]
    assert ["m_0_0", "m_0_1"] == [one["instance"] for one in call.result["instances"]]
    assert [SEEN, SEEN] == [one["profile"] for one in call.result["instances"]]


def test_a_signal_that_interrupts_nothing_follows_the_task(world: SupervisorHarness) -> None:
    world.core.events.message_received(
        world.core.plan.new_serial(), wire.Call(1, "profile", '{"model": "n"}')
    )

    taken = world.core.take_actions()
    [at] = [n for n, one in enumerate(taken) if isinstance(one, Send)]
    serial = world.serial("n_0_0")
    assert serial == cast("Send", taken[at]).serial
    assert Signal(serial, signal.SIGWINCH, thread="signals") == taken[at + 1]


def test_one_instance_is_chosen_by_its_name_or_number(world: SupervisorHarness) -> None:
    for chosen in ("m_0_1", "1"):
        call = world.call("profile", {"model": "m", "instance": chosen})
        answer(world, "m_0_1")
        assert ["m_0_1"] == [one["instance"] for one in call.result["instances"]]

    assert [] == asked(world, "m_0_0")
    unknown = world.call("profile", {"model": "m", "instance": "m_7"})
    assert "has no instance 'm_7' that runs; it has m_0_0, m_0_1" in unknown.error[1]


def test_an_instance_is_profiled_once_at_a_time(world: SupervisorHarness) -> None:
    first = world.call("profile", {"model": "n"})
    second = world.call("profile", {"model": "n"})

    answer(world, "n_0_0")
    third = world.call("profile", {"model": "n"})

    assert "'n_0_0' is being looked at already" == second.error[1]
    assert first.result
    assert third.answer is None


def test_who_dies_or_fails_has_its_reason_beside_the_others(world: SupervisorHarness) -> None:
    call = world.call("profile", {"model": "m"})
    world.kill_process(world.serial("m_0_0"))

    answer(world, "m_0_1")

    dead, seen = call.result["instances"]
    assert "'m_0_0': killed by SIGKILL" == dead["error"]
    assert SEEN == seen["profile"]


@pytest.mark.parametrize(
    ("result", "code", "text"),
    [
        (SEEN, InternalError.number, "'n_0_0': no"),
        ("no JSON", 0, "'n_0_0': its answer is no JSON"),
        ("[" * 100_000, 0, "'n_0_0': its answer is no JSON"),
        (json.dumps("x" * (17 << 20)), 0, "'n_0_0': its answer is too long"),
    ],
)
def test_the_only_instance_that_fails_is_the_error(
    world: SupervisorHarness, result: Any, code: int, text: str
) -> None:
    call = world.call("profile", {"model": "n"})

    answer(world, "n_0_0", result, code)

    assert text == call.error[1]


def test_who_does_not_answer_stands_still(world: SupervisorHarness) -> None:
    call = world.call("profile", {"model": "n", "seconds": 5})

    world.advance(19.0)
    before = call.answer
    world.advance(2.0)
    answer(world, "n_0_0")  # too late, and for nobody

    assert before is None
    assert "'n_0_0' has not answered: its Python stands still" in call.error[1]
    assert world.call("profile", {"model": "n"}).answer is None


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"seconds": 0}, "'seconds' must be a number from 0.001 to 600"),
        ({"seconds": 601}, "'seconds' must be a number from 0.001 to 600"),
        ({"seconds": "5"}, "'seconds' must be a number from 0.001 to 600"),
        ({"instance": 1}, "instance is no text"),
        ({"second": 1}, "a profile has no setting 'second'"),
        ({"model": ""}, "Model name cannot be empty"),
        ({"model": "nobody"}, "there is no model 'nobody'"),
    ],
)
def test_what_makes_no_sense_is_refused(
    world: SupervisorHarness, arguments: dict[str, Any], text: str
) -> None:
    assert text in world.call("profile", {"model": "n", **arguments}).error[1]


def test_the_log_names_who_looks_into_a_model(world: SupervisorHarness) -> None:
    caller = world.core.plan.new_serial()
    world.receive(caller, wire.Call(1, "profile", '{"model": "n", "seconds": 1}', "user ann"))

    assert world.has_logged("profile 'n' {\"seconds\": 1} for user ann")


def test_a_model_may_not_look_into_another(world: SupervisorHarness) -> None:
    call = world.call_as(world.serial("m_0_0"), "profile", {"model": "n"})

    assert "a model may not call 'profile'" == call.error[1]


def test_an_instance_that_hangs_in_its_load_is_profiled() -> None:
    world = SupervisorHarness(make_blueprint("m"), control_mode="none", stubs={"m": HANGS}).start()

    call = world.call("profile", {"model": "m"})
    answer(world, "m_0_0")

    assert SEEN == call.result["instances"][0]["profile"]
