"""Connections of the server's processes."""

from __future__ import annotations

import pytest

from tests.supervisor.world import SupervisorHarness, make_blueprint
from zmqtriton.supervisor.actions import Log, Send
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.server_processes.acknowledgements import (
    ACKNOWLEDGEMENT_TIMEOUT_S,
    Acknowledgements,
)
from zmqtriton.supervisor.states import InstanceState
from zmqtriton_floor import wire
from zmqtriton_floor.errors import Unavailable, Unsupported

# -------------------------------------------------------------------- lost connections
# A connection to the broker that ends between living processes: who is replaced for it.


_DEATH_IS_SEEN_S = 1.0


@pytest.fixture
def world() -> SupervisorHarness:
    return SupervisorHarness(make_blueprint("m")).start()


def lose(world: SupervisorHarness, serial: int) -> None:
    world.receive(world.serial("broker"), wire.ConnectionLost(serial))


def test_a_stub_is_killed_and_replaced(world: SupervisorHarness) -> None:
    stub, broker = world.serial("m_0_0"), world.serial("broker")

    lose(world, stub)
    assert stub in world.alive, "it may be dying, of which its death tells"
    world.advance(_DEATH_IS_SEEN_S)

    assert stub not in world.alive
    assert broker in world.alive
    assert InstanceState.READY is world.instance("m").state
    assert world.has_logged("stub m_0_0 is killed: its connection to the broker has ended")


@pytest.mark.parametrize("state", [InstanceState.STARTING, InstanceState.STOPPING])
def test_a_stub_that_is_about_to_connect_or_to_end_is_left_alone(
    world: SupervisorHarness, state: InstanceState
) -> None:
    instance, stub = world.instance("m"), world.serial("m_0_0")
    instance.state = state

    lose(world, stub)
    world.advance(_DEATH_IS_SEEN_S)

    assert stub in world.alive
    assert not world.has_logged("is killed")


@pytest.mark.parametrize("role", ["grpc", "metrics"])
def test_a_frontend_is_killed_and_replaced(world: SupervisorHarness, role: str) -> None:
    broker, frontend, stub = (world.serial(each) for each in ("broker", role, "m_0_0"))

    lose(world, frontend)
    world.advance(_DEATH_IS_SEEN_S)

    assert {broker, stub} <= world.alive
    assert frontend not in world.alive
    assert world.serial(role) > frontend
    assert world.has_logged("is killed: its connection to the broker has ended")


def test_a_process_of_gunicorn_is_killed_alone(world: SupervisorHarness) -> None:
    worker, arbiter, broker = (
        world.fork_http_worker(),
        world.serial("http-arbiter"),
        world.serial("broker"),
    )

    lose(world, worker)
    world.advance(_DEATH_IS_SEEN_S)

    assert worker not in world.alive
    assert {arbiter, broker} <= world.alive


def test_a_broker_that_loses_two_living_processes_at_once_is_replaced(
    world: SupervisorHarness,
) -> None:
    broker, one, other = (world.serial(role) for role in ("broker", "grpc", "metrics"))

    lose(world, one)
    world.advance(0.1)
    lose(world, other)
    world.advance(_DEATH_IS_SEEN_S)

    assert broker not in world.alive
    assert {one, other} <= world.alive
    assert world.has_logged("the broker is replaced: it has lost its connections to the grpc")


def test_processes_that_lose_their_connections_one_by_one_cost_no_broker(
    world: SupervisorHarness,
) -> None:
    broker = world.serial("broker")

    for role in ("grpc", "metrics") * 5:
        lose(world, world.serial(role))
        world.advance(4.0)

    assert broker in world.alive
    assert not world.has_logged("is replaced")


def test_a_process_that_takes_long_to_die_costs_no_broker(world: SupervisorHarness) -> None:
    broker = world.serial("broker")
    for _ in range(20):
        frontend = world.serial("grpc")
        world.silent.add(frontend)
        lose(world, frontend)
        world.advance(4.0)
        world.kill_process(frontend, "exited with status 1")
        world.advance(40.0)

    assert broker in world.alive
    assert not world.has_logged("is killed")
    assert not world.has_logged("is replaced")


