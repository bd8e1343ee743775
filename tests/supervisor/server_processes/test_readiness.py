"""When the server's processes are ready, and what they share."""

from __future__ import annotations

from typing import Any

import pytest

from tests.floor.reasons import because
from tests.supervisor.models.test_loading import LOAD_M
from tests.supervisor.world import Call, SupervisorHarness, make_blueprint
from zmqtriton.supervisor.server_processes.readiness import ANSWER_TIMEOUT_S
from zmqtriton_floor import wire

# --------------------------------------------------------------------------- readiness
# The probes of models' readiness: of whom, how often, and for how long.


@pytest.fixture
def world() -> SupervisorHarness:
    """A model with two instances that is asked, and one that is not."""
    world = SupervisorHarness(
        make_blueprint("m", instances=2), make_blueprint("n"), control_mode="none"
    )
    world.models_with_is_ready = {"m"}
    return world.start()


def _probe(world: SupervisorHarness, *models: str) -> Call:
    numbers = [world.generation(model).number for model in models]
    return world.call("is_ready", {"generations": numbers})


def _questions(world: SupervisorHarness) -> list[tuple[int, wire.Call]]:
    """Of all stubs, in order."""
    return [(s, m) for s, m in world.sent if world.roles.get(s) == "stub" and type(m) is wire.Call]


def _answer(
    world: SupervisorHarness, question: tuple[int, wire.Call], result: str, code: int = 0
) -> None:
    serial, call = question
    world.receive(serial, wire.CallResult(call.id, code, "", result))


def test_only_stubs_whose_model_has_the_method_get_a_second_lifeline(
    world: SupervisorHarness,
) -> None:
    probed = [world.stub_names[s] for s, m in world.sent if type(m) is wire.ReadinessLifeline]

    assert ["m_0_0", "m_0_1"] == sorted(probed)
    assert (1, 0) == (
        world.latest_version_info("m").has_is_ready,
        world.latest_version_info("n").has_is_ready,
    )


def test_a_model_without_the_method_is_ready_and_not_asked(world: SupervisorHarness) -> None:
    assert _probe(world, "n").result is True
    assert [] == _questions(world)


@pytest.mark.row("A28")
def test_a_model_is_ready_when_all_of_its_instances_say_so(world: SupervisorHarness) -> None:
    probe = _probe(world, "m", "n")
    first, second = _questions(world)

    _answer(world, first, "true")
    assert probe.answer is None
    _answer(world, second, "true")

    assert probe.result is True


@pytest.mark.parametrize(("result", "code"), [("false", 0), ("false", 13), ("true", 13), ("1", 0)])
def test_one_instance_that_says_anything_else_is_enough(
    world: SupervisorHarness, result: str, code: int
) -> None:
    probe = _probe(world, "m")

    _answer(world, _questions(world)[0], result, code)

    assert probe.result is False


@pytest.mark.row("A28")
def test_who_asks_meanwhile_shares_the_answer(world: SupervisorHarness) -> None:
    probes = [_probe(world, "m") for _ in range(3)]
    first, second = _questions(world)

    _answer(world, first, "true")
    _answer(world, second, "true")

    assert [True, True, True] == [probe.result for probe in probes]
    assert _probe(world, "m").answer is None
    assert 4 == len(_questions(world))


@pytest.mark.row("A28")
def test_an_instance_that_does_not_answer_is_not_ready_until_it_has(
    world: SupervisorHarness,
) -> None:
    probe = _probe(world, "m")
    first, second = _questions(world)
    _answer(world, first, "true")

    world.advance(ANSWER_TIMEOUT_S - 1)
    assert probe.answer is None
    late = _probe(world, "m")
    world.advance(2)

    assert [False, False] == [one.result for one in (probe, late)]
    assert 1 == sum("m_0_1': is_ready() takes more than 5 seconds" in line for line in world.log)
    _answer(world, _questions(world)[2], "true")
    assert _probe(world, "m").result is False

    _answer(world, second, "true")
    again = _probe(world, "m")
    for question in _questions(world)[-2:]:
        _answer(world, question, "true")
    assert again.result is True


def test_a_stub_that_dies_while_it_is_asked_is_not_ready(world: SupervisorHarness) -> None:
    probe = _probe(world, "m")
    first, second = _questions(world)
    _answer(world, first, "true")

    world.kill_process(second[0])

    assert probe.result is False


def test_a_generation_that_is_gone_is_not_ready() -> None:
    world = SupervisorHarness(make_blueprint("m"), control_mode="explicit")
    world.models_with_is_ready = {"m"}
    world.start()
    world.call("load", LOAD_M)
    number = world.generation("m").number
    world.call("unload", LOAD_M)

    assert world.call("is_ready", {"generations": [number]}).result is False


@pytest.mark.parametrize("arguments", [{}, {"generations": 1}, {"generations": ["m"]}])
def test_what_is_no_list_of_generations_is_refused(
    world: SupervisorHarness, arguments: dict[str, Any]
) -> None:
    answer = world.call("is_ready", arguments).answer

    assert answer is not None
    assert "by numbers of generations" in answer.text


# ---------------------------------------------------------------------------- bytecode
# The place of a generation's bytecode: told to its stubs, and gone with the last of them.


def _places(world: SupervisorHarness) -> list[str]:
    return [load.bytecode for load in world.messages_to("stub", wire.LoadModel)]


