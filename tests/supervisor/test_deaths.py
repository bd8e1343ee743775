"""Deaths of stubs and frontends; and stubs that break the rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.floor.reasons import because, text_of
from tests.supervisor.world import HANGS, LOADS, SupervisorHarness, make_blueprint
from zmqtriton_floor import wire


@pytest.fixture
def world() -> SupervisorHarness:
    return SupervisorHarness(
        make_blueprint("m"), make_blueprint("other"), control_mode="none"
    ).start()


@pytest.mark.row("B18")
def test_a_model_is_not_ready_while_its_only_stub_is_dead(world: SupervisorHarness) -> None:
    world.stub_behaviours["m"] = HANGS

    world.kill_process(world.serial("m_0_0"))

    news = world.latest_version_info("m")
    # New requests wait in its queue, so its generation still serves.
    assert (news.state, news.ready_instances) == ("READY", 0)
    assert news.generation == world.generation("m").number
    entry = world.index()[0]
    assert entry["state"] == "UNAVAILABLE"
    assert entry["reason"] == "instance 'm_0_0': killed by SIGKILL, restarting (1/5)"


@pytest.fixture
def busy() -> SupervisorHarness:
    """A server whose requests take their time, and whose stubs do."""
    world = SupervisorHarness(make_blueprint("m"), control_mode="explicit", startup_models=("m",))
    world.start()
    world.is_busy, world.stub_behaviours["m"] = True, HANGS
    return world


@pytest.mark.parametrize("dies_first", [False, True], ids=["while it ends", "before"])
def test_what_waits_in_a_version_that_ends_gets_another_stub_if_the_only_one_dies(
    busy: SupervisorHarness, dies_first: bool
) -> None:
    generation, dead = busy.generation("m").number, busy.serial("m_0_0")
    steps = [lambda: busy.call("unload", {"model": "m"}), lambda: busy.kill_process(dead).tick()]

    for step in reversed(steps) if dies_first else steps:
        step()
    busy.finish_load(busy.serial("m_0_0"))

    attached = busy.messages_to("broker", wire.AttachInstance)[-1]
    assert attached == wire.AttachInstance(generation, busy.serial("m_0_0"), "m_0_0")
    assert [] == busy.messages_to("broker", wire.RemoveGeneration)
    busy.receive(busy.serial("broker"), wire.Drained(generation))
    assert ([], "unloaded") == (busy.living("stub"), reason(busy))


def crash_loop(world: SupervisorHarness, model: str) -> None:
    """Kills each stub in the moment in which it is ready, until no other comes."""
    for _ in range(20):
        world.kill_process(world.serial(f"{model}_0_0"), "killed by SIGSEGV")
        while not world.instance(model).is_alive:
            due_s = world.core.plan.next_deadline_s()
            if due_s is None or due_s - world.now_s > 10.0:
                return
            world.advance(due_s - world.now_s)


def test_an_instance_that_dies_too_often_is_given_up(world: SupervisorHarness) -> None:
    generation = world.generation("m").number

    crash_loop(world, "m")

    news = world.latest_version_info("m")
    assert (news.state, news.generation) == ("UNAVAILABLE", 0)
    reason = "instance 'm_0_0': killed by SIGSEGV (given up after 6 deaths)"
    assert text_of(news.reason) == reason
    assert [wire.RemoveGeneration(generation, reason)] == world.messages_to(
        "broker", wire.RemoveGeneration
    )
    assert world.latest_version_info("other").ready_instances == 1


@pytest.fixture
def given_up() -> SupervisorHarness:
    """A model that was given up, and whose loads fail; it is tried again after 40 seconds."""
    blueprint = replace(make_blueprint("m", instances=2), retry_after_s=40.0)
    world = SupervisorHarness(blueprint, control_mode="explicit", startup_models=("m",)).start()
    world.stub_behaviours["m"] = "no store"
    for serial in world.living("stub"):
        world.kill_process(serial, "killed by SIGSEGV")
    world.advance(20.0)
    return world


def reason(world: SupervisorHarness, model: str = "m") -> str:
    return text_of(world.latest_version_info(model).reason)


def test_a_model_that_comes_up_again_serves_as_before(given_up: SupervisorHarness) -> None:
    generation = given_up.generation("m").number

    given_up.stub_behaviours["m"] = LOADS
    given_up.advance(40.0)

    news = given_up.latest_version_info("m")
    assert (generation, "READY", 2, None) == (
        news.generation,
        news.state,
        news.ready_instances,
        news.reason,
    )
    (*_, added) = given_up.messages_to("broker", wire.AddGeneration)
    attached = given_up.messages_to("broker", wire.AttachInstance)[-2:]
    assert generation == added.generation
    assert {"m_0_0", "m_0_1"} == {one.instance for one in attached}


def test_the_next_broker_is_told_of_what_has_come_back(given_up: SupervisorHarness) -> None:
    given_up.stub_behaviours["m"] = LOADS
    given_up.advance(40.0)

    given_up.kill_process(given_up.serial("broker")).tick()

    said = [m for s, m in given_up.sent if s == given_up.serial("broker")]
    generation = given_up.generation("m").number
    assert [generation] == [m.generation for m in said if isinstance(m, wire.AddGeneration)]
    assert not [m for m in said if isinstance(m, wire.RemoveGeneration)]


@pytest.mark.parametrize("is_trying", [False, True])
def test_an_unload_ends_the_tries(given_up: SupervisorHarness, is_trying: bool) -> None:
    if is_trying:
        given_up.stub_behaviours["m"] = HANGS
        given_up.advance(40.0)
        assert len(given_up.living("stub")) == 2

    given_up.call("unload", {"model": "m"})
    given_up.stub_behaviours["m"] = LOADS
    given_up.advance(200.0)

    assert ([], "unloaded") == (given_up.living("stub"), reason(given_up))


def test_a_hung_stub_is_killed_for_what_the_broker_says(world: SupervisorHarness) -> None:
    stub = world.serial("m_0_0")

    world.receive(
        world.serial("broker"), wire.ExecutionOverdue(stub, because("took longer than 2 s"))
    )

    assert [wire.PeerDied(stub, "took longer than 2 s")] == world.messages_to(
        "broker", wire.PeerDied
    )
    world.tick()
    assert world.latest_version_info("m").ready_instances == 1


@pytest.mark.parametrize("role", ["m_0_0", "grpc"])
def test_what_is_frozen_is_killed_and_replaced(world: SupervisorHarness, role: str) -> None:
    frozen = world.serial(role)

    world.core.events.process_frozen(frozen)
    world.run_until_idle().tick()

    assert frozen not in world.alive
    assert world.serial(role) > frozen
    assert world.latest_version_info("m").ready_instances == 1


@pytest.mark.parametrize(
    "message",
    [
        wire.ModelLoaded(),
        wire.ConfigCompleted("{}"),
        wire.LoadFailed(because("?")),
        wire.Synced(0),
        wire.Drained(1),
        wire.ExecutionOverdue(4, because("?")),
        wire.Opened([wire.ServiceAddress("HTTPService", "here")]),
        wire.WorkerForked(1),
        wire.ThreadEnded(1),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_stub_that_says_what_it_must_not_hurts_only_itself(
    world: SupervisorHarness, message: Any
) -> None:
    world.receive(world.serial("m_0_0"), message).tick()

    assert world.status is None
    assert world.latest_version_info("m").state == "READY"
    assert world.latest_version_info("m").ready_instances == 1
    assert world.latest_version_info("other").ready_instances == 1


@pytest.mark.parametrize("role", ["http-arbiter", "grpc", "metrics"])
def test_a_dead_frontend_is_replaced_and_opens(world: SupervisorHarness, role: str) -> None:
    world.kill_process(world.serial(role)).tick()

    new = world.serial(role)
    kinds = [type(message).__name__ for serial, message in world.sent if serial == new]
    assert ("Bootstrap", "Listen") == (kinds[0], kinds[-1])
    assert kinds.count("VersionInfo") == (0 if role == "http-arbiter" else 2)


def test_a_gunicorn_process_is_born_with_all_news(world: SupervisorHarness) -> None:
    serial = world.fork_http_worker()

    kinds = [type(message).__name__ for s, message in world.sent if s == serial]

    assert ["Bootstrap", "VersionInfo", "VersionInfo", "Listen"] == kinds
    (expected,) = [e for e in world.messages_to("broker", wire.ExpectPeer) if e.serial == serial]
    # It is in its arbiter's process group, which the broker is told of already.
    assert expected.pid == 0


def test_an_instance_that_executes_before_each_death_is_never_given_up(
    world: SupervisorHarness,
) -> None:
    for _ in range(20):
        serial = world.serial("m_0_0")
        world.receive(world.serial("broker"), wire.FirstExecutionDone(serial))

        world.kill_process(serial).tick()

        assert world.serial("m_0_0") != serial
        assert world.latest_version_info("m").ready_instances == 1
