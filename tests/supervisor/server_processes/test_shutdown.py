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
    return {
        "name": model,
        "version": "1",
        "inference_stats": {"success": {"count": 1}, "fail": {"count": 0}},
        "execution_count": 1,
        "zmqtriton": own,
    }


@pytest.fixture
def world() -> SupervisorHarness:
    return running()


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


def test_a_hanging_finalize_does_not_keep_the_server(world: SupervisorHarness) -> None:
    world.stubborn = {"a_0_0"}

    world.stop()
    world.core.stop(1)  # what goes wrong at the end changes nothing
    world.run_until_idle().advance(10.5)

    assert world.status == 0


def test_a_second_signal_ends_everything_at_once(world: SupervisorHarness) -> None:
    world.stubborn = {"http"}
    world.stop()

    world.stop()

    assert world.status == 1


def test_a_load_that_is_under_way_is_refused_at_a_stop(world: SupervisorHarness) -> None:
    world.models["c"] = make_blueprint("c")
    world.stub_behaviours["c"] = HANGS
    world.stubborn = {"http"}
    call = world.call("load", {"model": "c"})

    world.stop()

    assert call.error[0] == Unavailable.number
    assert world.call("load", {"model": "c"}).error == (Unavailable.number, "Server exiting")


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