def test_instances_of_one_generation_share_a_place_and_others_have_their_own() -> None:
    world = SupervisorHarness(
        make_blueprint("m", instances=2), make_blueprint("n"), control_mode="explicit"
    ).start()

    for model in ("m", "n"):
        world.call("load", {"model": model})

    assert _places(world) == ["/run/x/bytecode/1", "/run/x/bytecode/1", "/run/x/bytecode/2"]


def test_the_place_stays_while_a_stub_is_started_again_and_goes_with_the_last() -> None:
    world = SupervisorHarness(make_blueprint("m", instances=2), control_mode="explicit").start()
    world.call("load", {"model": "m"})

    world.kill_process(world.serial("m_0_0")).tick()
    assert {"/run/x/bytecode/1"} == set(_places(world))
    assert [] == world.removed_bytecode

    world.stubborn.add("m_0_1")
    world.call("unload", {"model": "m"})
    assert [] == world.removed_bytecode

    world.kill_process(world.serial("m_0_1"))
    assert ["/run/x/bytecode/1"] == world.removed_bytecode


# ----------------------------------------------------------------- fork server process
# The fork server as the core sees it: a process of its own, replaced when it dies.


@pytest.fixture
def served() -> SupervisorHarness:
    return SupervisorHarness(make_blueprint("m"), has_fork_server=True).start()


def test_it_is_started_before_everything_else(served: SupervisorHarness) -> None:
    assert "fork-server" == served.roles[min(served.roles)]
    assert served.latest_version_info("m").state == "READY"


def test_it_speaks_with_the_supervisor_alone(served: SupervisorHarness) -> None:
    assert [] == [m for s, m in served.sent if s == served.serial("fork-server")]
    assert "fork-server" not in [
        expected.role for expected in served.messages_to("broker", wire.ExpectPeer)
    ]


def test_a_dead_one_is_replaced_and_shown_with_the_reason(served: SupervisorHarness) -> None:
    served.kill_process(served.serial("fork-server")).tick()

    (row,) = [p for p in served.call("status").result["processes"] if p["role"] == "fork-server"]
    assert (1, "killed by SIGKILL") == (row["restarts"], row["last_reason"])
    assert served.serial("fork-server") == row["serial"]
    assert served.has_logged("the fork-server process")
    assert served.latest_version_info("m").ready_instances == 1


def test_one_that_dies_again_and_again_is_started_ever_more_seldom(
    served: SupervisorHarness,
) -> None:
    for _ in range(10):
        served.kill_process(served.serial("fork-server"))
        while not served.living("fork-server"):
            served.advance(0.5)

    assert served.now_s > 20
    assert served.status is None


def test_one_that_is_no_help_ends_and_is_not_replaced(served: SupervisorHarness) -> None:
    fork_server = served.serial("fork-server")

    served.receive(
        fork_server, wire.LoadFailed(because("sitecustomize.py has to run in each process"))
    )
    served.kill_process(fork_server, "exited with status 0").advance(60.0)

    assert [] == served.living("fork-server")
    assert served.has_logged("V every stub is spawned: sitecustomize.py")
    assert not served.has_logged("has died")


def test_it_ends_with_the_server_after_the_models(served: SupervisorHarness) -> None:
    fork_server = served.serial("fork-server")

    served.stop()

    assert 0 == served.status
    assert fork_server not in served.alive
    assert not served.has_logged("has died")


# ------------------------------------------------------------------------ port sharing
# When connections are sent to another server at the same port, and when they are taken back.


def serving(*, is_shared: bool = True) -> SupervisorHarness:
    world = SupervisorHarness(make_blueprint("a"), shares_ports=is_shared).start()
    for serial, service in (
        (world.fork_http_worker(), "HTTPService"),
        (world.serial("metrics"), "Metrics Service"),
    ):
        world.receive(serial, wire.Opened([wire.ServiceAddress(service, "127.0.0.1:8000")]))
    return world


@pytest.mark.row("L14", "--reuse-http-port", "--reuse-grpc-port")
@pytest.mark.addons
def test_a_server_that_drains_sends_connections_elsewhere_until_it_is_undrained() -> None:
    world = serving()
    assert ["TakeClientsBack"] == world.port_actions, "an earlier server may have sent them away"

    world.call("drain", {"wait": False})
    assert ["TakeClientsBack", "SendElsewhere"] == world.port_actions
    world.call("undrain")

    assert ["TakeClientsBack", "SendElsewhere", "TakeClientsBack"] == world.port_actions


def test_a_server_that_stops_sends_connections_elsewhere_before_it_closes_its_ports() -> None:
    world = serving()

    world.stop()

    assert ["TakeClientsBack", "SendElsewhere"] == world.port_actions
    assert [wire.Retire(0)] == world.messages_to("http", wire.Retire)
    assert [] == world.messages_to("http", wire.Shutdown), "some are connecting"
    world.advance(2.0)
    assert 1 == len(world.messages_to("http", wire.Shutdown))


def test_the_order_of_the_servers_is_looked_at_until_it_is_known() -> None:
    world = serving()
    assert 1 == world.looks_at_ports

    world.advance(3.5)
    assert 4 == world.looks_at_ports
    world.are_ports_known = True
    world.advance(10.0)

    assert 5 == world.looks_at_ports


@pytest.mark.addons
def test_a_port_of_its_own_needs_none_of_this() -> None:
    world = serving(is_shared=False)

    world.call("drain", {"wait": False})
    world.stop()

    assert ([], 0) == (world.port_actions, world.looks_at_ports)
    assert 1 == len(world.messages_to("http", wire.Shutdown))
