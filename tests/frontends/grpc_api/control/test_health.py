from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.frontends.grpc_api.fake_gateway import (
    FakeCall,
    FakeGateway,
    InMemoryTransport,
    version_info,
)
from tests.support.scenarios import scenario
from zmqtriton_floor.errors import InvalidArgument, NotFound
from zmqtriton_frontends.grpc_api.control import health as module
from zmqtriton_frontends.grpc_api.control.health import Health
from zmqtriton_protos import message

REQUEST = message("grpc.health.v1.HealthCheckRequest")
RESPONSE = message("grpc.health.v1.HealthCheckResponse")
SERVING, NOT_SERVING = 1, 2


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_S", 0.001)


def ask(gateway: FakeGateway, method: str, **fields: Any) -> Any:
    request = message(f"inference.{method}Request")(**fields)
    return InMemoryTransport(gateway).call_unary(method, request)


def check(gateway: FakeGateway, service: str = "") -> int:
    answer = InMemoryTransport(gateway).call_unary_async(
        "Check", REQUEST(service=service), service="grpc.health.v1.Health"
    )
    status: int = asyncio.run(answer).status
    return status


def test_a_server_whose_models_are_ready_is_live_and_ready() -> None:
    gateway = FakeGateway(version_info("m"))

    assert ask(gateway, "ServerLive").live
    assert ask(gateway, "ServerReady").ready
    assert check(gateway) == SERVING


@pytest.mark.row("D01", "D13")
def test_a_server_with_a_dead_model_is_live_and_not_ready() -> None:
    gateway = FakeGateway(version_info("m", ready_instances=0), version_info("n"))

    assert ask(gateway, "ServerLive").live
    assert not ask(gateway, "ServerReady").ready
    assert check(gateway, service="n") == NOT_SERVING


@pytest.mark.row("D13")
def test_whichever_service_is_asked_for_the_server_answers() -> None:
    assert check(FakeGateway(version_info("m")), service="nobody") == SERVING


def test_a_model_is_ready_while_an_instance_could_execute() -> None:
    gateway = FakeGateway(version_info("m"), version_info("dead", ready_instances=0))

    assert ask(gateway, "ModelReady", name="m").ready
    assert ask(gateway, "ModelReady", name="m", version="1").ready
    assert not ask(gateway, "ModelReady", name="dead").ready


def test_readiness_of_what_is_unknown_is_an_error() -> None:
    gateway = FakeGateway(version_info("m"))

    with pytest.raises(InvalidArgument, match="'x' is not found"):
        ask(gateway, "ModelReady", name="x")
    with pytest.raises(NotFound, match="'m' version 2 is not found"):
        ask(gateway, "ModelReady", name="m", version="2")


# ------------------------------------------------------------------------- watches


class Watcher:
    """A client of Watch; `next()` is the next status it is told."""

    def __init__(self, health: Health) -> None:
        self._stream: AsyncIterator[bytes] = health.watch(b"", FakeCall())

    async def next(self) -> int:
        data = await asyncio.wait_for(self._stream.__anext__(), 10)
        status: int = RESPONSE.FromString(data).status
        return status

    async def leave(self) -> None:
        waiting = asyncio.ensure_future(self.next())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})


def test_a_watcher_is_told_the_status_and_each_change() -> None:
    async def scenario() -> list[int]:
        gateway = FakeGateway(version_info("m"))
        watcher = Watcher(Health(gateway))
        statuses = [await watcher.next()]
        gateway.catalogue.update(version_info("m", ready_instances=0))
        statuses.append(await watcher.next())
        gateway.catalogue.update(version_info("m"))
        statuses.append(await watcher.next())
        return statuses

    assert asyncio.run(scenario()) == [SERVING, NOT_SERVING, SERVING]


@pytest.mark.row("A28")
def test_a_watcher_is_told_what_models_say_of_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ASK_S", 0.001)

    async def scenario() -> list[int]:
        gateway = FakeGateway(version_info("m", is_asked=1), version_info("n"))
        statuses = []
        watcher = Watcher(Health(gateway))
        for is_ready in (False, True, False):
            gateway.control_results["is_ready"] = is_ready
            statuses.append(await watcher.next())
        await watcher.leave()
        assert [("is_ready", {"generations": [1]})] == gateway.calls[:1]
        return statuses

    assert asyncio.run(scenario()) == [NOT_SERVING, SERVING, NOT_SERVING]


@scenario(asyncio.run)
async def test_a_watch_ends_when_the_server_stops() -> None:
    gateway = FakeGateway(version_info("m"))
    watcher = Watcher(Health(gateway))
    assert await watcher.next() == SERVING

    gateway.is_stopping = gateway.is_ending = True

    assert await watcher.next() == NOT_SERVING
    with pytest.raises(StopAsyncIteration):
        await watcher.next()


@scenario(asyncio.run)
async def test_a_watch_goes_on_while_sequences_do() -> None:
    gateway = FakeGateway(version_info("m"))
    watcher = Watcher(Health(gateway))
    assert await watcher.next() == SERVING

    gateway.is_stopping = True

    assert await watcher.next() == NOT_SERVING
    ending = asyncio.ensure_future(watcher.next())
    await asyncio.sleep(0)
    assert not ending.done()
    gateway.is_ending = True
    with pytest.raises(StopAsyncIteration):
        await ending


@scenario(asyncio.run)
async def test_one_watcher_that_leaves_takes_nothing_from_the_others() -> None:
    gateway = FakeGateway(version_info("m"))
    health = Health(gateway)
    leaving, staying = Watcher(health), Watcher(health)
    assert [await leaving.next(), await staying.next()] == [SERVING, SERVING]
    waiting = asyncio.ensure_future(staying.next())

    await leaving.leave()
    gateway.catalogue.update(version_info("m", ready_instances=0))

    assert await waiting == NOT_SERVING


@scenario(asyncio.run)
async def test_a_watcher_that_came_during_a_short_change_is_not_left_with_it() -> None:
    gateway = FakeGateway(version_info("m"))
    health = Health(gateway)
    first, second = Watcher(health), Watcher(health)
    assert await first.next() == SERVING
    waiting = asyncio.ensure_future(first.next())
    await asyncio.sleep(0)

    # Unready and ready again between two looks, and the second watcher came in between.
    gateway.catalogue.update(version_info("m", ready_instances=0))
    assert await second.next() == NOT_SERVING
    next_of_second = asyncio.ensure_future(second.next())
    await asyncio.sleep(0)
    gateway.catalogue.update(version_info("m"))

    assert await next_of_second == SERVING
    waiting.cancel()


def test_without_watchers_nobody_looks() -> None:
    async def scenario() -> None:
        gateway = FakeGateway(version_info("m"))
        looks = 0

        def is_ready() -> bool:
            nonlocal looks
            looks += 1
            return True

        gateway.catalogue.is_ready = is_ready  # type: ignore[method-assign]
        watcher = Watcher(Health(gateway))
        await watcher.next()
        await watcher.leave()
        await asyncio.sleep(0.005)
        after_leaving = looks

        await asyncio.sleep(0.005)

        assert looks == after_leaving

    asyncio.run(scenario())
