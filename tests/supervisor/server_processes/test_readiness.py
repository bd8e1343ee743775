"""The probes of models' readiness: of whom, how often, and for how long."""

from __future__ import annotations

from typing import Any

import pytest

from tests.supervisor.models.test_loading import LOAD_M
from tests.supervisor.world import Call, SupervisorHarness, make_blueprint
from zmqtriton.supervisor.server_processes.readiness import ANSWER_TIMEOUT_S
from zmqtriton_floor import wire


@pytest.fixture
def world() -> SupervisorHarness:
    """A model with two instances that is asked, and one that is not."""
    world = SupervisorHarness(
        make_blueprint("m", instances=2), make_blueprint("n"), control_mode="none"
    )
    world.models_with_is_ready = {"m"}
    return world.start()


def _probe(world: SupervisorHarness, *models: str) -> Call:
    numbers = [world.generation(model).number for model in models]
    return world.call("is_ready", {"generations": numbers})


def _questions(world: SupervisorHarness) -> list[tuple[int, wire.Call]]:
    """Of all stubs, in order."""
    return [(s, m) for s, m in world.sent if world.roles.get(s) == "stub" and type(m) is wire.Call]


def _answer(
    world: SupervisorHarness, question: tuple[int, wire.Call], result: str, code: int = 0
) -> None:
    serial, call = question
    world.receive(serial, wire.CallResult(call.id, code, "", result))


def test_only_stubs_whose_model_has_the_method_get_a_second_lifeline(
    world: SupervisorHarness,
) -> None:
    probed = [world.stub_names[s] for s, m in world.sent if type(m) is wire.ReadinessLifeline]

    assert ["m_0_0", "m_0_1"] == sorted(probed)
    assert (1, 0) == (
        world.latest_version_info("m").has_is_ready,
        world.latest_version_info("n").has_is_ready,
    )


def test_a_model_without_the_method_is_ready_and_not_asked(world: SupervisorHarness) -> None:
    assert _probe(world, "n").result is True
    assert [] == _questions(world)


@pytest.mark.row("A28")
def test_a_model_is_ready_when_all_of_its_instances_say_so(world: SupervisorHarness) -> None:
    probe = _probe(world, "m", "n")
    first, second = _questions(world)

    _answer(world, first, "true")
    assert probe.answer is None
    _answer(world, second, "true")

    assert probe.result is True


@pytest.mark.parametrize(("result", "code"), [("false", 0), ("false", 13), ("true", 13), ("1", 0)])
def test_one_instance_that_says_anything_else_is_enough(
    world: SupervisorHarness, result: str, code: int
) -> None:
    probe = _probe(world, "m")

    _answer(world, _questions(world)[0], result, code)

    assert probe.result is False


@pytest.mark.row("A28")
def test_who_asks_meanwhile_shares_the_answer(world: SupervisorHarness) -> None:
    probes = [_probe(world, "m") for _ in range(3)]
    first, second = _questions(world)

    _answer(world, first, "true")
    _answer(world, second, "true")

    assert [True, True, True] == [probe.result for probe in probes]
    assert _probe(world, "m").answer is None
    assert 4 == len(_questions(world))


@pytest.mark.row("A28")
def test_an_instance_that_does_not_answer_is_not_ready_until_it_has(
    world: SupervisorHarness,
) -> None:
    probe = _probe(world, "m")
    first, second = _questions(world)
    _answer(world, first, "true")

    world.advance(ANSWER_TIMEOUT_S - 1)
    assert probe.answer is None
    late = _probe(world, "m")
    world.advance(2)

    assert [False, False] == [one.result for one in (probe, late)]
    assert 1 == sum("m_0_1': is_ready() takes more than 5 seconds" in line for line in world.log)
    _answer(world, _questions(world)[2], "true")
    assert _probe(world, "m").result is False

    _answer(world, second, "true")
    again = _probe(world, "m")
    for question in _questions(world)[-2:]:
        _answer(world, question, "true")
    assert again.result is True


def test_a_stub_that_dies_while_it_is_asked_is_not_ready(world: SupervisorHarness) -> None:
    probe = _probe(world, "m")
    first, second = _questions(world)
    _answer(world, first, "true")

    world.kill_process(second[0])

    assert probe.result is False


def test_a_generation_that_is_gone_is_not_ready() -> None:
    world = SupervisorHarness(make_blueprint("m"), control_mode="explicit")
    world.models_with_is_ready = {"m"}
    world.start()
    world.call("load", LOAD_M)
    number = world.generation("m").number
    world.call("unload", LOAD_M)

    assert world.call("is_ready", {"generations": [number]}).result is False


@pytest.mark.parametrize("arguments", [{}, {"generations": 1}, {"generations": ["m"]}])
def test_what_is_no_list_of_generations_is_refused(
    world: SupervisorHarness, arguments: dict[str, Any]
) -> None:
    answer = world.call("is_ready", arguments).answer

    assert answer is not None
    assert "by numbers of generations" in answer.text
