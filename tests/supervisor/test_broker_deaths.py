"""The broker dies: the next one is told what still holds, everybody else where it is."""

from __future__ import annotations

from typing import Any

import pytest

from tests.supervisor.world import HANGS, SupervisorHarness, make_blueprint
from zmqtriton_floor import wire
from zmqtriton_floor.reasons import Kind, Reason

KILLED = "killed by SIGKILL"
FRONTENDS = ("http", "grpc", "metrics")


@pytest.fixture
def world() -> SupervisorHarness:
    world = SupervisorHarness(
        make_blueprint("m"), make_blueprint("other"), control_mode="explicit"
    ).start()
    for model in ("m", "other"):
        assert world.call("load", {"model": model}).result is None
    world.fork_http_worker()
    return world


def said_to(world: SupervisorHarness, serial: int) -> list[Any]:
    return [message for to, message in world.sent if to == serial]


def kill_broker(world: SupervisorHarness) -> int:
    """The serial of the one that takes its place."""
    world.kill_process(world.serial("broker"), KILLED).tick()
    return world.serial("broker")


def test_the_next_broker_is_told_all_that_still_holds_before_it_is_asked_whether_it_listens(
    world: SupervisorHarness,
) -> None:
    old = world.serial("broker")
    expected = [
        m
        for m in said_to(world, old)
        if isinstance(m, (wire.ExpectPeer, wire.AddGeneration, wire.AttachInstance))
    ]

    new = kill_broker(world)

    bootstrap, *messages = said_to(world, new)
    assert (bootstrap.serial, bootstrap.role, bootstrap.epoch) == (new, "broker", 2)
    assert sorted(messages[:-1], key=repr) == sorted(expected, key=repr)
    assert messages[-1] == wire.Sync(0)
    kinds = [type(m).__name__ for m in messages]
    assert sorted(set(kinds), key=kinds.index) == [
        "ExpectPeer",
        "AddGeneration",
        "AttachInstance",
        "Sync",
    ]


def test_everybody_who_speaks_with_the_broker_hears_of_the_next_one_when_it_listens(
    world: SupervisorHarness,
) -> None:
    world.silent = set(range(1000))
    dead = world.serial("broker")

    world.kill_process(dead, KILLED).tick()
    early = {role: world.messages_to(role, wire.NewEpoch) for role in ("stub", *FRONTENDS)}
    world.receive(world.serial("broker"), wire.Synced(0))

    assert early.pop("stub") == []
    assert early == {role: [wire.NewEpoch(0)] for role in FRONTENDS}
    assert world.messages_to("stub", wire.NewEpoch) == [wire.NewEpoch(2)] * 2
    for role in FRONTENDS:
        assert world.messages_to(role, wire.NewEpoch) == [wire.NewEpoch(0), wire.NewEpoch(2)]
    assert world.messages_to("http-arbiter", wire.NewEpoch) == []


def test_the_models_and_their_stubs_stay(world: SupervisorHarness) -> None:
    stubs, generation = world.living("stub"), world.generation("m").number

    kill_broker(world)

    assert world.living("stub") == stubs
    assert world.generation("m").number == generation
    assert world.latest_version_info("m").ready_instances == 1
    assert world.status is None
    assert world.has_logged(f"has died: {KILLED}")


def test_a_load_under_way_goes_on_with_the_next_broker() -> None:
    world = SupervisorHarness(make_blueprint("m"), control_mode="explicit").start()
    world.stub_behaviours["m"] = HANGS
    call = world.call("load", {"model": "m"})
    stub = world.serial("m_0_0")

    new = kill_broker(world)
    world.finish_load(stub)

    assert call.result is None
    kinds = [type(m) for m in said_to(world, new)]
    assert (
        kinds.index(wire.ExpectPeer)
        < kinds.index(wire.AddGeneration)
        < kinds.index(wire.AttachInstance)
    )
    assert [wire.NewEpoch(2)] == world.messages_to("stub", wire.NewEpoch)


