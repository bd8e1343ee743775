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


def test_a_dead_stub_is_replaced_at_once_under_the_same_generation(
    world: SupervisorHarness,
) -> None:
    generation, dead = world.generation("m").number, world.serial("m_0_0")

    world.kill_process(dead).tick()

    assert [wire.PeerDied(dead, "killed by SIGKILL")] == world.messages_to("broker", wire.PeerDied)
    attached = world.messages_to("broker", wire.AttachInstance)[-1]
    assert attached == wire.AttachInstance(generation, world.serial("m_0_0"), "m_0_0")
    assert world.latest_version_info("m").ready_instances == 1


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


def test_the_replacement_gets_the_final_configuration_and_is_not_asked_again(
    world: SupervisorHarness,
) -> None:
    world.kill_process(world.serial("m_0_0")).tick()

    load = world.messages_to("stub", wire.LoadModel)[-1]

    assert (load.model, load.auto_complete) == ("m", wire.CONFIG_IS_FINAL)


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


def test_what_waits_in_a_version_that_ends_fails_if_no_stub_comes_up(
    busy: SupervisorHarness,
) -> None:
    dead = busy.serial("m_0_0")
    busy.call("unload", {"model": "m"})

    busy.stub_behaviours["m"] = "its files are gone"
    busy.kill_process(dead).advance(300.0)

    (removed,) = busy.messages_to("broker", wire.RemoveGeneration)
    assert "its files are gone" in removed.reason
    assert ([], "unloaded") == (busy.living("stub"), reason(busy))


def test_a_version_that_ends_waits_for_no_stub_if_no_request_does(busy: SupervisorHarness) -> None:
    busy.is_busy = False
    busy.kill_process(busy.serial("m_0_0")).tick()

    busy.call("unload", {"model": "m"})

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


def test_a_model_that_was_given_up_can_be_loaded_again() -> None:
    world = SupervisorHarness(
        make_blueprint("m"), control_mode="explicit", startup_models=("m",)
    ).start()
    crash_loop(world, "m")

    assert world.call("load", {"model": "m"}).result is None
    assert world.latest_version_info("m").state == "READY"


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


def test_a_model_that_was_given_up_is_tried_again_and_says_so(given_up: SupervisorHarness) -> None:
    said = "instance 'm_0_0': no store (given up after {} deaths, tried again every 40 s)"
    assert said.format(6) == reason(given_up)
    assert given_up.has_logged("has died: no store; given up after 6 deaths, tried again every 40")

    given_up.advance(40.0)

    news = given_up.latest_version_info("m")
    assert ("UNAVAILABLE", 0) == (news.state, news.generation)
    assert said.format(7) == reason(given_up)


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


def test_frontends_hear_of_it_after_the_broker(given_up: SupervisorHarness) -> None:
    given_up.silent.add(given_up.serial("broker"))
    given_up.stub_behaviours["m"] = LOADS

    given_up.advance(40.0)

    assert "UNAVAILABLE" == given_up.latest_version_info("m").state
    assert given_up.messages_to("broker", wire.AddGeneration)


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

    assert [] == given_up.living("stub")
    assert "unloaded" == reason(given_up)


@pytest.mark.parametrize("does", [LOADS, "still no store"])
def test_a_load_takes_the_place_of_the_tries(given_up: SupervisorHarness, does: str) -> None:
    given_up.stub_behaviours["m"] = does
    before = given_up.generation("m")

    given_up.call("load", {"model": "m"})

    if does == LOADS:
        assert given_up.generation("m") is not before
        assert "READY" == given_up.latest_version_info("m").state
        return
    assert "still no store" in reason(given_up)
    given_up.stub_behaviours["m"] = LOADS
    given_up.advance(40.0)
    assert given_up.generation("m") is before
    assert "READY" == given_up.latest_version_info("m").state


