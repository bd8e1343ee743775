"""The life of a process that serves, and bursts of connections to its listener."""

from __future__ import annotations

import asyncio
import logging
import math
import socket
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
import uvloop

from tests.support.scenarios import scenario
from tests.support.waiting import loop_turns, until
from zmqtriton_frontends.gateway.gateway import NEW_SEQUENCES_S
from zmqtriton_frontends.process import request_log
from zmqtriton_frontends.process.futures import Callbacks
from zmqtriton_frontends.serving.listener import Listener, address
from zmqtriton_frontends.serving.process import Service, ServingProcess


@pytest.fixture(autouse=True)
def _log_of_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_log, "configure", lambda: None)


class FakeGateway:
    """Starts when the test says so."""

    has_successor = is_stopping = False
    begins_sequences_s: float | None = None

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.on_open, self.on_retire, self.on_stop = Callbacks(), Callbacks(), Callbacks()
        self.on_draining = Callbacks()
        self.may_start = asyncio.Event()
        self.traces = self.catalogue = self
        self.is_draining = False

    async def start(self) -> None:
        await self.may_start.wait()

    async def call(self, verb: str, arguments: dict[str, Any]) -> None:
        """Take a report."""

    def opened(self, services: list[tuple[str, str]]) -> None:
        self.events.extend(services)

    def give_up(self) -> None:
        self.events.append("give up")

    def close(self) -> None:
        self.events.append("gateway closed")

    def end(self) -> None:
        """Close the traces."""


class FakeService(Service):
    def __init__(self, events: list[Any]) -> None:
        self._events = events
        self.has_clients = False
        self.fails = False
        self.checks = 0

    async def open(self) -> list[tuple[str, str]]:
        self._events.append("open")
        return [("Fake", "here")]

    def check(self) -> None:
        self.checks += 1
        if self.fails:
            raise ValueError("a defect")

    def leave(self, is_leaving: bool) -> None:
        self._events.append("leave" if is_leaving else "stay")

    async def end(self, within_s: float) -> None:
        self._events.append("end")
        self.within_s = within_s

    def end_idle(self) -> bool:
        return not self.has_clients

    async def close(self) -> None:
        self._events.append("close")


class World:
    def __init__(self) -> None:
        gateway: Any = FakeGateway()
        self.gateway: FakeGateway = gateway
        self.events = self.gateway.events
        self.service = FakeService(self.events)
        self.process = ServingProcess(gateway, lambda _: self.service)
        self.running = asyncio.ensure_future(self.process.run())

    async def open(self) -> None:
        await loop_turns(10)
        self.gateway.may_start.set()
        self.gateway.on_open()
        await loop_turns(10)


