"""When clients may connect, and in which order the services open."""

from __future__ import annotations

import pytest

from tests.supervisor.world import SupervisorHarness, make_blueprint
from zmqtriton_floor import wire
from zmqtriton_floor.errors import Unavailable, Unsupported


@pytest.mark.row("F01", "F07", "F18")
def test_the_server_opens_when_all_models_were_tried() -> None:
    world = SupervisorHarness(make_blueprint("a"), make_blueprint("b"), control_mode="none").start()

    assert [[("a", "1", "READY"), ("b", "1", "READY")]] == world.tables
    assert len(world.messages_to("http-arbiter", wire.Listen)) == 1
    assert "I loading: a:1" in world.log
    assert "I successfully loaded 'a'" in world.log


def test_http_opens_when_grpc_does() -> None:
    world = SupervisorHarness(make_blueprint("m"), control_mode="none").start()

    order = [world.roles[serial] for serial, message in world.sent if type(message) is wire.Listen]

    assert ["grpc", "metrics", "http-arbiter"] == order


@pytest.mark.parametrize("service", ["HTTPService", "Vertex AI HTTPService"])
def test_the_server_is_open_when_each_process_serves_something(service: str) -> None:
    world = SupervisorHarness(make_blueprint("m"), control_mode="none")
    world.start()
    worker = world.fork_http_worker()
    world.receive(world.serial("metrics"), wire.Listening("Metrics Service", "0.0.0.0:8002"))
    assert (False, []) == (world.core.is_open, world.told_open)

    for _ in range(2):
        world.receive(worker, wire.Listening(service, "0.0.0.0:8080"))

    assert world.core.is_open
    [log] = world.told_open
    assert f"I Started {service} at 0.0.0.0:8080" == log[-1]


def test_http_opens_without_a_grpc_that_does_not_come_up() -> None:
    world = SupervisorHarness(make_blueprint("m"), control_mode="none")
    world.is_grpc_up = False
    world.start()
    assert [] == world.messages_to("http-arbiter", wire.Listen)

    world.advance(5.0)

    assert 1 == len(world.messages_to("http-arbiter", wire.Listen))


def test_of_very_many_models_that_failed_some_are_named() -> None:
    names = [f"bad{number:02}" for number in range(12)]
    world = SupervisorHarness(*map(make_blueprint, names), control_mode="none")
    world.stub_behaviours.update(dict.fromkeys(names, "ValueError"))

    world.start()

    (complaint,) = world.complaints
    _, _, more, *shown = complaint.splitlines()
    assert "  2 more, see the table above" == more
    assert [f"  {name}: Internal: ValueError" for name in names[:10]] == shown


# ------------------------------------------------------------------- metrics process


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

    assert [("m", 1, 1)] == [tuple(of_model) for _, *of_model in processes if of_model[0]]
    assert len(processes) == len({pid for pid, *_ in processes})
