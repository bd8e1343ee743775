"""Bodies in the arena, and references to them."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from tests.support.scenarios import scenario
from tests.support.shares import share_of
from tests.support.waiting import loop_turns
from zmqtriton_floor import wire
from zmqtriton_floor.errors import ProtocolError, Unavailable
from zmqtriton_floor.wire import Reference, ResponseBody, Tensor
from zmqtriton_frontends.grpc_api.inference.gradual_parsing import tensors_at
from zmqtriton_frontends.grpc_api.transport.message_framing import Assembly, Unfinished, prefix
from zmqtriton_frontends.process.ledger import Book
from zmqtriton_frontends.tensors import arena_body
from zmqtriton_frontends.tensors.arena_body import (
    MIN_BYTES,
    STEP_BYTES,
    ArenaBody,
    ArenaBuffer,
    ByteBudget,
)
from zmqtriton_frontends.tensors.references import read_response
from zmqtriton_protos import message

# -------------------------------------------------------------------------- arena body


SIZE = 300_000


class Arena:
    """Counts what is lent."""

    def __init__(self, *, is_there: bool = True, has_any: bool = True) -> None:
        self.is_there = is_there
        self.has_any = has_any
        #: How much memory a block may have, and how much the newest has.
        self.limit, self.made = 1 << 40, 0
        self.abandoned = 0
        self.lent: dict[int, bytearray] = {}
        self.grown = asyncio.Event()
        self.reservations: list[tuple[int, int]] = []

    @property
    def leases(self) -> Any:
        return self

    def end(self, blocks: list[int]) -> None:
        for block in blocks:
            del self.lent[block]

    def make(self, block: int, end: int) -> None:
        if end > self.limit:
            raise Unavailable("memory is short")
        self.made = end

    def abandon(self, room: ArenaBuffer) -> None:
        self.abandoned += 1
        room.free()

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


@scenario(asyncio.run)
async def test_room_that_has_to_be_made_is_used_when_it_is_there() -> None:
    arena = Arena(is_there=False)
    body = ArenaBody(arena, SIZE, ByteBudget(), tensors_at)
    feed(body, DATA[:100_000])
    assert not body.room()

    arena.grown.set()
    await loop_turns()

    assert SIZE - 100_000 == len(body.room())
    feed(body, DATA[100_000:])
    whole = body.whole()
    assert DATA == bytes(whole.data)
    whole.free()
    assert {} == arena.lent


@scenario(asyncio.run)
async def test_what_is_announced_is_believed_when_part_of_a_step_has_come() -> None:
    arena, size = Arena(), 64 << 20
    body = ArenaBody(arena, size, ByteBudget(0), tensors_at)
    feed(body, bytes(STEP_BYTES // 16 - 1))
    assert [] == arena.reservations

    feed(body, b"1")

    assert [size] == [reserved for reserved, _ in arena.reservations]
    body.drop()
    assert {} == arena.lent


@pytest.mark.parametrize("budget", [0, STEP_BYTES])
@scenario(asyncio.run)
async def test_memory_is_made_a_step_ahead_of_what_has_come_and_accounted_for_before(
    budget: int,
) -> None:
    arena, size = Arena(), 30 << 20
    body = ArenaBody(arena, size, ByteBudget(budget), tensors_at)
    come = 0

    while come < size - 300_000:
        accounted = max(body.held_bytes + budget, STEP_BYTES)
        feed(body, DATA[:50_000])
        come += 50_000

        assert arena.made <= max(accounted, come)
        assert come <= body.held_bytes + budget <= come + STEP_BYTES + (256 << 10)

    assert arena.made <= size
    body.drop()
    assert 1 == arena.abandoned


@scenario(asyncio.run)
async def test_a_machine_without_memory_ends_the_message_and_not_the_process() -> None:
    arena, size = Arena(), 64 << 20
    arena.limit = 2 * STEP_BYTES
    body = ArenaBody(arena, size, ByteBudget(), tensors_at)

    with pytest.raises(MemoryError):
        feed(body, bytes(3 * STEP_BYTES))

    assert not body.room()
    body.drop()
    assert {} == arena.lent


@pytest.mark.parametrize("is_last", [False, True])
@scenario(asyncio.run)
async def test_much_that_came_before_there_was_room_is_moved_in_steps(is_last: bool) -> None:
    arena, data = Arena(is_there=False), random.Random(2).randbytes(3 * STEP_BYTES)
    body = ArenaBody(arena, len(data), ByteBudget(0), tensors_at)
    feed(body, data[:-1000])
    arena.grown.set()
    while not arena.made:
        await asyncio.sleep(0)
    assert not body.room()
    assert body.held_bytes <= len(data) + STEP_BYTES

    while not is_last and not body.room():
        await asyncio.sleep(0)
    feed(body, data[-1000:])

    whole = body.whole()
    assert data == bytes(whole.data)
    assert whole.is_shared
    whole.free()
    assert {} == arena.lent


@scenario(asyncio.run)
async def test_what_cannot_be_moved_for_want_of_memory_stays_where_it_is() -> None:
    arena, data = Arena(is_there=False), random.Random(3).randbytes(3 * STEP_BYTES)
    arena.limit = 2 * STEP_BYTES + 1000
    body = ArenaBody(arena, len(data), ByteBudget(0), tensors_at)
    feed(body, data[:-1000])
    arena.grown.set()
    while not arena.abandoned:
        await asyncio.sleep(0)
    feed(body, data[-1000:])

    whole = body.whole()

    assert data == bytes(whole.data)
    assert not whole.is_shared
    assert {} == arena.lent


@scenario(asyncio.run)
async def test_few_are_believed_whatever_they_announce_and_for_as_long_as_they_send() -> None:
    arena, size, belief = Arena(), 2 << 20, ByteBudget(5 << 20)
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


@scenario(asyncio.run)
async def test_who_has_sent_next_to_nothing_gives_the_room_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arena_body, "PATIENCE_S", 0.01)

    arena = Arena()
    body = ArenaBody(arena, SIZE, ByteBudget(), tensors_at)
    feed(body, DATA[:10_000])
    assert 1 == len(arena.lent)

    while arena.lent:
        await asyncio.sleep(0.01)

    assert 10_000 == body.held_bytes
    feed(body, DATA[10_000:])
    assert DATA == bytes(body.whole().data)
    assert 1 == len(arena.reservations)


@scenario(asyncio.run)
async def test_who_sends_slowly_keeps_the_room_and_is_accounted_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arena_body, "PATIENCE_S", 0.01)

    arena, budget = Arena(), ByteBudget(SIZE)
    body = ArenaBody(arena, SIZE, budget, tensors_at)
    feed(body, DATA[:100_000])
    assert 0 == body.held_bytes

    while not body.held_bytes:
        await asyncio.sleep(0.01)

    assert SIZE == body.held_bytes == budget.reserve(SIZE)
    feed(body, DATA[100_000:])
    whole = body.whole()
    assert DATA == bytes(whole.data)
    assert whole.is_shared


@pytest.mark.parametrize("is_there", [False, True])
@scenario(asyncio.run)
async def test_what_never_ends_leaves_nothing(is_there: bool) -> None:
    arena = Arena(is_there=is_there)
    body = ArenaBody(arena, SIZE, ByteBudget(), tensors_at)
    feed(body, DATA[:100_000])

    body.drop()
    arena.grown.set()
    await loop_turns()

    assert {} == arena.lent


@scenario(asyncio.run)
async def test_only_large_and_plain_messages_of_a_stream_go_there() -> None:
    arena = Arena()
    assembly = Assembly(
        Unfinished(share_of(Book(2 << 30))),
        lambda size: ArenaBody(arena, size, ByteBudget(), tensors_at),
    )
    for is_compressed, size in [(False, MIN_BYTES), (True, 70_000), (False, 0)]:
        whole = prefix(is_compressed, size) + DATA[:size]
        assert [(is_compressed, DATA[:size])] == assembly.feed(memoryview(whole))
    assert [] == arena.reservations

    messages = assembly.feed(memoryview(prefix(False, 100_001) + DATA[:50_000]))
    assert 50_001 == len(assembly.room())
    assembly.room()[:] = DATA[50_000:100_001]
    messages += assembly.filled(50_001)

    ((_, gathered),) = messages
    assert DATA[:100_001] == bytes(gathered.data)
    assert not assembly.room()


def test_the_tensors_are_found_by_the_beginning_of_a_message() -> None:
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1000]}
    built = message("inference.ModelInferRequest")(
        model_name="m", id="i", inputs=[tensor], raw_input_contents=[b"\x07" * 4000]
    )
    data = built.SerializeToString()

    at = tensors_at(data[:200])

    assert len(data) - 4000 == at
    assert (0, 0) == (tensors_at(data[: at - 4]), tensors_at(b"\xff" * 100))
    assert 0 == tensors_at(b"")


# -------------------------------------------------------------------------- references
# Which responses may refer to memory: those of which the broker says that it has looked.


LARGE = Tensor("T", 11, [25_000], Reference(2, 1, 1, 0, 100_000))


SMALL = Tensor("T", 11, [1], b"\0\0\0\0")


def test_another_may_not() -> None:
    with pytest.raises(ProtocolError, match="refers to memory"):
        read_response(wire.encode_body(ResponseBody({}, [SMALL, LARGE])))

    small = ResponseBody({}, [SMALL])
    assert small == read_response(wire.encode_body(small))
