"""A client's share: what is begun, what waits, what it has yet to read, and what ends it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any

from tests.support.shares import share_of
from zmqtriton_extras.door import messages
from zmqtriton_extras.door.process import peer, responses
from zmqtriton_extras.door.process.peer import Asked, Peer
from zmqtriton_extras.door.process.responses import Message
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_frontends.process.arrivals import Arrivals
from zmqtriton_frontends.process.ledger import Ledger

MIB = 1 << 20


class Begun:
    """A request that lasts."""

    def __init__(self) -> None:
        self.is_cancelled = False
        self.granted = 0

    def cancel(self) -> None:
        self.is_cancelled = True

    def grant(self, responses: int) -> None:
        self.granted += responses


class World:
    def __init__(self, limit: int = 64 * MIB) -> None:
        self.ledger = Ledger(limit)
        self.sent: list[Message] = []
        self.has_room = True
        self.times_shut_out = 0
        self.peer = Peer(self.ledger, self._put, self._shut_out, user=0)
        self.begun: dict[int, Begun] = {}

    def _put(self, message: Message) -> bool:
        if self.has_room:
            self.sent.append(message)
        return self.has_room

    def _shut_out(self) -> None:
        self.times_shut_out += 1

    def ask(self, number: int, size: int = 10) -> None:
        def begin() -> Begun:
            self.begun[number] = begun = Begun()
            return begun

        self.peer.ask(Asked(number, size, begin))

    def answer(self, number: int, size: int = 10) -> None:
        self.peer.answer(number, [messages.encode("answer", number, {}), bytes(size)])

    def sent_headers(self) -> list[tuple[str, int, str]]:
        """Kind, id and text of what was sent."""
        decoded = [messages.decode(message[0]) for message in self.sent]
        return [(header.verb, header.id, header.fields.get("text", "")) for header in decoded]


def within_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(test())

    run.__name__ = test.__name__
    return run


@within_a_loop
async def test_beyond_a_number_requests_wait_and_begin_in_order() -> None:
    world = World()
    for number in range(1, 1031):
        world.ask(number)
    assert list(range(1, 1025)) == list(world.begun)
    assert world.ledger.requests.held == 6 * 1034

    world.answer(5)
    world.answer(6)
    await asyncio.sleep(0)

    assert list(world.begun)[1024:] == [1025, 1026]
    assert world.ledger.requests.held == 4 * 1034


@within_a_loop
async def test_beyond_a_size_requests_wait_but_one_is_always_begun() -> None:
    world = World(limit=1024 * MIB)
    world.ask(1, 200 * MIB)
    world.ask(2, 10)
    assert list(world.begun) == [1]

    world.answer(1)
    await asyncio.sleep(0)

    assert list(world.begun) == [1, 2]


@within_a_loop
async def test_where_there_is_no_memory_to_wait_in_a_request_is_refused() -> None:
    world = World(limit=8 * MIB)
    world.ask(1, 64 * MIB)
    world.ask(2, 64 * MIB)

    assert world.sent_headers() == [("error", 2, "Out of memory for this request; retry later")]
    assert world.ledger.requests.held == 0


@within_a_loop
async def test_what_has_no_place_in_the_order_yet_is_waited_for() -> None:
    world = World()
    world.ask(1)
    world.peer.hold_back(1)
    world.ask(2)
    world.peer.let_go(7)
    await asyncio.sleep(0)
    assert list(world.begun) == [1]

    world.peer.let_go(1)
    await asyncio.sleep(0)
    assert list(world.begun) == [1, 2]

    world.peer.hold_back(2)
    world.ask(3)
    world.answer(2)  # it failed, or was cancelled, before it had one
    await asyncio.sleep(0)
    assert list(world.begun) == [1, 2, 3]


@within_a_loop
async def test_who_waits_can_be_cancelled_as_who_was_begun() -> None:
    world = World()
    world.ask(1)
    world.peer.hold_back(1)
    world.ask(2)
    world.peer.cancel(2)
    world.peer.grant(1, 5)
    world.peer.cancel(1)
    world.peer.cancel(1)
    world.peer.cancel(9)
    await asyncio.sleep(0)

    assert list(world.begun) == [1]
    assert (world.begun[1].is_cancelled, world.begun[1].granted) == (True, 5)
    assert [number for _, number, _ in world.sent_headers()] == [2, 1]
    assert world.ledger.requests.held == 0
    assert world.peer.is_idle


@within_a_loop
async def test_what_fails_while_it_is_begun_is_answered() -> None:
    world = World()

    def fail() -> Begun:
        raise InvalidArgument("it is wrong")

    world.peer.ask(Asked(3, 10, fail))

    assert world.sent_headers() == [("error", 3, "it is wrong")]
    assert world.peer.is_idle


@within_a_loop
async def test_large_answers_are_booked_until_they_are_written() -> None:
    world = World()
    world.ask(1)
    world.answer(1, 4 * MIB)
    assert world.ledger.answers.held == 4 * MIB
    assert not world.peer.is_idle

    world.sent.clear()
    gc.collect()
    await asyncio.sleep(0)

    assert world.ledger.answers.held == 0
    assert world.peer.is_idle


@within_a_loop
async def test_many_small_frames_are_booked_as_a_large_one_is() -> None:
    world = World()
    message: Message = [messages.encode("response", 1, {}), *[bytes(16 << 10)] * 100]
    world.peer.answer(1, message)

    assert world.ledger.answers.held == 100 * (16 << 10)
    assert message == world.sent[0]


@within_a_loop
async def test_an_answer_that_there_is_no_memory_for_is_an_error() -> None:
    world, other = World(limit=16 * MIB), bytes(8 * MIB)
    share_of(world.ledger.answers).add(len(other))
    world.ask(1)
    world.answer(1, 12 * MIB)

    [(kind, number, text)] = world.sent_headers()
    assert (kind, number) == ("error", 1)
    assert "too many answers" in text
    assert len(other) == world.ledger.answers.held


@within_a_loop
async def test_a_stream_waits_until_its_client_reads() -> None:
    world = World()
    world.has_room = False
    world.answer(1)
    sending = asyncio.ensure_future(
        world.peer.send([messages.encode("response", 2, {})], Arrivals())
    )
    await asyncio.sleep(0)
    assert world.peer.is_blocked
    assert not sending.done()

    world.has_room = True
    world.peer.flush()
    await sending

    assert [number for _, number, _ in world.sent_headers()] == [1, 2]
    assert not world.peer.is_blocked


@within_a_loop
async def test_who_reads_nothing_and_asks_on_is_shut_out() -> None:
    world = World()
    world.has_room = False
    for number in range(peer._MAX_UNREAD):
        world.peer.answer(0, responses.error(0, InvalidArgument(str(number))))
    assert world.times_shut_out == 0

    world.peer.answer(0, responses.error(0, InvalidArgument("one more")))

    assert world.times_shut_out == 1


@within_a_loop
async def test_a_reader_that_does_not_move_is_stalled_and_one_that_does_is_not() -> None:
    world = World()
    world.answer(1, 2 * MIB)
    world.answer(2, 2 * MIB)
    assert not world.peer.is_stalled(100.0)
    del world.sent[0]
    gc.collect()
    await asyncio.sleep(0)

    assert not world.peer.is_stalled(140.0)
    assert not world.peer.is_stalled(160.0)
    assert world.peer.is_stalled(171.0)


@within_a_loop
async def test_nothing_is_left_of_a_client_that_has_gone() -> None:
    world = World()
    world.ask(1)
    world.peer.hold_back(1)
    world.ask(2)
    world.answer(0, 4 * MIB)
    world.has_room = False
    world.answer(0, 4 * MIB)
    sending = asyncio.ensure_future(
        world.peer.send([messages.encode("response", 1, {})], Arrivals())
    )
    await asyncio.sleep(0)

    world.peer.leave()
    world.sent.clear()
    gc.collect()
    await asyncio.wait([sending])

    assert world.begun[1].is_cancelled
    assert list(world.begun) == [1]
    assert (world.ledger.requests.held, world.ledger.answers.held) == (0, 0)
    assert world.peer.is_idle
    world.answer(1)
    assert world.sent == []
