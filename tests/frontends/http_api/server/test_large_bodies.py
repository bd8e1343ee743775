"""Large bodies that go straight to the arena, and clients that spoil it."""

from __future__ import annotations

import asyncio
import gzip
import json
import weakref
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.frontends.fake_gateway import LendingArena
from tests.frontends.http_api.in_process_server import HttpHarness, run_scenario
from tests.frontends.http_api.server.test_inferences import INFER, chunked, read
from tests.support.garbage import freed_at_once
from tests.support.raw_http import connect_narrow, raw_request, read_some
from tests.support.scenarios import scenario
from tests.support.streams import item
from tests.support.waiting import value_at_rest
from zmqtriton_floor.wire import ResponseBody, Tensor
from zmqtriton_frontends.http_api.server.connection import HttpConnection
from zmqtriton_frontends.http_api.server.inference_exchange import InferenceExchange
from zmqtriton_frontends.process.client_progress import STALL_S
from zmqtriton_frontends.tensors import arena_body
from zmqtriton_frontends.tensors.arena_body import ArenaBuffer

pytestmark = pytest.mark.slow

SIZE = 600_000
COUNT = SIZE // 4
TENSOR = {"name": "INPUT0", "shape": [COUNT], "datatype": "FP32"}
HEADER = json.dumps(
    {
        "inputs": [{**TENSOR, "parameters": {"binary_data_size": SIZE}}],
        "outputs": [{"name": "OUTPUT0", "parameters": {"classification": 1}}],
    }
).encode()
VALUES = np.arange(COUNT, dtype=np.float32).tobytes()
LARGE = raw_request(
    "POST", INFER, HEADER + VALUES, Inference_Header_Content_Length=str(len(HEADER))
)
BODY_AT = LARGE.index(HEADER)


