"""The end in order, and every way in which it is not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.supervisor.world import HANGS, SupervisorHarness, make_blueprint
from zmqtriton.reading.blueprint import FinalConfig, InstanceSlot
from zmqtriton.supervisor.server_processes.shutdown import CROWDED_S
from zmqtriton_floor import wire
from zmqtriton_floor.errors import Unavailable


def running(**policy: object) -> SupervisorHarness:
    world = SupervisorHarness(
        make_blueprint("a"),
        make_blueprint("b"),
        control_mode="explicit",
        startup_models=("*",),
        **policy,
    ).start()
    world.fork_http_worker()
    return world


def stats(model: str, unanswered: int) -> dict[str, Any]:
    """Return what the broker says of a model."""
    own = {"pending": 0, "unanswered": unanswered, "direct_responses": 0, "brokered_responses": 0}
    own |= {"sequences": 0, "last_arrival_ns": 0, "busy_ns": 0}
    counts = {"success": {"count": 1}, "fail": {"count": 0}}
    return {
        "name": model,
        "version": "1",
        "inference_stats": counts,
        "execution_count": 1,
        "zmqtriton": own,
    }


def _retired(world: SupervisorHarness) -> list[int]:
    return [m.generation for m in world.messages_to("broker", wire.Retire) if m.generation]


@pytest.fixture
def world() -> SupervisorHarness:
    return running()


def test_everything_ends_in_order_and_the_status_is_0(world: SupervisorHarness) -> None:
    world.stubborn = {"http", "grpc"}

    world.stop()

    assert "I Waiting for in-flight requests to complete." in world.log
    assert len(world.messages_to("http", wire.Shutdown)) == 1
    assert _retired(world) == []
    world.kill_process(world.serial("http"), "exited with status 0")
    world.kill_process(world.serial("grpc"), "exited with status 0")
    assert world.has_logged("All models are stopped, unloading models")
    unloading = sorted(line for line in world.log if "UNLOADING" in line)
    assert ["V a v1: UNLOADING", "V b v1: UNLOADING"] == unloading
    assert len(_retired(world)) == 2
    assert (2, 0) == (len(world.messages_to("stub", wire.Finalize)), world.status)
    assert world.alive == set()


@pytest.mark.row("E78")
def test_sequences_that_are_begun_before_clients_hear_of_the_stop_are_waited_for() -> None:
    config = json.dumps({"name": "a", "sequence_batching": {}})
    finished = FinalConfig(config, b"proto", (InstanceSlot("a_0_0", "CPU", 0),))
    world = SupervisorHarness(make_blueprint("a", finish=lambda reply: finished)).start()
    world.fork_http_worker()

    world.stop()
    assert [wire.Retire(0)] == world.messages_to("http", wire.Retire)
    assert [] == world.messages_to("broker", wire.Retire)
    world.has_sequences = True
    world.advance(5.0)

    assert [wire.Retire(0)] == world.messages_to("broker", wire.Retire)
    assert [] == world.messages_to("http", wire.Shutdown)


def test_the_broker_ends_after_the_stubs(world: SupervisorHarness) -> None:
    world.stop()

    last_finish = max(i for i, (_, m) in enumerate(world.sent) if isinstance(m, wire.Finalize))
    broker_stop = max(i for i, (_, m) in enumerate(world.sent) if isinstance(m, wire.Shutdown))
    assert last_finish < broker_stop


def test_a_process_that_has_ended_is_not_replaced(world: SupervisorHarness) -> None:
    world.stubborn = {"http"}
    world.stop()

    world.advance(5.0)

    assert world.living("grpc") == []
    assert world.status is None


@pytest.mark.row("F17")
def test_the_time_that_is_left_is_said_each_second() -> None:
    world = running(exit_timeout_s=3)
    world.stubborn = {"http"}

    world.stop().advance(2.5)

    assert [
        f"I Timeout {n}: Found 0 model versions that have in-flight inferences" for n in (3, 2, 1)
    ] == [line for line in world.log if "Timeout" in line]


@pytest.mark.row("F17")
def test_models_that_have_requests_are_named(world: SupervisorHarness) -> None:
    world.stubborn = {"http"}
    world.model_stats = [stats("a", unanswered=2), stats("b", unanswered=0)]

    world.stop()

    assert [
        "I Timeout 30: Found 1 model versions that have in-flight inferences",
        "I Model 'a' (version 1) has 2 in-flight inferences",
    ] == world.log[-2:]


@pytest.mark.row("F17")
def test_when_the_time_is_over_the_status_is_1() -> None:
    world = running(exit_timeout_s=3)
    world.stubborn = {"http"}

    world.stop().advance(3.0)

    assert world.status == 1
    assert "E Exit timeout expired. Exiting immediately." in world.log


def test_a_hanging_finalize_does_not_keep_the_server(world: SupervisorHarness) -> None:
    world.stubborn = {"a_0_0"}

    world.stop().advance(10.5)

    assert world.status == 0


def test_a_second_signal_ends_everything_at_once(world: SupervisorHarness) -> None:
    world.stubborn = {"http"}
    world.stop()

    world.stop()

    assert world.status == 1


def test_a_stop_while_models_load_ends_the_loads() -> None:
    world = SupervisorHarness(make_blueprint("a"), control_mode="none", stubs={"a": HANGS}).start()

    world.stop()

    assert world.status == 0
    assert world.alive == set()
    assert world.complaints == []


def test_a_stop_before_the_broker_listens_ends_everything() -> None:
    world = SupervisorHarness(make_blueprint("a"), control_mode="none")
    world.core.start(0.0)
    world.silent = {1}
    world.run_until_idle()

    world.stop()

    assert world.status == 0
    assert world.alive == set()


def test_a_load_that_is_under_way_is_refused_at_a_stop(world: SupervisorHarness) -> None:
    world.models["c"] = make_blueprint("c")
    world.stub_behaviours["c"] = HANGS
    world.stubborn = {"http"}
    call = world.call("load", {"model": "c"})

    world.stop()

    assert call.error[0] == Unavailable.number
    assert world.call("load", {"model": "c"}).error == (Unavailable.number, "Server exiting")


def test_a_stub_that_dies_while_requests_are_finished_comes_back(world: SupervisorHarness) -> None:
    world.stubborn = {"http"}
    world.stop()

    world.kill_process(world.serial("a_0_0")).tick()

    assert world.generation("a").readiness.ready_count == 1


def test_the_last_stub_of_a_draining_model_dies_and_the_server_ends(
    world: SupervisorHarness,
) -> None:
    world.is_busy = True
    world.stop()
    assert world.status is None

    for name in ("a_0_0", "b_0_0"):
        world.kill_process(world.serial(name), "killed by SIGSEGV")

    assert world.status == 0
    assert "killed by SIGSEGV" in world.messages_to("broker", wire.RemoveGeneration)[0].reason


# ---------------------------------------------------------- open sequences


def _stopped_amid_sequences(**policy: object) -> SupervisorHarness:
    world = running(**policy)
    world.has_sequences = True
    return world.stop()


@pytest.fixture
def waiting() -> SupervisorHarness:
    """A server that ends, while a client has a sequence to go on with."""
    return _stopped_amid_sequences()


def _end_sequences(world: SupervisorHarness) -> SupervisorHarness:
    world.has_sequences = False
    return world.receive(world.serial("broker"), wire.Drained(0))


@pytest.mark.row("E78")
def test_frontends_end_when_no_sequence_is_open_any_more(waiting: SupervisorHarness) -> None:
    assert [wire.Retire(0)] == waiting.messages_to("broker", wire.Retire)
    assert [wire.Retire(0)] * 2 == waiting.messages_to("http", wire.Retire) + waiting.messages_to(
        "grpc", wire.Retire
    )
    assert [] == waiting.messages_to("grpc", wire.Shutdown)
    assert [] == [s for s, m in waiting.sent if isinstance(m, wire.Finalize)]

    _end_sequences(waiting)

    assert (1, 0) == (len(waiting.messages_to("grpc", wire.Shutdown)), waiting.status)


@pytest.mark.row("E78", "F17")
def test_open_sequences_are_waited_for_until_the_time_is_over() -> None:
    world = _stopped_amid_sequences(exit_timeout_s=3).advance(2.9)
    assert [] == world.messages_to("http", wire.Shutdown)
    assert world.status is None

    world.advance(0.1)

    assert 1 == world.status
    assert "E Exit timeout expired. Exiting immediately." in world.log


@pytest.mark.parametrize("tells_each", [True, False])
def test_sequences_that_never_end_keep_no_server_whose_clients_hear_all_at_once(
    tells_each: bool,
) -> None:
    world = running(exit_timeout_s=60, tells_each_grpc_client=tells_each)
    world.has_sequences = True
    world.core.leave_to_successor()
    world.run_until_idle()
    world.advance(CROWDED_S - 0.5)
    assert [] == world.messages_to("grpc", wire.Shutdown)

    world.advance(1.0)

    assert (0 if tells_each else 1) == len(world.messages_to("grpc", wire.Shutdown))


def test_a_second_signal_does_not_wait_for_sequences(waiting: SupervisorHarness) -> None:
    waiting.stop()

    assert 1 == waiting.status


def test_of_a_model_with_sequences_these_are_counted(world: SupervisorHarness) -> None:
    world.model_stats = [stats("a", unanswered=1), stats("b", unanswered=0)]
    world.model_stats[0]["zmqtriton"]["sequences"] = 3
    world.has_sequences = True

    world.stop()

    assert [
        "I Timeout 30: Found 1 model versions that have in-flight inferences",
        "I Model 'a' (version 1) has 3 in-flight inferences",
    ] == world.log[-2:]


def test_a_frontend_that_dies_amid_sequences_is_replaced_by_one_that_takes_nothing_new(
    waiting: SupervisorHarness,
) -> None:
    waiting.kill_process(waiting.serial("grpc")).tick()
    waiting.fork_http_worker()

    messages_by_role = [
        [m for s, m in waiting.sent if s == waiting.serial(role)] for role in ("grpc", "http")
    ]
    for messages in messages_by_role:
        assert messages.index(wire.Retire(0)) < messages.index(wire.Listen())
    _end_sequences(waiting)
    assert 0 == waiting.status


def test_the_sequences_of_a_broker_that_dies_are_not_waited_for(waiting: SupervisorHarness) -> None:
    waiting.has_sequences = False  # the next broker knows of none

    waiting.kill_process(waiting.serial("broker")).advance(5.0)

    assert (2, 0) == (len(waiting.messages_to("broker", wire.Bootstrap)), waiting.status)


def test_a_stop_while_there_is_no_broker_waits_for_no_sequences(world: SupervisorHarness) -> None:
    world.stubborn = {"grpc"}
    world.kill_process(world.serial("broker"))

    world.stop()

    assert 1 == len(world.messages_to("grpc", wire.Shutdown))


def test_what_a_poll_finds_after_the_stop_changes_nothing() -> None:
    world = SupervisorHarness(
        make_blueprint("a"), make_blueprint("b"), control_mode="poll", poll_s=15.0
    ).start()
    world.has_sequences = True
    del world.models["a"]
    world.models["c"] = make_blueprint("c")

    world.core.tick(15.0)  # it asks what there is
    world.stop()

    assert [] == _retired(world)
    assert "c" not in world.core.models


def test_a_stop_while_repositories_are_listed_loads_nothing() -> None:
    world = SupervisorHarness(make_blueprint("a"), control_mode="none")
    world.core.start(0.0)

    world.stop()

    assert 0 == world.status
    assert not world.has_logged("loading: a:1")
