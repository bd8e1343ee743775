"""Connections of the server's processes."""

from __future__ import annotations

import pytest

from tests.supervisor.settings import then
from tests.supervisor.world import SupervisorHarness, make_blueprint
from zmqtriton.supervisor.actions import Send
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.server_processes.acknowledgements import (
    Acknowledgements,
)
from zmqtriton.supervisor.states import InstanceState
from zmqtriton_floor import wire

# -------------------------------------------------------------------- lost connections
# A connection to the broker that ends between living processes: who is replaced for it.


_DEATH_IS_SEEN_S = 1.0


@pytest.fixture
def world() -> SupervisorHarness:
    return SupervisorHarness(make_blueprint("m")).start()


def lose(world: SupervisorHarness, serial: int) -> None:
    world.receive(world.serial("broker"), wire.ConnectionLost(serial))


@pytest.mark.parametrize(
    ("role", "text"),
    [("m_0_0", "stub m_0_0 is killed: "), ("grpc", " is killed: "), ("metrics", " is killed: ")],
)
def test_a_process_is_killed_and_replaced(world: SupervisorHarness, role: str, text: str) -> None:
    others, lost = {*world.alive} - {world.serial(role)}, world.serial(role)

    lose(world, lost)
    assert lost in world.alive, "it may be dying, of which its death tells"
    world.advance(_DEATH_IS_SEEN_S)

    assert others < world.alive
    assert lost not in world.alive
    assert world.serial(role) > lost
    assert InstanceState.READY is world.instance("m").state
    assert world.has_logged(f"{text}its connection to the broker has ended")


def test_a_guest_is_left_and_the_log_says_so(world: SupervisorHarness) -> None:
    """It is a user's process, which goes on."""
    world.call_as(guest := 77, "join")

    lose(world, guest)
    world.advance(_DEATH_IS_SEEN_S)
    world.advance(10.0)

    assert world.has_logged("the guest process 0 is left: its connection to the broker has ended")


def test_a_death_that_a_busy_supervisor_sees_late_is_no_lost_connection(
    world: SupervisorHarness,
) -> None:
    broker, frontend = world.serial("broker"), world.serial("grpc")
    world.silent.add(broker)

    lose(world, frontend)
    world.advance(_DEATH_IS_SEEN_S)  # in one turn: it has looked at nothing else meanwhile
    world.kill_process(frontend)
    world.receive(broker, wire.Synced(world.messages_to("broker", wire.Sync)[-1].number))
    world.advance(_DEATH_IS_SEEN_S)

    assert not world.has_logged("its connection to the broker has ended")


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


def test_a_broker_that_has_died_meanwhile_is_not_asked(world: SupervisorHarness) -> None:
    lose(world, world.serial("grpc"))
    world.kill_process(world.serial("broker"))
    world.advance(_DEATH_IS_SEEN_S)
    lose(world, lost := world.serial("metrics"))
    world.advance(_DEATH_IS_SEEN_S)

    assert lost not in world.alive, "no other waits for it"


def test_a_process_that_neither_answers_nor_dies_is_killed(world: SupervisorHarness) -> None:
    broker, frontend = world.serial("broker"), world.serial("grpc")
    world.silent.add(frontend)

    lose(world, frontend)
    world.advance(_DEATH_IS_SEEN_S)
    assert frontend in world.alive
    world.advance(10.0)

    assert frontend not in world.alive
    assert broker in world.alive


# ------------------------------------------------------------------------------- peers
# When clients may connect, and in which order the services open.


@pytest.mark.row("F01", "F07", "F18")
def test_the_server_opens_when_all_models_were_tried() -> None:
    world = SupervisorHarness(make_blueprint("a"), make_blueprint("b"), control_mode="none").start()

    assert [[("a", "1", "READY"), ("b", "1", "READY")]] == world.tables
    assert len(world.messages_to("http-arbiter", wire.Listen)) == 1
    assert "I loading: a:1" in world.log
    assert "I successfully loaded 'a'" in world.log


def test_of_very_many_models_that_failed_some_are_named() -> None:
    names = [f"bad{number:02}" for number in range(12)]
    world = SupervisorHarness(*map(make_blueprint, names), control_mode="none")
    world.stub_behaviours.update(dict.fromkeys(names, "ValueError"))

    world.start()

    (complaint,) = world.complaints
    _, _, more, *shown = complaint.splitlines()
    assert "  2 more, see the table above" == more
    assert [f"  {name}: Internal: ValueError" for name in names[:10]] == shown


def test_the_processes_are_told_with_their_models() -> None:
    world = SupervisorHarness(make_blueprint("m"), frontend_roles=("http", "metrics")).start()

    processes = world.call("processes").result

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
        then(self.acknowledgements.sync(peers), lambda _: self.done.append(name))

    def probe(self, name: str, peer: int) -> None:
        then(self.acknowledgements.probe(peer), lambda _: self.done.append(name))

    def asked(self) -> list[tuple[int, int]]:
        """Return the processes that were asked since the last call, with the numbers."""
        return [
            (action.serial, action.message.number)
            for action in self.plan.take_actions()
            if isinstance(action, Send) and isinstance(action.message, wire.Sync)
        ]


@pytest.fixture
def acknowledging() -> World:
    return World()


def test_where_there_is_nobody_to_ask_it_is_done_at_once(acknowledging: World) -> None:
    acknowledging.sync("nobody")

    assert (["nobody"], []) == (acknowledging.done, acknowledging.asked())


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
