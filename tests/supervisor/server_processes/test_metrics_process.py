"""Questions that are passed on to the metrics process."""

from __future__ import annotations

from tests.supervisor.world import SupervisorHarness, make_blueprint
from zmqtriton_floor import wire
from zmqtriton_floor.errors import Unavailable, Unsupported


def started(*roles: str) -> SupervisorHarness:
    return SupervisorHarness(make_blueprint("m"), frontend_roles=("http", *roles)).start()


def test_its_answer_comes_back_as_it_is() -> None:
    world = started("metrics")

    call = world.call("history", {"seconds": 60})
    [question] = world.messages_to("metrics", wire.Call)
    assert ("history", '{"seconds": 60}') == (question.verb, question.arguments)
    assert call.answer is None
    world.receive(world.serial("metrics"), wire.CallResult(question.id, 0, "", '{"times": []}'))

    assert {"times": []} == call.result


def test_its_refusal_comes_back_too() -> None:
    world = started("metrics")

    call = world.call("history", {"seconds": -1})
    [question] = world.messages_to("metrics", wire.Call)
    world.receive(world.serial("metrics"), wire.CallResult(question.id, 4, "no", "null"))

    assert (4, "no") == call.error


def test_who_does_not_answer_is_not_awaited_for_ever() -> None:
    world = started("metrics")

    call = world.call("latest")
    world.advance(10.0)

    assert Unavailable.number == call.error[0]
    [question] = world.messages_to("metrics", wire.Call)
    world.receive(world.serial("metrics"), wire.CallResult(question.id, 0, "", "{}"))
    assert Unavailable.number == call.error[0], "nobody is answered twice"


def test_without_it_the_answer_names_the_option() -> None:
    number, text = started().call("history").error

    assert Unsupported.number == number
    assert "--allow-metrics=false" in text


def test_the_processes_are_told_with_their_models() -> None:
    world = started("metrics")

    processes = world.call("processes").result

    assert [("m", 1)] == [(model, version) for _, model, version in processes if model]
    assert len(processes) == len({pid for pid, _, _ in processes})
