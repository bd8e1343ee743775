"""Large outputs are passed on as they lie, and copied for a client that takes its time."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import numpy as np

from tests.frontends.http_api.connection_harness import ConnectionHarness
from tests.frontends.http_api.server.test_connections import POST
from tests.support.scenarios import scenario
from zmqtriton_frontends.http_api.inference.large_answer import (
    MAX_COPIED_BYTES,
    PATIENCE_S,
    Copies,
    pieces,
)

SIZE = 10_000_000


def _output(byte: int) -> Any:
    return np.full(SIZE, byte, np.uint8)


def test_all_of_it_comes_in_order_and_nothing_is_copied() -> None:
    first, second = _output(1), _output(2)

    async def read() -> list[Any]:
        tail: list[Any] = [memoryview(first), memoryview(second)]
        return [piece async for piece in pieces(b"head", tail, lambda: 0.0)]

    read_pieces = asyncio.run(read())

    whole = b"head" + first.tobytes() + second.tobytes()
    assert whole == b"".join(b"".join(piece) for piece in read_pieces)
    assert {id(first), id(second)} == {id(piece.view.obj) for piece in read_pieces}


@scenario(asyncio.run)
async def test_a_client_that_is_slow_keeps_no_memory_of_a_model() -> None:
    now = [0.0]
    outputs = [_output(1), _output(2)]
    alive = [weakref.ref(output) for output in outputs]
    tail: list[Any] = [memoryview(output) for output in outputs]
    del outputs
    body = pieces(b"", tail, lambda: now[0])
    got = [b"".join(await anext(body))]
    now[0] = PATIENCE_S + 1

    got.append(b"".join(await anext(body)))

    gc.collect()
    assert [None, None] == [output() for output in alive]
    got += [b"".join(piece) async for piece in body]
    assert _output(1).tobytes() + _output(2).tobytes() == b"".join(got)


@scenario(asyncio.run)
async def test_copies_are_bounded_and_given_back() -> None:
    now = [0.0]
    copies = Copies()
    before = copies.take(MAX_COPIED_BYTES - SIZE)
    first, second = (
        pieces(b"", [memoryview(_output(n)), memoryview(_output(n))], lambda: now[0], copies)
        for n in (1, 2)
    )
    await anext(first)
    now[0] = PATIENCE_S + 1

    got = await anext(first)
    assert isinstance(got.view.obj, np.ndarray)  # no room for a copy of what is left

    copies.give_back(before)
    assert isinstance((await anext(first)).view.obj, bytes)
    await first.aclose()
    assert MAX_COPIED_BYTES == copies.take(MAX_COPIED_BYTES)
    await second.aclose()


@scenario(asyncio.run)
async def test_an_application_sends_pieces_as_they_are() -> None:
    output = _output(7)

    class Sender(ConnectionHarness):
        async def application(self, scope: Any, receive: Any, send: Any) -> None:
            headers = [(b"content-length", str(SIZE + 4).encode())]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            async for piece in pieces(b"head", [memoryview(output)], lambda: 0.0):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body"})

    async with Sender().serve() as party:
        reader, writer = await party.connect(POST % 0)
        await reader.readuntil(b"\r\n\r\n")
        assert b"head" + output.tobytes() == await reader.readexactly(SIZE + 4)
        writer.close()
