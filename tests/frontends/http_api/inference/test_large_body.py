"""Large bodies that go straight to their place, over real sockets, and clients that spoil it."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import uvloop

from tests.frontends.http_api.connection_harness import ConnectionHarness
from zmqtriton_frontends.http_api.asgi.request import MAX_BODY_BYTES, Request
from zmqtriton_frontends.http_api.inference import large_body
from zmqtriton_frontends.http_api.server.connections import STALL_S, Connection
from zmqtriton_frontends.tensors.arena_body import ArenaBuffer

HEAD = (
    b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n"
    b"Inference-Header-Content-Length: 2\r\n\r\n"
)
SIZE = 600_000
BODY = b"{}" + bytes(range(251)) * (SIZE // 251)
BODY += b"x" * (SIZE - len(BODY))

Scenario = Callable[["Eater"], Awaitable[None]]


class Eater(ConnectionHarness):
    """Takes bodies in as the responder for inferences does."""

    def __init__(self) -> None:
        super().__init__()
        #: Sizes of what was reserved, and how often something was freed.
        self.reserved: list[int] = []
        self.freed = 0
        self.memory: list[weakref.ref[Any]] = []
        self.has_room = True
        #: Of each body whether it came straight.
        self.straight: list[bool] = []
        self.gateway: Any = SimpleNamespace(payload=self)

    async def reserve(self, size: int, tensors_at: int) -> ArenaBuffer | None:
        if not self.has_room:
            return None
        assert 2 == tensors_at
        self.reserved.append(size)
        arena: Any = SimpleNamespace(leases=SimpleNamespace(end=self._free))
        memory: Any = np.empty(size, np.uint8)
        self.memory.append(weakref.ref(memory))
        return ArenaBuffer(memoryview(memory), arena)

    def _free(self, blocks: list[int]) -> None:
        self.freed += 1

    async def application(self, scope: Any, receive: Any, send: Any) -> None:
        req = Request(scope, receive, first_event=await receive())
        read = req.begin_body()
        room = (
            await large_body.receive_into_arena(req, self.gateway, read) if read.has_more else None
        )
        self.straight.append(room is not None)
        if room is None:
            pieces, _ = await req.read_pieces(MAX_BODY_BYTES, read)
            self.bodies.append(b"".join(pieces))
        else:
            with room as data:
                self.bodies.append(bytes(data))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await asyncio.sleep(0.001)


async def _answer(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"0\r\n\r\n")
    return head[:12]


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def play(request: pytest.FixtureRequest) -> Callable[[Scenario], None]:
    async def all_of_it(scenario: Scenario) -> None:
        eater = Eater()
        async with eater.serve():
            await asyncio.wait_for(scenario(eater), 20)

    def run(scenario: Scenario) -> None:
        request.param(all_of_it(scenario))

    return run


Play = Callable[[Scenario], None]


@pytest.mark.parametrize("step", [SIZE, 100_000, 7_777])
@pytest.mark.row("C34")
def test_a_large_body_goes_straight_to_its_place(play: Play, step: int) -> None:
    async def scenario(eater: Eater) -> None:
        reader, writer = await eater.connect(HEAD % SIZE)
        for position in range(0, SIZE, step):
            writer.write(BODY[position : position + step])
            await asyncio.sleep(0.001)

        assert await _answer(reader) == b"HTTP/1.1 200"
        assert ([BODY], [True]) == (eater.bodies, eater.straight)
        assert ([SIZE], 1) == (eater.reserved, eater.freed)
        # Nothing that outlives the request looks at the memory, or it would stay mapped.
        await eater.until(lambda: eater.memory[0]() is None)
        writer.close()

    play(scenario)


def test_what_follows_a_body_is_the_next_request(play: Play) -> None:
    async def scenario(eater: Eater) -> None:
        requests = [HEAD % SIZE + BODY, HEAD % 3 + b"{}x", HEAD % SIZE + BODY[::-1]]

        reader, writer = await eater.connect(b"".join(requests))

        for _ in requests:
            assert await _answer(reader) == b"HTTP/1.1 200"
        assert [BODY, b"{}x", BODY[::-1]] == eater.bodies
        assert len(eater.reserved) == eater.freed
        writer.close()

    play(scenario)


def test_a_connection_that_had_one_reads_little_of_the_next(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    usual = Connection.data_received

    def count(self: Connection, data: bytes) -> None:
        sizes.append(len(data))
        usual(self, data)

    monkeypatch.setattr(Connection, "data_received", count)

    async def scenario(eater: Eater) -> None:
        reader, writer = await eater.connect(HEAD % SIZE + BODY)
        assert await _answer(reader) == b"HTTP/1.1 200"
        sizes.clear()

        for _ in range(3):
            writer.write(HEAD % SIZE + BODY)
            assert await _answer(reader) == b"HTTP/1.1 200"

        for _ in range(3):  # headers alone, as some clients send them
            writer.write(HEAD % SIZE)
            await eater.run_loop()
            writer.write(BODY)
            assert await _answer(reader) == b"HTTP/1.1 200"

        assert [BODY] * 7 == eater.bodies
        assert sum(sizes) < 6 * 20_000
        # What is not large is read as ever, in as large pieces as it comes in.
        writer.write(HEAD.replace(b"Length: 2", b"Length: 600000") % SIZE + BODY)
        assert await _answer(reader) == b"HTTP/1.1 200"
        assert BODY == eater.bodies[-1]
        writer.close()

    play(scenario)


def test_an_announcement_alone_reserves_little(play: Play) -> None:
    async def scenario(eater: Eater) -> None:
        size = 16 << 20
        reader, writer = await eater.connect(HEAD % size + b"{}")
        writer.write(bytes((1 << 20) - 100))
        await eater.run_loop()
        assert [] == eater.reserved

        writer.write(bytes(100 + (15 << 20) - 2))

        assert await _answer(reader) == b"HTTP/1.1 200"
        assert [size] == eater.reserved
        assert [b"{}" + bytes(size - 2)] == eater.bodies
        writer.close()

    play(scenario)


def test_a_slow_body_keeps_no_room(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_body, "PATIENCE_S", 0.1)

    async def scenario(eater: Eater) -> None:
        reader, writer = await eater.connect(HEAD % SIZE + BODY[:400_000])
        await eater.until(lambda: eater.freed == 1)
        assert [] == eater.bodies

        writer.write(BODY[400_000:])

        assert await _answer(reader) == b"HTTP/1.1 200"
        assert ([BODY], [False]) == (eater.bodies, eater.straight)
        # And the connection is as good as before.
        writer.write(HEAD % SIZE + BODY)
        assert await _answer(reader) == b"HTTP/1.1 200"
        assert [BODY, BODY] == eater.bodies
        writer.close()

    play(scenario)


def test_a_client_that_leaves_amid_its_body_leaves_nothing(play: Play) -> None:
    async def scenario(eater: Eater) -> None:
        _, writer = await eater.connect(HEAD % SIZE + BODY[:400_000])
        await eater.until(lambda: eater.reserved == [SIZE])

        writer.transport.abort()

        await eater.until(lambda: eater.freed == 1)
        assert [] == eater.bodies
        assert eater.connections.are_idle

    play(scenario)


def test_a_body_that_stalls_ends_the_connection(play: Play) -> None:
    async def scenario(eater: Eater) -> None:
        reader, writer = await eater.connect(HEAD % SIZE + BODY[:400_000])
        await eater.until(lambda: eater.reserved == [SIZE])
        eater.advance(1)
        eater.advance(STALL_S + 1)

        assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
        await eater.until(lambda: eater.freed == 1)
        writer.close()

    play(scenario)


def test_without_room_it_is_read_as_any_other(play: Play) -> None:
    async def scenario(eater: Eater) -> None:
        eater.has_room = False
        reader, writer = await eater.connect(HEAD % SIZE + BODY)

        assert await _answer(reader) == b"HTTP/1.1 200"
        assert ([BODY], [False]) == (eater.bodies, eater.straight)
        writer.close()

    play(scenario)


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 600000\r\n",
        b"Content-Length: 600000\r\nInference-Header-Content-Length: 599000\r\n",
        b"Content-Length: 600000\r\nInference-Header-Content-Length: -1\r\n",
        b"Content-Length: 600000\r\nInference-Header-Content-Length: 2\r\n"
        b"Content-Encoding: gzip\r\n",
    ],
)
def test_a_body_without_large_tensors_is_read_as_any_other(play: Play, headers: bytes) -> None:
    async def scenario(eater: Eater) -> None:
        head = b"POST / HTTP/1.1\r\nHost: x\r\n" + headers + b"\r\n"
        reader, writer = await eater.connect(head + BODY)

        assert await _answer(reader) == b"HTTP/1.1 200"
        assert ([BODY], []) == (eater.bodies, eater.reserved)
        writer.close()

    play(scenario)


def test_a_chunked_body_is_read_as_any_other(play: Play) -> None:
    async def scenario(eater: Eater) -> None:
        head = HEAD.replace(b"Content-Length: %d", b"Transfer-Encoding: chunked", 1)
        reader, writer = await eater.connect(head + b"%x\r\n" % SIZE + BODY + b"\r\n0\r\n\r\n")

        assert await _answer(reader) == b"HTTP/1.1 200"
        assert ([BODY], []) == (eater.bodies, eater.reserved)
        writer.close()

    play(scenario)
