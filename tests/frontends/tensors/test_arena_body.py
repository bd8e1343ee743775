from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from zmqtriton_frontends.grpc_api.inference.raw_tensors import tensors_at
from zmqtriton_frontends.grpc_api.transport.message_framing import Assembly, Unfinished, prefix
from zmqtriton_frontends.process.ledger import Book, Share
from zmqtriton_frontends.tensors import arena_body
from zmqtriton_frontends.tensors.arena_body import (
    AnnouncedBytesBudget,
    ArenaBody,
    ArenaBuffer,
)
from zmqtriton_protos import message

SIZE = 300_000


class Arena:
    """Counts what is lent."""

    def __init__(self, *, is_there: bool = True, has_any: bool = True) -> None:
        self.is_there = is_there
        self.has_any = has_any
        self.lent: dict[int, bytearray] = {}
        self.grown = asyncio.Event()
        self.reservations: list[tuple[int, int]] = []

    @property
    def leases(self) -> Any:
        return self

    def end(self, blocks: list[int]) -> None:
        for block in blocks:
            del self.lent[block]

    def _lend(self, size: int) -> ArenaBuffer:
        block = len(self.reservations)
        self.lent[block] = bytearray(size)
        arena: Any = self
        return ArenaBuffer(memoryview(self.lent[block]), arena, block)

    def reserve_now(self, size: int, tensors_at: int) -> ArenaBuffer | None:
        self.reservations.append((size, tensors_at))
        return self._lend(size) if self.is_there else None

    async def reserve(self, size: int, tensors_at: int) -> ArenaBuffer | None:
        await self.grown.wait()
        return self._lend(size) if self.has_any else None


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


async def turns() -> None:
    """Lets what is ready run, and what follows from it, however long the machine takes for that."""
    for _ in range(20):
        await asyncio.sleep(0)


def feed(body: ArenaBody, data: bytes, size: int = 50_000) -> None:
    """The rest of the data, as a connection brings it."""
    rest = memoryview(data)
    while rest:
        room = body.room()
        part = rest[: min(size, len(room) or size)]
        if room:
            room[: len(part)] = part
            body.filled(len(part))
        else:
            body.add(part)
        rest = rest[len(part) :]


DATA = random.Random(1).randbytes(SIZE)


def test_a_message_ends_up_in_the_arena() -> None:
    async def scenario() -> None:
        arena = Arena()
        body = ArenaBody(arena, SIZE, AnnouncedBytesBudget(), tensors_at)

        feed(body, DATA)
        whole = body.whole()

        assert DATA == bytes(whole.data)
        assert 1 == len(arena.lent)
        whole.free()
        assert {} == arena.lent

    run(scenario)


def test_room_that_has_to_be_made_is_used_when_it_is_there() -> None:
    async def scenario() -> None:
        arena = Arena(is_there=False)
        body = ArenaBody(arena, SIZE, AnnouncedBytesBudget(), tensors_at)
        feed(body, DATA[:100_000])
        assert not body.room()

        arena.grown.set()
        await turns()

        assert SIZE - 100_000 == len(body.room())
        feed(body, DATA[100_000:])
        whole = body.whole()
        assert DATA == bytes(whole.data)
        whole.free()
        assert {} == arena.lent

    run(scenario)


@pytest.mark.parametrize("has_any", [False, True])
def test_a_message_that_is_whole_before_there_is_room_needs_none(has_any: bool) -> None:
    async def scenario() -> None:
        arena = Arena(is_there=False, has_any=has_any)
        body = ArenaBody(arena, SIZE, AnnouncedBytesBudget(), tensors_at)
        feed(body, DATA)

        whole = body.whole()
        arena.grown.set()
        await turns()

        assert DATA == bytes(whole.data)
        assert {} == arena.lent

    run(scenario)


def test_what_is_announced_is_believed_when_part_of_it_has_come() -> None:
    async def scenario() -> None:
        arena, size = Arena(), 64 << 20
        body = ArenaBody(arena, size, AnnouncedBytesBudget(size - 1), tensors_at)
        feed(body, bytes((size >> 4) - 1))
        assert [] == arena.reservations

        feed(body, b"1")

        assert [size] == [reserved for reserved, _ in arena.reservations]
        body.drop()
        assert {} == arena.lent

    run(scenario)


def test_few_are_believed_whatever_they_announce_and_for_as_long_as_they_send() -> None:
    async def scenario() -> None:
        arena, size, belief = Arena(), 2 << 20, AnnouncedBytesBudget(5 << 20)
        bodies = [ArenaBody(arena, size, belief, tensors_at) for _ in range(3)]
        for body in bodies:
            feed(body, bytes(5000))
        assert 2 == len(arena.reservations)

        bodies[0].drop()
        feed(bodies[1], bytes(size - 5000))
        bodies[1].whole().free()
        feed(bodies[2], bytes(1))

        assert 3 == len(arena.reservations)
        bodies[2].drop()
        assert {} == arena.lent
        assert 5 << 20 == belief.reserve(5 << 20)

    run(scenario)


def test_who_sends_too_slowly_gives_the_room_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena_body, "PATIENCE_S", 0.01)

    async def scenario() -> None:
        arena = Arena()
        body = ArenaBody(arena, SIZE, AnnouncedBytesBudget(), tensors_at)
        feed(body, DATA[:100_000])
        assert 1 == len(arena.lent)

        while arena.lent:
            await asyncio.sleep(0.01)

        feed(body, DATA[100_000:])
        assert DATA == bytes(body.whole().data)
        assert 1 == len(arena.reservations)

    run(scenario)


@pytest.mark.parametrize("is_there", [False, True])
def test_what_never_ends_leaves_nothing(is_there: bool) -> None:
    async def scenario() -> None:
        arena = Arena(is_there=is_there)
        body = ArenaBody(arena, SIZE, AnnouncedBytesBudget(), tensors_at)
        feed(body, DATA[:100_000])

        body.drop()
        arena.grown.set()
        await turns()

        assert {} == arena.lent

    run(scenario)


def test_only_large_and_plain_messages_of_a_stream_go_there() -> None:
    async def scenario() -> None:
        arena = Arena()
        assembly = Assembly(
            Unfinished(Share(Book(2 << 30))),
            lambda size: ArenaBody(arena, size, AnnouncedBytesBudget(), tensors_at),
            1000,
        )
        sent = [(False, 1000), (True, 5000), (False, 0)]
        for is_compressed, size in sent:
            whole = prefix(is_compressed, size) + DATA[:size]
            assert [(is_compressed, DATA[:size])] == assembly.feed(memoryview(whole))
        assert [] == arena.reservations

        messages = assembly.feed(memoryview(prefix(False, 10_001) + DATA[:5000]))
        assert 5001 == len(assembly.room())
        assembly.room()[:] = DATA[5000:10_001]
        messages += assembly.filled(5001)

        ((_, gathered),) = messages
        assert DATA[:10_001] == bytes(gathered.data)
        assert not assembly.room()

    run(scenario)


def test_the_tensors_are_found_by_the_beginning_of_a_message() -> None:
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1000]}
    built = message("inference.ModelInferRequest")(
        model_name="m", id="i", inputs=[tensor], raw_input_contents=[b"\x07" * 4000]
    )
    data = built.SerializeToString()

    at = tensors_at(data[:200])

    assert len(data) - 4000 == at
    assert 0 == tensors_at(data[: at - 4])
    assert 0 == tensors_at(b"\xff" * 100)
    assert 0 == tensors_at(b"")
