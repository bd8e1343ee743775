"""A listener: bursts of connections, and a socket that another process has shut down."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
import uvloop

from tests.support.waiting import until
from zmqtriton_frontends.serving.listener import Listener


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