def test_a_process_that_neither_answers_nor_dies_is_killed(world: SupervisorHarness) -> None:
    broker, frontend = world.serial("broker"), world.serial("grpc")
    world.silent.add(frontend)

    lose(world, frontend)
    world.advance(_DEATH_IS_SEEN_S)
    assert frontend in world.alive
    world.advance(10.0)

    assert frontend not in world.alive
    assert broker in world.alive


def test_a_process_that_has_died_meanwhile_concerns_nobody(world: SupervisorHarness) -> None:
    broker, stub, frontend = (world.serial(role) for role in ("broker", "m_0_0", "grpc"))

    for serial in (stub, frontend):
        lose(world, serial)
        world.kill_process(serial)
    world.advance(_DEATH_IS_SEEN_S)

    assert broker in world.alive
    assert not world.has_logged("is killed")
    assert not world.has_logged("is replaced")


def test_a_death_that_a_busy_supervisor_sees_late_concerns_nobody(
    world: SupervisorHarness,
) -> None:
    broker, frontend = world.serial("broker"), world.serial("grpc")
    world.silent.add(broker)

    lose(world, frontend)
    world.advance(_DEATH_IS_SEEN_S)  # in one turn: it has looked at nothing else meanwhile
    world.kill_process(frontend)
    question = world.messages_to("broker", wire.Sync)[-1]
    world.receive(broker, wire.Synced(question.number))
    world.advance(_DEATH_IS_SEEN_S)

    assert broker in world.alive
    assert not world.has_logged("is replaced")


def test_what_an_earlier_broker_has_lost_is_over(world: SupervisorHarness) -> None:
    stub, frontend = world.serial("m_0_0"), world.serial("grpc")

    lose(world, stub)
    lose(world, frontend)
    world.kill_process(world.serial("broker")).tick()
    replacement = world.serial("broker")
    world.advance(_DEATH_IS_SEEN_S)

    assert {stub, frontend, replacement} <= world.alive


def test_a_server_that_stops_replaces_no_broker(world: SupervisorHarness) -> None:
    world.stubborn |= {"m_0_0", "grpc", "broker"}
    broker, frontend = world.serial("broker"), world.serial("grpc")

    lose(world, frontend)
    world.core.stop()
    world.run_until_idle()
    world.advance(_DEATH_IS_SEEN_S)

    assert broker in world.alive
    assert not world.has_logged("is replaced")


# ------------------------------------------------------------------------------- peers
# When clients may connect, and in which order the services open.


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
    world.receive(
        world.serial("metrics"),
        wire.Opened([wire.ServiceAddress("Metrics Service", "0.0.0.0:8002")]),
    )
    assert (False, []) == (world.core.is_open, world.told_open)

    for _ in range(2):
        world.receive(worker, wire.Opened([wire.ServiceAddress(service, "0.0.0.0:8080")]))

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
    processes = started("metrics").call("processes").result

    assert [("m", 1, 1)] == [tuple(of_model) for _, *of_model in processes if of_model[0]]
    assert len(processes) == len({pid for pid, *_ in processes})


# -------------------------------------------------------------------- acknowledgements
# The processes that have taken note of what was sent, and the calls that wait for them.


class World:
    def __init__(self) -> None:
        self.plan = Plan()
        self.acknowledgements = Acknowledgements(self.plan)
        self.done: list[str] = []

    def sync(self, name: str, *peers: int) -> None:
        self.acknowledgements.sync(peers).then(lambda _: self.done.append(name))

    def probe(self, name: str, peer: int) -> None:
        self.acknowledgements.probe(peer).then(lambda _: self.done.append(name))

    def asked(self) -> list[tuple[int, int]]:
        """Return the processes that were asked since the last call, with the numbers."""
        actions = self.plan.take_actions()
        return [
            (action.serial, action.message.number)
            for action in actions
            if isinstance(action, Send) and isinstance(action.message, wire.Sync)
        ]