def run(test: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def all_of_it() -> None:
        world = World()
        await asyncio.wait_for(test(world), 20)
        await asyncio.wait_for(world.running, 20)
        assert {asyncio.current_task()} == asyncio.all_tasks()

    asyncio.run(all_of_it())


@scenario(run)
async def test_clients_may_come_when_the_gateway_works_and_the_server_opens(
    world: World, /
) -> None:
    await loop_turns(10)
    world.gateway.on_open()
    await loop_turns(10)
    assert [] == world.events

    world.gateway.may_start.set()
    await loop_turns(10)

    assert ["open", ("Fake", "here"), "stay"] == world.events
    world.gateway.on_stop(0)


@pytest.mark.parametrize("is_started", [False, True])
@scenario(run)
async def test_a_process_that_is_stopped_before_that_lets_nobody_in(
    world: World, /, is_started: bool
) -> None:
    if is_started:
        world.gateway.may_start.set()
    await loop_turns(10)

    world.gateway.on_stop(10_000)
    await world.running

    assert ["gateway closed"] == world.events


@scenario(run)
async def test_clients_go_elsewhere_while_the_server_drains_and_when_it_stops(
    world: World, /
) -> None:
    gateway = world.gateway
    await world.open()
    world.events.clear()

    for is_draining, is_stopping in ((True, False), (False, False), (False, True)):
        gateway.is_draining, gateway.is_stopping = is_draining, is_stopping
        gateway.on_retire()
    assert ["leave", "stay", "leave"] == world.events
    gateway.on_stop(0)


@scenario(run)
async def test_it_ends_when_its_clients_have_gone(world: World, /) -> None:
    world.service.has_clients = True
    await world.open()
    world.events.clear()

    world.gateway.on_stop(600_000)
    await asyncio.sleep(0.05)
    assert ["end"] == world.events
    assert world.service.within_s <= 600
    world.service.has_clients = False
    await world.running

    assert ["end", "close", "gateway closed"] == world.events


@pytest.mark.parametrize("later_s", [0.0, 600.0])
@scenario(run)
async def test_it_ends_with_clients_when_the_earliest_time_is_up(
    world: World, /, later_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    world.service.has_clients = True
    await world.open()
    world.events.clear()

    world.gateway.on_stop(600_000 if not later_s else 0)
    await asyncio.sleep(0.05)
    world.process.stop(later_s)

    await world.running
    assert ["end", "give up", "close", "gateway closed"] == world.events
    assert "left with clients that were not answered in time" in caplog.text


@scenario(run)
async def test_a_check_that_fails_ends_nothing(
    world: World, /, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("zmqtriton_frontends.serving.process._CHECK_EVERY_S", 0.01)
    world.service.fails = True
    await world.open()

    while world.service.checks < 3:
        await asyncio.sleep(0.01)

    assert not world.running.done()
    assert "a defect" in caplog.text
    world.gateway.on_stop(0)


@pytest.mark.parametrize(
    ("shares_port", "has_successor", "limit_s"),
    [(False, False, NEW_SEQUENCES_S), (True, False, math.inf), (False, True, math.inf)],
)
@scenario(run)
async def test_sequences_are_begun_until_the_end_where_others_have_the_port(
    world: World, /, shares_port: bool, has_successor: bool, limit_s: float
) -> None:
    world.service.shares_port = shares_port
    world.gateway.has_successor = has_successor
    await world.open()

    assert limit_s == world.gateway.begins_sequences_s
    world.gateway.on_stop(0)


@pytest.mark.parametrize(
    ("host", "shown"), [("0.0.0.0", "0.0.0.0:8001"), ("::", "[::]:8001"), ("a.b", "a.b:8001")]
)
def test_an_address_is_written_as_clients_write_it(host: str, shown: str) -> None:
    assert shown == address(host, 8001)


def make(made: list[asyncio.Protocol]) -> asyncio.Protocol:
    made.append(asyncio.Protocol())
    return made[-1]


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_listener_that_was_shut_down_elsewhere_listens_again(
    run: Callable[[Coroutine[Any, Any, None]], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        made: list[asyncio.Protocol] = []
        with socket.create_server(("127.0.0.1", 0)) as first:
            # a port that was asked for, as a server has it
            port = first.getsockname()[1]
        bound = socket.socket()
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", port))
        listener = Listener(partial(make, made), bound)
        await listener.open()
        listener.check()
        with bound.dup() as elsewhere:
            elsewhere.shutdown(socket.SHUT_RD)
        with socket.socket() as client:
            assert client.connect_ex(("127.0.0.1", port))

        listener.check()

        def is_accepted() -> bool:
            with socket.socket() as client:
                client.connect_ex(("127.0.0.1", port))
            return bool(made)

        await until(is_accepted)
        listener.close()

    with caplog.at_level(logging.ERROR):
        run(play())
    assert [f"the listener at {bound_text(caplog)} was shut down elsewhere; it listens again"] == [
        record.getMessage() for record in caplog.records if "listens again" in record.getMessage()
    ]


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_burst_of_connections_is_accepted_in_a_few_turns_of_the_loop(
    run: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    async def play() -> None:
        made: list[asyncio.Protocol] = []
        bound = socket.create_server(("127.0.0.1", 0), backlog=200)
        with ExitStack() as clients:
            for _ in range(200):
                clients.enter_context(socket.create_connection(bound.getsockname()))
            listener = Listener(partial(make, made), bound)
            await listener.open()
            turns = 0
            while len(made) < 200:
                await asyncio.sleep(0)
                turns += 1
        listener.close()
        assert turns < 100

    run(play())


def bound_text(caplog: pytest.LogCaptureFixture) -> str:
    [record] = [each for each in caplog.records if "listens again" in each.getMessage()]
    assert isinstance(record.args, tuple)
    return str(record.args[0])
