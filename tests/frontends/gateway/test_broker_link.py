"""A frontend's link to the broker, on a loop; the test stands for the broker."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.support.routers import FakeRouter
from tests.support.scenarios import scenario
from tests.support.waiting import loop_turns, until
from zmqtriton_floor import endpoints, wire
from zmqtriton_floor.zmtp import Dealer
from zmqtriton_frontends.gateway import broker_link
from zmqtriton_frontends.gateway.broker_link import BrokerLink, Steps


class CountedDealer(Dealer):
    """Keeps what is put, and where it was flushed."""

    def __init__(self, address: str) -> None:
        self.sent: list[Any] = []
        self.flushes: list[int] = []
        super().__init__(address)
        self.flushes.clear()  # the greeting

    def put(self, frames: Any) -> None:
        self.sent.append(wire.decode(frames[0]))
        super().put(frames)

    def flush(self) -> int:
        self.flushes.append(len(self.sent))
        return super().flush()


class Releases:
    def __init__(self, *blocks: wire.Block) -> None:
        self.blocks = list(blocks)

    def take(self) -> list[list[wire.Block]]:
        blocks, self.blocks = self.blocks, []
        limit = wire.MAX_RELEASED
        return [blocks[i : i + limit] for i in range(0, len(blocks), limit)]


class World:
    """A link, and brokers by their epochs."""

    def __init__(self, directory: Path) -> None:
        self.directory = str(directory)
        #: Frames that have come, and what takes them.
        self.seen: list[Any] = []
        self.take: Callable[[list[bytes]], Steps | None] = self.seen.append
        #: The epochs that the link has introduced this process to.
        self.introduced: list[int] = []
        self.link = BrokerLink(lambda frames: self.take(frames), self._introduce)
        self.link.begin(asyncio.get_running_loop())
        self.releases: Any = Releases()
        self.router: FakeRouter
        self._routers: list[FakeRouter] = []

    def _introduce(self, epoch: int) -> tuple[Iterable[Any], Iterable[Any]]:
        self.introduced.append(epoch)
        return [wire.Hello(5, bytes(16), epoch)], [wire.AskStatistics(1, "m", 1, 0)]

    @property
    def dealer(self) -> CountedDealer:
        """Return the socket of the link."""
        dealer = self.link._dealer  # how messages are put together shows here alone
        assert isinstance(dealer, CountedDealer)
        return dealer

    def listen(self, epoch: int) -> None:
        self.router = FakeRouter(endpoints.requests_address(self.directory, epoch))
        self._routers.append(self.router)

    async def start(self) -> bytes:
        """The first broker is there and knows this process, by what is returned."""
        self.listen(1)
        self.link.connect(1, self.directory, self.releases)
        return await self.welcome(1)

    async def change(self, epoch: int) -> None:
        """The next broker is there, and knows this process."""
        self.listen(epoch)
        self.link.change(epoch)
        await self.welcome(epoch)

    async def welcome(self, epoch: int) -> bytes:
        """Hear the introduction; return who the link is to the broker."""
        identity, header = await self.receive()
        assert wire.Hello(5, bytes(16), epoch) == wire.decode(header)
        self.link.welcome_epoch = epoch
        return identity

    async def send(self, own_id: int) -> None:
        """Ask, and let it go."""
        self.link.request(request(own_id), b"a")
        await asyncio.sleep(0)

    async def start_and_count(self) -> CountedDealer:
        """Start, and return the dealer with nothing counted yet."""
        await self.start()
        dealer = self.dealer
        dealer.sent.clear()
        dealer.flushes.clear()
        return dealer

    async def receive(self) -> list[bytes]:
        await until(lambda: self.router.poll(0))
        return self.router.receive()

    def close(self) -> None:
        self.link.close()
        for router in self._routers:
            router.close()


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_link, "Dealer", CountedDealer)


def play(test: Callable[[World], Awaitable[None]]) -> None:
    async def with_world(directory: str) -> None:
        with closing(World(Path(directory))) as world:
            await test(world)

    with TemporaryDirectory() as directory:
        asyncio.run(with_world(directory))


def request(own_id: int) -> wire.Request:
    return wire.Request(own_id, 1, "", -1, 0, 0, 0, 0, 1, 0, 0)


def kinds(messages: list[Any]) -> list[type]:
    return [type(message) for message in messages]


# ---------------------------------------------------------------------- sending


@scenario(play)
async def test_what_arises_in_one_turn_leaves_together(world: World, /) -> None:
    dealer, link = await world.start_and_count(), world.link
    link.request(request(1), b"a")
    link.request(request(2), b"b")
    link.cancel(1)
    link.grant(wire.StreamAck(5, 2, 3))
    assert [] == dealer.sent

    await asyncio.sleep(0)

    assert [wire.Infer, wire.Cancel, wire.StreamAcks] == kinds(dealer.sent)
    assert ([1, 2], [3]) == ([row.id for row in dealer.sent[0].requests], dealer.flushes)


@scenario(play)
async def test_what_is_done_with_is_released_before_requests_that_need_room(
    world: World, /
) -> None:
    dealer, block = await world.start_and_count(), wire.Block(7, 1, 2)
    world.releases.blocks.append(block)

    await world.send(1)
    await world.send(2)
    assert [[block], []] == [infer.released for infer in dealer.sent]

    world.releases.blocks.extend([block] * (wire.MAX_RELEASED + 1))
    await world.send(3)
    assert [wire.Release, wire.Infer] == kinds(dealer.sent[2:])
    assert (wire.MAX_RELEASED, 1) == (len(dealer.sent[2].blocks), len(dealer.sent[3].released))

    world.releases.blocks.append(block)
    world.link.cancel(3)
    await asyncio.sleep(0)
    assert wire.Release([block]) == dealer.sent[4]


@scenario(play)
async def test_what_cannot_wait_leaves_at_once_or_never(world: World, /) -> None:
    dealer = await world.start_and_count()
    world.link.send(wire.Release([]))
    assert [wire.Release([])] == dealer.sent
    assert [1] == dealer.flushes

    world.link.change(0)
    world.link.send(wire.Release([]))

    await world.change(2)
    assert [wire.Hello, wire.AskStatistics] == kinds(world.dealer.sent)


@scenario(play)
async def test_what_the_kernel_does_not_take_leaves_when_there_is_room(world: World, /) -> None:
    await world.start()
    await world.receive()  # the question
    bodies = [b"%d" % number + bytes(50_000) for number in range(200)]
    for number, body in enumerate(bodies):
        world.link.request(request(number), body)
    await asyncio.sleep(0)

    heard: list[bytes] = []
    while len(heard) < len(bodies):
        heard += (await world.receive())[2:]
    assert bodies == heard

    world.link.request(request(200), b"last")
    assert b"last" == (await world.receive())[2]


# --------------------------------------------------------------------- brokers


@scenario(play)
async def test_without_a_broker_requests_wait_for_one(world: World, /) -> None:
    await world.send(1)

    await world.start()

    dealer = world.dealer
    assert [wire.Hello, wire.AskStatistics, wire.Infer] == kinds(dealer.sent)
    assert 0 == dealer.sent[2].requests[0].flags


@scenario(play)
async def test_the_next_broker_is_asked_again_between_first_and_last(world: World, /) -> None:
    await world.start()
    await world.send(1)
    world.router.close()

    await world.change(2)

    dealer = world.dealer
    assert [wire.Hello, wire.Infer, wire.AskStatistics] == kinds(dealer.sent)
    assert wire.RESENT & dealer.sent[1].requests[0].flags
    assert [1, 2] == world.introduced


@pytest.mark.parametrize("is_welcome", [True, False])
@scenario(play)
async def test_a_broker_that_has_died_is_not_listened_to_any_more(
    world: World, /, monkeypatch: pytest.MonkeyPatch, is_welcome: bool
) -> None:
    monkeypatch.setattr(broker_link, "_RECONNECT_AFTER_S", 0.0)

    world.listen(1)
    world.link.connect(1, world.directory, world.releases)
    identity, _ = await world.receive()
    if is_welcome:
        world.link.welcome_epoch = 1
    world.router.send([identity, b"last words"])
    world.router.close()

    await until(lambda: world.seen)
    await loop_turns(100)

    assert [[b"last words"]] == world.seen
    assert is_welcome == (world.introduced == [1])


@scenario(play)
async def test_a_link_that_is_closed_connects_to_nobody(world: World, /) -> None:
    await world.start()
    world.listen(2)
    world.link.change(2)

    world.link.close()
    await loop_turns(10)

    assert [1] == world.introduced
    assert not world.router.poll(0)


# --------------------------------------------------------------------- reading


@scenario(play)
async def test_others_have_turns_between_messages_that_take_long(
    world: World, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = await world.start()
    monkeypatch.setattr(broker_link, "monotonic", itertools.count().__next__)
    turns: list[int] = []

    def count_turns(number: int) -> None:
        turns.append(len(world.seen))
        if len(world.seen) < 20:
            asyncio.get_running_loop().call_soon(count_turns, number + 1)

    for number in range(20):
        world.router.send([identity, b"%d" % number])
    await until(lambda: world.seen)
    count_turns(0)
    await until(lambda: len(world.seen) == 20)

    assert [[b"%d" % number] for number in range(20)] == world.seen
    assert len({*turns}) > 10


@scenario(play)
async def test_what_is_left_of_a_message_comes_before_the_next_one(
    world: World, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    def in_steps(frames: list[bytes]) -> Steps:
        for frame in frames:
            world.seen.append(frame)
            yield

    world.take = in_steps
    identity = await world.start()
    monkeypatch.setattr(broker_link, "monotonic", itertools.count().__next__)

    world.router.send([identity, b"1", b"2", b"3"])
    world.router.send([identity, b"4", b"5"])
    await until(lambda: world.seen)
    assert len(world.seen) < 5
    world.router.send([identity, b"6"])  # after the last read, in which nothing was left
    world.link.change(0)  # all that is here is valid

    assert [b"1", b"2", b"3", b"4", b"5", b"6"] == world.seen
    await loop_turns(10)