def test_a_load_waits_until_the_next_broker_knows_of_it(world: SupervisorHarness) -> None:
    world.models["late"] = make_blueprint("late")
    world.silent = {world.serial("broker")}
    call = world.call("load", {"model": "late"})
    assert call.answer is None

    new = kill_broker(world)

    assert call.result is None
    messages = said_to(world, new)
    served = next(m for m in messages if isinstance(m, wire.AddGeneration) and m.model == "late")
    number = next(m.number for m in messages if isinstance(m, wire.Sync) and m.number)
    assert messages.index(served) < messages.index(wire.Sync(number))


def test_a_load_that_ends_while_there_is_no_broker_is_told_to_the_next(
    world: SupervisorHarness,
) -> None:
    world.models["late"] = make_blueprint("late")
    world.stub_behaviours["late"] = HANGS
    call = world.call("load", {"model": "late"})
    stub = world.serial("late_0_0")
    world.receive(stub, wire.ConfigCompleted("{}"))
    world.kill_process(world.serial("broker"), KILLED)

    world.receive(stub, wire.ModelLoaded())
    assert call.answer is None
    world.tick()

    assert call.result is None
    assert [
        s.model for s in said_to(world, world.serial("broker")) if type(s) is wire.AddGeneration
    ] == [
        "m",
        "other",
        "late",
    ]


def test_an_unload_while_there_is_no_broker_is_answered_by_the_next(
    world: SupervisorHarness,
) -> None:
    world.kill_process(world.serial("broker"), KILLED)

    call = world.call("unload", {"model": "m"})
    assert call.answer is None
    world.tick()

    assert call.result is None


def test_who_is_started_while_there_is_no_broker_is_born_when_there_is(
    world: SupervisorHarness,
) -> None:
    world.kill_process(world.serial("broker"), KILLED)

    serial = world.fork_http_worker()
    assert said_to(world, serial) == []
    world.tick()

    assert [type(m).__name__ for m in said_to(world, serial)] == [
        "Bootstrap",
        "VersionInfo",
        "VersionInfo",
        "Listen",
    ]
    assert said_to(world, serial)[0].epoch == 2


def test_a_stub_that_dies_while_there_is_no_broker_is_told_as_dead_to_the_next(
    world: SupervisorHarness,
) -> None:
    generation, dead = world.generation("m").number, world.serial("m_0_0")
    world.kill_process(world.serial("broker"), KILLED)

    world.kill_process(dead, "killed by SIGSEGV").tick()

    said = said_to(world, world.serial("broker"))
    messages = [m for m in said if getattr(m, "serial", 0) == dead]
    assert [type(m) for m in messages] == [wire.ExpectPeer, wire.AttachInstance, wire.PeerDied]
    assert messages[1:] == [
        wire.AttachInstance(generation, dead, "m_0_0"),
        wire.PeerDied(dead, "killed by SIGSEGV"),
    ]


@pytest.mark.parametrize("is_told", [False, True], ids=["settled", "not settled"])
def test_a_death_that_the_old_broker_has_not_settled_is_told_again(
    world: SupervisorHarness, is_told: bool
) -> None:
    broker, dead = world.serial("broker"), world.serial("m_0_0")
    world.silent = {broker} if is_told else set()
    world.kill_process(dead)

    world.advance(60.0 if is_told else 0.0)

    assert (wire.PeerDied(dead, KILLED) in said_to(world, kill_broker(world))) is is_told


def test_the_memory_of_the_dead_is_told_again_until_all_leases_have_ended(
    world: SupervisorHarness,
) -> None:
    broker, dead = world.serial("broker"), world.living("http")[0]
    world.silent = {broker}
    world.kill_process(dead, KILLED).tick()

    world.receive(broker, wire.LeasedSegments(dead, [1, 2]))
    world.receive(broker, wire.LeasedSegments(world.serial("m_0_0"), []))  # which lives
    assert [(dead, [1, 2])] == world.kept_segments

    following = kill_broker(world)
    assert wire.PeerDied(dead, KILLED) in said_to(world, following)
    assert (dead, []) == world.kept_segments[-1]
    assert wire.PeerDied(dead, KILLED) not in said_to(world, kill_broker(world))


