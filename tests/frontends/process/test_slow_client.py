"""The pace of a slow client, as the kernel is told to keep it."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import uvloop

from tests.support.scenarios import scenario
from zmqtriton_frontends.process.slow_client import UNSENT_BYTES, limit_unsent_bytes


@scenario(uvloop.run)
async def test_a_connection_that_is_closed_already_has_no_pace() -> None:
    """Between encrypted ones and their protocols the end of a connection takes a turn."""
    accepted: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    class Accepting(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            accepted.set_result(transport)

    server = await asyncio.get_running_loop().create_server(Accepting, "127.0.0.1", 0)
    with socket.create_connection(server.sockets[0].getsockname()):
        connection = (transport := await accepted).get_extra_info("socket")
        limit_unsent_bytes(connection)
        kept = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT)
        transport.abort()
        await asyncio.sleep(0.01)

        limit_unsent_bytes(transport.get_extra_info("socket"))
        limit_unsent_bytes(None)
    server.close()
    assert UNSENT_BYTES == kept
