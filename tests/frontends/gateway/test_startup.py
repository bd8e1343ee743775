"""The start of a process that serves clients, with the test in the supervisor's place."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from zmqtriton_frontends.gateway.startup import address, may_open


class Gateway:
    """Starts when the test says so."""

    def __init__(self) -> None:
        self.on_open: Callable[[], None] = lambda: None
        self.may_start = asyncio.Event()

    async def start(self) -> None:
        await self.may_start.wait()


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_clients_may_come_when_the_gateway_works_and_the_server_opens() -> None:
    async def scenario() -> None:
        gateway: Any = Gateway()
        stopped: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        waiting = asyncio.ensure_future(may_open(gateway, stopped))
        await turn()

        gateway.on_open()
        await turn()
        assert not waiting.done()
        gateway.may_start.set()

        assert await waiting

    asyncio.run(scenario())


def test_a_process_that_is_stopped_before_that_lets_nobody_in() -> None:
    async def scenario() -> None:
        gateway: Any = Gateway()
        gateway.may_start.set()
        stopped: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        waiting = asyncio.ensure_future(may_open(gateway, stopped))
        await turn()

        stopped.set_result(0)

        assert not await waiting
        await turn()
        assert {asyncio.current_task()} == asyncio.all_tasks()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("host", "shown"), [("0.0.0.0", "0.0.0.0:8001"), ("::", "[::]:8001"), ("a.b", "a.b:8001")]
)
def test_an_address_is_written_as_clients_write_it(host: str, shown: str) -> None:
    assert shown == address(host, 8001)