def test_of_several_instances_each_that_was_given_up_is_tried_again() -> None:
    blueprint = replace(make_blueprint("m", instances=2), retry_after_s=40.0)
    world = SupervisorHarness(blueprint, control_mode="none").start()
    world.stub_behaviours["m"] = "no store"
    world.kill_process(world.serial("m_0_1"))
    world.advance(20.0)
    rows = {row.get("instance"): row for row in world.call("status").result["processes"]}
    assert ("READY", 0.0) == (rows["m_0_0"]["state"], rows["m_0_0"]["retry_after_s"])
    assert ("FAILED", 40.0) == (rows["m_0_1"]["state"], rows["m_0_1"]["retry_after_s"])

    world.stub_behaviours["m"] = LOADS
    world.advance(40.0)

    assert 2 == world.latest_version_info("m").ready_instances


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


def test_a_frozen_stub_is_killed_and_replaced(world: SupervisorHarness) -> None:
    stub = world.serial("m_0_0")

    world.core.events.process_frozen(stub)
    world.run_until_idle().tick()

    assert stub not in world.alive
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
    dead = world.serial(role)

    world.kill_process(dead).tick()

    new = world.serial(role)
    kinds = [type(message).__name__ for serial, message in world.sent if serial == new]
    assert ("Bootstrap", "Listen") == (kinds[0], kinds[-1])
    assert kinds.count("VersionInfo") == (0 if role == "http-arbiter" else 2)


def test_a_frontend_that_dies_at_once_is_not_started_in_a_storm(world: SupervisorHarness) -> None:
    for _ in range(40):
        world.kill_process(world.serial("grpc"))
        world.advance((world.core.plan.next_deadline_s() or world.now_s) - world.now_s)
        while not world.living("grpc"):
            world.advance(0.5)

    assert world.now_s > 40


def test_a_gunicorn_process_is_born_with_all_news(world: SupervisorHarness) -> None:
    serial = world.fork_http_worker()

    kinds = [type(message).__name__ for s, message in world.sent if s == serial]

    assert ["Bootstrap", "VersionInfo", "VersionInfo", "Listen"] == kinds
    (expected,) = [e for e in world.messages_to("broker", wire.ExpectPeer) if e.serial == serial]
    # It is in its arbiter's process group, which the broker is told of already.
    assert expected.pid == 0


def test_nobody_is_born_before_the_broker_listens() -> None:
    world = SupervisorHarness(make_blueprint("m"), control_mode="none")
    world.core.start(0.0)
    broker = 1
    world.silent = {broker}
    world.run_until_idle()
    assert world.messages_to("grpc", wire.Bootstrap) == []
    assert world.messages_to("stub", wire.Bootstrap) == []

    world.silent = set()
    world.receive(broker, wire.Synced(0))

    assert len(world.messages_to("grpc", wire.Bootstrap)) == 1
    assert world.latest_version_info("m").state == "READY"


def test_the_broker_expects_a_process_before_that_is_born(world: SupervisorHarness) -> None:
    stub = world.serial("m_0_0")
    expected = next(
        i
        for i, (_, m) in enumerate(world.sent)
        if isinstance(m, wire.ExpectPeer) and m.serial == stub
    )
    born = next(
        i for i, (s, m) in enumerate(world.sent) if isinstance(m, wire.Bootstrap) and s == stub
    )

    assert expected < born
    message = world.sent[expected][1]
    assert (message.role, message.label, message.pid) == (
        "stub",
        "m_0_0",
        world.instance("m").pid,
    )


def test_a_frozen_frontend_is_killed(world: SupervisorHarness) -> None:
    grpc = world.serial("grpc")

    world.core.events.process_frozen(grpc)
    world.run_until_idle().tick()

    assert world.serial("grpc") != grpc


def test_an_instance_that_executes_before_each_death_is_never_given_up(
    world: SupervisorHarness,
) -> None:
    for _ in range(20):
        serial = world.serial("m_0_0")
        world.receive(world.serial("broker"), wire.FirstExecutionDone(serial))

        world.kill_process(serial).tick()

        assert world.serial("m_0_0") != serial
        assert world.latest_version_info("m").ready_instances == 1
