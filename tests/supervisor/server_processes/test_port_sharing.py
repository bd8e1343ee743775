"""When connections are sent to another server at the same port, and when they are taken back."""

from __future__ import annotations

import pytest

from tests.supervisor.world import SupervisorHarness, make_blueprint
from zmqtriton_floor import wire


def serving(*, is_shared: bool = True) -> SupervisorHarness:
    world = SupervisorHarness(make_blueprint("a"), shares_ports=is_shared).start()
    for serial, service in (
        (world.fork_http_worker(), "HTTPService"),
        (world.serial("metrics"), "Metrics Service"),
    ):
        world.receive(serial, wire.Listening(service, "127.0.0.1:8000"))
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

    world.core.stop_requested()
    world.run_until_idle()

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
    world.core.stop_requested()
    world.run_until_idle()

    assert ([], 0) == (world.port_actions, world.looks_at_ports)
    assert 1 == len(world.messages_to("http", wire.Shutdown))