def _of_size(size: int) -> bytes:
    """A request with a tensor of so many bytes."""
    tensor = {**TENSOR, "shape": [size // 4], "parameters": {"binary_data_size": size}}
    header = json.dumps({**json.loads(HEADER), "inputs": [tensor]}).encode()
    length = str(len(header))
    return raw_request("POST", INFER, header + bytes(size), Inference_Header_Content_Length=length)


LARGE_14 = _of_size(14 << 20)
#: The same in chunks.
ODD = chunked(HEADER, VALUES, Inference_Header_Content_Length=str(len(HEADER)))
BEST = f'"{COUNT - 1:.6f}:{COUNT - 1}"'.encode()


class Arena(LendingArena):
    """An arena that counts what is given and what came back."""

    def __init__(self, house: HttpHarness, *, has_room: bool = True) -> None:
        super().__init__()
        self.has_room = has_room
        self.reserved: list[tuple[int, int]] = []
        self.gathered: list[int] = []
        self.memory: list[weakref.ref[Any]] = []
        gateway: Any = house.gateway
        gateway.payload = self

    def reserve_now(self, size: int, tensors_at: int) -> ArenaBuffer | None:
        if not self.has_room:
            return None
        arena: Any = self
        self.reserved.append((size, tensors_at))
        memory: Any = np.empty(size, np.uint8)
        self.memory.append(weakref.ref(memory))
        return ArenaBuffer(memoryview(memory), arena)

    async def reserve(self, size: int, tensors_at: int) -> None:
        """There is never more than there is now."""

    async def gather(
        self, pieces: list[bytes], size: int, tensors_at: int, hold: Callable[[int], None]
    ) -> ArenaBuffer:
        arena: Any = self
        self.gathered.append(size)
        hold(size)
        hold(-2 * size)
        return ArenaBuffer(b"".join(pieces), arena)


def in_arena(
    scenario: Callable[[HttpHarness, Arena], Awaitable[None]],
    *,
    has_room: bool = True,
    **settings: Any,
) -> None:
    async def with_arena(house: HttpHarness) -> None:
        await scenario(house, Arena(house, has_room=has_room))

    run_scenario(with_arena, **settings)


@pytest.mark.parametrize("cuts", [(), (BODY_AT,), (BODY_AT + 7,), (BODY_AT, 300_000, SIZE)])
@pytest.mark.row("C34")
@scenario(in_arena)
async def test_a_large_body_is_read_into_the_arena_however_it_comes(
    house: HttpHarness, arena: Arena, /, cuts: tuple[int, ...]
) -> None:
    reader, writer = await house.connections.connect()
    for _ in range(3):
        for start, end in zip((0, *cuts), (*cuts, len(LARGE)), strict=True):
            writer.write(LARGE[start:end])
            await house.connections.run_loop()
        assert BEST in await read(reader)

    assert [(len(HEADER) + SIZE, len(HEADER))] * 3 == arena.reserved
    assert (0, 3) == (house.falcon_requests, len(arena.freed))
    assert house.connections.are_idle
    house.gateway.requests.clear()
    assert [None] * 3 == [memory() for memory in arena.memory]


@pytest.mark.parametrize("coding", ["gzip", ""])
@scenario(in_arena)
async def test_tensors_that_come_packed_or_in_chunks_are_gathered_in_the_arena(
    house: HttpHarness, arena: Arena, /, coding: str
) -> None:
    reader, writer = await house.connections.connect(LARGE)
    plain = await read(reader)
    body, headers = HEADER + VALUES, {"Inference_Header_Content_Length": str(len(HEADER))}
    if coding:
        headers["Content_Encoding"] = coding
        body = gzip.compress(body, 1)
    parts = [body[at : at + 100_000] for at in range(0, len(body), 100_000)]

    writer.write(chunked(*parts, **headers))

    assert plain == await read(reader)
    assert ([SIZE + len(HEADER)], 2) == (arena.gathered, len(arena.freed))
    assert (0, 0) == (house.falcon_requests, house.connections.ledger.budget.held)


@scenario(in_arena)
async def test_requests_of_all_sizes_are_answered_in_their_order(
    house: HttpHarness, arena: Arena, /
) -> None:
    small = json.dumps({"inputs": [{**TENSOR, "shape": [1], "data": [7]}]}).encode()

    heads = [LARGE, raw_request("POST", INFER, small), ODD, LARGE, LARGE]
    reader, writer = await house.connections.connect()
    writer.write(b"".join(heads))

    got = [await read(reader) for _ in heads]
    assert [True, False, True, True, True] == [BEST in answer for answer in got]


@scenario(in_arena)
async def test_more_than_a_megabyte_is_believed_of_some_clients_at_a_time(
    house: HttpHarness, arena: Arena, /
) -> None:
    slow = [await house.connections.connect(LARGE_14[: BODY_AT + 5000]) for _ in range(9)]
    assert (8, 0) == (len(arena.reserved), house.falcon_requests)
    reader, writer = await house.connections.connect(LARGE_14)
    assert b"HTTP/1.1 200 " in await read(reader)
    # It has sent a part of what it announces by the time it is asked.
    assert (9, 0) == (len(arena.reserved), house.falcon_requests)

    slow[0][1].close()
    slow[1][1].write(LARGE_14[BODY_AT + 5000 :])
    assert b"HTTP/1.1 200 " in await read(slow[1][0])
    for _ in range(2):
        writer.write(LARGE_14)
        assert b"HTTP/1.1 200 " in await read(reader)

    assert (11, 0) == (len(arena.reserved), house.falcon_requests)


@scenario(in_arena, has_room=False)
async def test_without_room_it_is_read_as_any_other(house: HttpHarness, arena: Arena, /) -> None:
    reader, _ = await house.connections.connect(LARGE)

    assert BEST in await read(reader)
    assert (0, 0) == (house.falcon_requests, len(arena.freed))


@scenario(in_arena)
async def test_who_sends_next_to_nothing_keeps_no_room_and_is_answered_all_the_same(
    house: HttpHarness, arena: Arena, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arena_body, "PATIENCE_S", 1.0)

    reader, writer = await house.connections.connect(LARGE[:10_000])
    assert (1, 0) == (len(arena.reserved), len(arena.freed))
    assert not house.connections.are_idle

    while not arena.freed:
        await house.connections.run_loop()
    writer.write(LARGE[10_000:])

    assert BEST in await read(reader)
    assert 1 == len(arena.freed)
    writer.write(LARGE)
    assert BEST in await read(reader)
    assert (0, 2) == (house.falcon_requests, len(arena.freed))


@scenario(in_arena)
async def test_a_body_has_its_memory_accounted_for_until_all_of_it_has_come(
    house: HttpHarness, arena: Arena, /
) -> None:
    house.gateway.gate = asyncio.Event()
    ledger = house.connections.ledger
    _, first = await house.connections.connect(LARGE_14[: 6 << 20])
    while not ledger.budget.held:
        await house.connections.run_loop()

    assert 2 << 20 <= ledger.budget.held <= 7 << 20

    first.write(LARGE_14[6 << 20 :])
    while not house.gateway.requests:
        await house.connections.run_loop()
    assert (1, 0) == (len(arena.reserved), ledger.budget.held)


@scenario(in_arena, ledger_bytes=8 << 20)
async def test_bodies_in_the_arena_that_do_not_fit_beside_others_are_refused(
    house: HttpHarness, arena: Arena, /
) -> None:
    reader, writer = await house.connections.connect(LARGE_14)

    assert (await read(reader)).startswith(b"HTTP/1.1 503 ")
    assert (1, 1) == (len(arena.reserved), len(arena.freed))

    writer.write(LARGE)
    assert BEST in await read(reader)
    assert 0 == house.connections.ledger.budget.held


@pytest.mark.parametrize("size", [BODY_AT, 400_000, len(LARGE)])
@scenario(in_arena)
async def test_who_leaves_gives_its_room_back(
    house: HttpHarness, arena: Arena, /, size: int
) -> None:
    house.gateway.gate = asyncio.Event()
    _, writer = await house.connections.connect(LARGE[:size])
    assert (1, 0) == (len(arena.reserved), len(arena.freed))

    writer.close()

    while not arena.freed:
        await house.connections.run_loop()
    assert (1, 0) == (len(arena.freed), house.falcon_requests)


@scenario(in_arena)
async def test_what_is_refused_gives_its_room_back(house: HttpHarness, arena: Arena, /) -> None:
    reader, _ = await house.connections.connect(LARGE.replace(b"FP32", b"FP64", 1))

    assert (await read(reader)).startswith(b"HTTP/1.1 400 ")
    assert (1, 0) == (len(arena.freed), house.falcon_requests)


@scenario(in_arena)
async def test_who_stops_amid_a_body_is_told_and_gives_its_room_back(
    house: HttpHarness, arena: Arena, /
) -> None:
    reader, _ = await house.connections.connect(LARGE[:400_000])
    house.connections.advance(1)
    house.connections.advance(STALL_S + 1)

    assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
    assert (1, 1) == (len(arena.reserved), len(arena.freed))


@scenario(run_scenario)
async def test_little_of_a_body_is_copied(
    house: HttpHarness, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    usual = HttpConnection.data_received

    def count(self: HttpConnection, data: bytes) -> None:
        sizes.append(len(data))
        usual(self, data)

    monkeypatch.setattr(HttpConnection, "data_received", count)

    Arena(house)
    reader, writer = await house.connections.connect()
    for _ in range(6):
        writer.write(LARGE)
        assert BEST in await read(reader)
    assert sum(sizes) < 6 * 40_000


@scenario(in_arena, has_room=False, ledger_bytes=700000)
async def test_bodies_that_do_not_fit_beside_others_are_refused(
    house: HttpHarness, arena: Arena, /
) -> None:
    _, first = await house.connections.connect(LARGE[:400_000])
    reader, second = await house.connections.connect(LARGE)

    assert (await read(reader)).startswith(b"HTTP/1.1 503 ")

    first.close()
    await house.connections.run_loop()
    second.write(LARGE)
    assert BEST in await read(reader)


@pytest.mark.parametrize("is_chunked", [False, True])
@scenario(in_arena)
async def test_who_leaves_without_reading_leaves_nothing_behind(
    house: HttpHarness, arena: Arena, /, is_chunked: bool
) -> None:
    def respond(request: Any) -> ResponseBody:
        datatype = request.body.inputs[0].datatype
        return ResponseBody({}, [Tensor("OUTPUT0", datatype, [8 << 20], bytes(32 << 20))])

    house.gateway.respond = respond
    binary = HEADER.replace(b'"classification": 1', b'"binary_data": true')
    make = chunked if is_chunked else partial(raw_request, "POST", INFER)
    data = make(binary + VALUES, Inference_Header_Content_Length=str(len(binary)))
    with freed_at_once(HttpConnection):
        reader, writer = await house.connections.connect(data)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
        writer.transport.abort()
        await house.connections.run_loop()


@pytest.mark.parametrize("is_chunked", [False, True])
@scenario(in_arena, has_room=False)
async def test_who_leaves_amid_a_body_leaves_nothing_behind(
    house: HttpHarness, arena: Arena, /, is_chunked: bool
) -> None:
    data = ODD if is_chunked else LARGE
    with freed_at_once(HttpConnection, InferenceExchange):
        _, writer = await house.connections.connect(data[:400_000])
        writer.transport.abort()
        await house.connections.run_loop()


# ------------------------------------------------------------------- slow readers


ASK = raw_request("POST", "/v2/models/decoupled/generate_stream", b'{"INPUT0": 1, "id": "slow"}')
EVENT_BYTES = 4096
#: Far less than what the kernel would keep, and is rid of before it takes more.
STEP_BYTES = 256 << 10


@pytest.mark.addons
@scenario(run_scenario)
async def test_a_little_that_is_read_of_a_flood_lets_the_model_go_on(
    harness: HttpHarness, /
) -> None:
    streams = harness.gateway.fake_streams
    streams.put("slow", *(item(b"x" * EVENT_BYTES) for _ in range(4000)))

    def consumed() -> int:
        return streams.consumed.get("slow", 0)

    with connect_narrow(harness.connections.address[1]) as client:
        client.sendall(ASK)
        for _ in range(3):
            before = await asyncio.to_thread(value_at_rest, consumed)
            await asyncio.to_thread(read_some, client, STEP_BYTES)
            after = await asyncio.to_thread(value_at_rest, consumed)

            assert before < after < before + 2 * STEP_BYTES // EVENT_BYTES