def test_the_status_has_the_memory_of_processes_that_have_ended(world: SupervisorHarness) -> None:
    stub, dead = world.serial("m_0_0"), world.living("http")[0]
    world.segment_bytes = {stub: 100, dead: 20}
    world.kill_process(dead)

    status = world.call("status").result

    assert 20 == status["ended_segment_bytes"]
    assert [100] == [p["segment_bytes"] for p in status["processes"] if p.get("serial") == stub]


def test_memory_of_which_no_broker_has_ever_heard_is_freed_at_once(
    world: SupervisorHarness,
) -> None:
    kill_broker(world)
    world.kept_segments.clear()
    stranger = world.core.plan.new_serial()

    world.core.events.process_ended(stranger, Reason.of(Kind.KILLED, KILLED))
    world.run_until_idle()

    assert [(stranger, [])] == world.kept_segments


def test_a_dead_frontend_is_not_told_to_the_next_broker(world: SupervisorHarness) -> None:
    dead = world.serial("grpc")
    world.kill_process(dead)

    new = kill_broker(world)

    assert dead not in [m.serial for m in said_to(world, new) if isinstance(m, wire.ExpectPeer)]


def test_a_retired_generation_is_retired_again_when_its_requests_have_been_sent_again(
    world: SupervisorHarness,
) -> None:
    generation = world.generation("m").number
    world.is_busy = True
    world.call("unload", {"model": "m"})

    new = kill_broker(world)
    early = said_to(world, new)
    world.advance(2.0)

    assert generation in [m.generation for m in early if isinstance(m, wire.AddGeneration)]
    assert wire.Retire(generation) not in early
    assert said_to(world, new)[-1] == wire.Retire(generation)


def test_what_was_unloaded_is_told_to_the_next_broker_with_its_end(
    world: SupervisorHarness,
) -> None:
    generation = world.generation("m").number
    world.call("unload", {"model": "m"})
    world.run_until_idle()
    world.advance(2.0)

    said = said_to(world, kill_broker(world))
    of_it = [type(m) for m in said if getattr(m, "generation", 0) == generation]
    assert of_it[0] is wire.AddGeneration
    assert of_it[-1] is wire.RemoveGeneration


def test_a_frozen_broker_is_killed_and_replaced(world: SupervisorHarness) -> None:
    frozen = world.serial("broker")

    world.core.events.process_frozen(frozen)
    world.run_until_idle().tick()

    assert world.serial("broker") != frozen
    assert world.status is None


def test_brokers_that_come_up_and_die_at_once_never_end_the_server(
    world: SupervisorHarness,
) -> None:
    for _ in range(40):
        world.kill_process(world.serial("broker"))
        while not world.living("broker"):
            world.advance(0.1)

    assert world.status is None


def test_the_server_ends_when_no_broker_has_come_up_for_a_minute(
    world: SupervisorHarness,
) -> None:
    world.silent |= set(range(world.serial("broker") + 1, 1000))  # no later one comes up
    begun_s = world.now_s
    while world.status is None:
        if world.living("broker"):
            world.kill_process(world.serial("broker"))
        world.advance(0.1)

    assert world.status == 1
    assert world.now_s - begun_s > 60
    assert world.has_logged("no broker comes up any more")


def test_a_broker_that_works_for_a_while_each_time_never_ends_the_server(
    world: SupervisorHarness,
) -> None:
    for _ in range(20):
        world.advance(2.0)
        kill_broker(world)

    assert world.status is None


def test_a_server_that_is_stopping_needs_its_broker_until_the_models_have_ended(
    world: SupervisorHarness,
) -> None:
    world.stubborn = {"grpc"}
    world.stop()

    kill_broker(world)
    world.stubborn = set()
    world.kill_process(world.serial("grpc"), "exited with status 0").advance(5.0)

    assert world.status == 0
