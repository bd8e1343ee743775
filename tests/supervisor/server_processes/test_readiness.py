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


@pytest.mark.row("A28")
def test_a_model_is_ready_when_all_of_its_instances_say_so(world: SupervisorHarness) -> None:
    probe = _probe(world, "m", "n")
    first, second = _questions(world)

    _answer(world, first, "true")
    assert probe.answer is None
    _answer(world, second, "true")

    assert probe.result is True


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


# ----------------------------------------------------------------- fork server process
# The fork server as the core sees it: a process of its own, replaced when it dies.


@pytest.fixture
def served() -> SupervisorHarness:
    return SupervisorHarness(make_blueprint("m"), has_fork_server=True).start()


def test_one_that_is_no_help_ends_and_is_not_replaced(served: SupervisorHarness) -> None:
    fork_server = served.serial("fork-server")

    served.receive(
        fork_server, wire.LoadFailed(because("sitecustomize.py has to run in each process"))
    )
    served.kill_process(fork_server, "exited with status 0").advance(60.0)

    assert [] == served.living("fork-server")
    assert served.has_logged("V every stub is spawned: sitecustomize.py")
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


def test_the_order_of_the_servers_is_looked_at_until_it_is_known() -> None:
    world = serving()
    assert 1 == world.looks_at_ports

    world.advance(3.5)
    assert 4 == world.looks_at_ports
    world.are_ports_known = True
    world.advance(10.0)

    assert 5 == world.looks_at_ports
