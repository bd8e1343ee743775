"""The server is open when a process of each role has opened; one that says nothing is named."""

from __future__ import annotations

from typing import Any

import pytest

from tests.floor.reasons import because
from tests.supervisor.world import HANGS, SupervisorHarness, make_blueprint
from zmqtriton.reading.blueprint import ReadFailure
from zmqtriton_floor import wire

READY = "1 of 1 model versions are ready"


def serving(*roles: str) -> SupervisorHarness:
    policy = {"control_mode": "none", "watchdog_interval_s": 2.0}
    return SupervisorHarness(make_blueprint("m"), frontend_roles=roles, **policy).start()


def silent_in(world: SupervisorHarness, *, is_silent: bool = True) -> list[str]:
    """Return what the status has of processes that say nothing, or else that die."""
    status: dict[str, Any] = world.call("status").result
    return [row["text"] for row in status["process_troubles"] if row["is_silent"] is is_silent]


@pytest.mark.addons
@pytest.mark.extra("routes")
def test_the_server_waits_for_the_last_of_its_processes() -> None:
    world = serving("http-arbiter", "grpc", "routes", "jobs", "metrics")
    for role in ("metrics", "jobs"):
        world.receive(world.serial(role), wire.Opened([]))
    for _ in range(2):
        opened = wire.Opened([wire.ServiceAddress("HTTPService", "here")])
        world.receive(world.fork_http_worker(), opened)
    assert not world.core.is_open

    world.receive(world.serial("routes"), wire.Opened([]))

    assert world.core.is_open
    assert 1 == [*world.log].count("I Started HTTPService at here")


def test_the_status_says_who_lacks_versions_and_whether_clients_can_connect() -> None:
    world = SupervisorHarness(
        make_blueprint("m"),
        make_blueprint("n", versions=()),
        control_mode="none",
        stubs={"m": HANGS},
        exit_on_error=False,
    )
    world.models["o"] = ReadFailure(because("no text proto"), "1")  # type: ignore[assignment]
    before = world.start().call("identity").result["ready"]
    is_listening = world.call("status").result["is_listening"]
    [stub] = world.stub_names
    world.finish_load(stub)
    after = world.call("identity").result["ready"]

    closed = "; no port is open until each model is loaded or has failed"
    assert (f"0 of 3 model versions are ready, not m version 1, n, o{closed}", False) == (
        before,
        is_listening,
    )
    assert "1 of 3 model versions are ready, not n, o" == after


@pytest.mark.addons
@pytest.mark.extra("routes")
def test_a_process_that_says_nothing_is_named_in_the_log_and_in_the_status() -> None:
    world = serving("routes", "metrics")
    world.receive(world.serial("metrics"), wire.Opened([]))
    assert [] == silent_in(world)

    world.advance(11.0)

    pid = next(p["pid"] for p in world.call("status").result["processes"] if p["role"] == "routes")
    text = f"the routes process {pid} has not opened after"
    assert f"E {text} 10 s" in world.log
    assert [f"{text} 11 s"] == silent_in(world)
    assert f"{READY}; {text} 11 s" == world.call("identity").result["ready"]
    world.receive(world.serial("routes"), wire.Opened([]))
    assert [] == silent_in(world)
    assert READY == world.call("identity").result["ready"]


def test_a_process_that_is_silent_from_its_start_is_named_while_models_wait_for_it() -> None:
    world = SupervisorHarness(
        make_blueprint("m"), frontend_roles=("grpc",), control_mode="explicit"
    ).start()
    world.receive(world.serial("grpc"), wire.Opened([]))
    world.call("load", {"model": "m"})
    assert [] == silent_in(world.advance(100.0))

    world.silent.add(world.serial("grpc"))
    world.call("unload", {"model": "m"})
    world.advance(1.0)
    load = world.call("load", {"model": "m"})
    world.advance(11.0)

    pid = next(p["pid"] for p in world.call("status").result["processes"] if p["role"] == "grpc")
    assert [f"the grpc process {pid} has not answered for 12 s"] == silent_in(world)
    assert load.answer is None
    assert {"m": "the processes of the server are told of it"} == world.call("loads").result
    world.kill_process(world.serial("grpc"))
    assert load.answer is not None
    assert [] == silent_in(world.advance(2.0))


# ------------------------------------------------------------------- deaths in a row
# A process that dies again and again is started seldom, and named.


def die_after(world: SupervisorHarness, role: str, seconds: float, within_s: float) -> list[int]:
    """Let each process of a role die so long after its start; return how many did each minute."""
    minutes = [0] * (int(within_s) // 60)
    began_s = world.now_s
    due: dict[int, float] = {}
    while world.now_s - began_s < within_s:
        for serial in world.living(role):
            if due.setdefault(serial, world.now_s + seconds) <= world.now_s:
                minutes[int(world.now_s - began_s) // 60] += 1
                world.kill_process(serial, "exited with status 1")
        world.advance(0.5)
    return minutes


@pytest.mark.parametrize("role", ["grpc", "metrics"])
def test_a_process_that_never_opens_is_started_ever_more_seldom(role: str) -> None:
    world = serving("grpc", "metrics", "http-arbiter")
    world.is_grpc_up = False
    world.kill_process(world.serial(role))

    minutes = die_after(world, role, 1.5, 600)

    assert 10 >= minutes[0], minutes
    assert 2 >= max(minutes[-5:]), minutes
    [text] = [each for each in silent_in(world, is_silent=False) if role in each]
    assert text.startswith(f"the {role} process dies again and again, ")
    assert text.endswith(" times lately; the last time: exited with status 1")
    assert text in world.call("identity").result["ready"]


def test_processes_of_gunicorn_that_die_are_named_with_their_arbiter() -> None:
    world = serving("http-arbiter")
    for _ in range(4):
        world.kill_process(world.fork_http_worker(), "exited with status 1")

    [text] = silent_in(world, is_silent=False)

    assert "the http process dies again and again, 4 times lately" in text


@pytest.mark.addons
@pytest.mark.extra("routes")
def test_a_process_that_opened_before_it_was_told_to_is_not_named() -> None:
    """With --early-liveness all are told at once, and again when the models are loaded."""
    world = SupervisorHarness(
        make_blueprint("m"), frontend_roles=("routes",), control_mode="none", early_liveness=True
    ).start()
    world.receive(world.serial("routes"), wire.Opened([]))
    world.core.accept_clients()

    world.advance(11.0)

    assert silent_in(world) == []