@pytest.fixture
def acknowledging() -> World:
    return World()


def test_where_there_is_nobody_to_ask_it_is_done_at_once(acknowledging: World) -> None:
    acknowledging.sync("nobody")

    assert (["nobody"], []) == (acknowledging.done, acknowledging.asked())


def test_all_have_to_answer(acknowledging: World) -> None:
    acknowledging.sync("both", 5, 4)
    [(first, number), (second, same)] = acknowledging.asked()
    assert (4, 5, number) == (first, second, same)

    acknowledging.acknowledgements.acknowledge(4, number)
    acknowledging.acknowledgements.acknowledge(9, number)
    assert [] == acknowledging.done

    acknowledging.acknowledgements.acknowledge(5, number)
    assert ["both"] == acknowledging.done
    assert acknowledging.plan.next_deadline_s() is None


def test_an_answer_covers_earlier_questions_and_no_later_ones(acknowledging: World) -> None:
    for name in ("first", "second", "third"):
        acknowledging.sync(name, 4)
    numbers = [number for _, number in acknowledging.asked()]

    acknowledging.acknowledgements.acknowledge(4, numbers[1])

    assert ["first", "second"] == acknowledging.done


def test_a_process_that_ends_is_not_waited_for(acknowledging: World) -> None:
    acknowledging.sync("both", 4, 5)
    acknowledging.sync("other", 5)
    [(_, number), *_] = acknowledging.asked()
    acknowledging.acknowledgements.acknowledge(5, number)

    acknowledging.acknowledgements.peer_ended(4)
    acknowledging.acknowledgements.peer_ended(4)

    assert ["both"] == acknowledging.done


def test_one_that_stays_silent_is_not_waited_for_for_ever(acknowledging: World) -> None:
    acknowledging.sync("both", 4, 5)
    [(_, number), _] = acknowledging.asked()
    acknowledging.acknowledgements.acknowledge(4, number)

    acknowledging.plan.advance_to(ACKNOWLEDGEMENT_TIMEOUT_S - 0.1)
    assert [] == acknowledging.done
    acknowledging.plan.advance_to(ACKNOWLEDGEMENT_TIMEOUT_S)

    assert ["both"] == acknowledging.done
    [warning] = [one for one in acknowledging.plan.take_actions() if isinstance(one, Log)]
    assert "processes 5 have not confirmed" in warning.text
    acknowledging.acknowledgements.acknowledge(5, number)
    assert ["both"] == acknowledging.done


def test_another_process_is_asked_in_place_of_a_dead_one(acknowledging: World) -> None:
    acknowledging.sync("first", 4)
    acknowledging.sync("other", 5)
    [(_, number), _] = acknowledging.asked()

    acknowledging.acknowledgements.transfer(4, 6)
    acknowledging.acknowledgements.peer_ended(4)

    assert ([(6, number)], []) == (acknowledging.asked(), acknowledging.done)
    acknowledging.acknowledgements.acknowledge(6, number)
    assert ["first"] == acknowledging.done


def test_a_process_is_asked_again_once_it_has_answered(acknowledging: World) -> None:
    acknowledging.probe("first", 4)
    acknowledging.probe("never", 4)
    [(_, number)] = acknowledging.asked()

    for peer, other in ((5, number), (4, number - 1)):
        acknowledging.acknowledgements.acknowledge(peer, other)
    assert [] == acknowledging.done
    acknowledging.acknowledgements.acknowledge(4, number)
    assert ["first"] == acknowledging.done

    acknowledging.probe("second", 4)
    [(_, number)] = acknowledging.asked()
    acknowledging.probe("another", 5)
    assert 1 == len(acknowledging.asked())
    acknowledging.acknowledgements.acknowledge(4, number)
    assert ["first"] == acknowledging.done, "the one in its place is asked"
