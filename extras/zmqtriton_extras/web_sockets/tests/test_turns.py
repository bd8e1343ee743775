"""Answers on WebSockets take turns at the loop with what other clients have asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.shares import share_of
from zmqtriton_extras.web_sockets.frames import TEXT, Message
from zmqtriton_extras.web_sockets.stream import _Conversation, _id_of
from zmqtriton_floor.errors import InternalError
from zmqtriton_frontends.gateway.streams import StreamItem
from zmqtriton_frontends.process import turns
from zmqtriton_frontends.process.ledger import Ledger
from zmqtriton_frontends.process.turns import Cost, RequestShares, TaskTurn, Turns

CHECKED: Any = SimpleNamespace(
    is_large=False,
    body=SimpleNamespace(request_id="", inputs=[]),
    form=None,
    options=SimpleNamespace(correlation=0),
    model=SimpleNamespace(signature=SimpleNamespace(is_decoupled=True)),
)


class World:
    """A loop whose time passes only where something is sent."""

    def __init__(self) -> None:
        self.now = 1000.0
        later = asyncio.get_running_loop().call_soon
        self.turns = Turns(later, lambda: self.now, lambda: self.now)
        #: The clients that were sent something, in this order.
        self.sent: list[str] = []
        #: The number of streams that have ended.
        self.ended = 0
        self.shares = RequestShares()

    async def send(self, name: str) -> None:
        self.sent.append(name)
        self.now += 0.001

    def turn(self) -> TaskTurn:
        return TaskTurn(self.turns, Cost("a", self.now))

    def conversation(self, name: str, items: int, messages: int = 0) -> _Conversation:
        """The conversation of a client that reads all at once, and has sent messages."""
        left = [Message(TEXT, b"{}")] * messages

        async def responses(*_: object) -> AsyncIterator[StreamItem]:
            for number in range(items):
                yield StreamItem(None, InternalError("one"), number == items - 1)
            try:
                await asyncio.sleep(0 if items else 60)
            finally:
                self.ended += 1

        async def send(*_: object) -> None:
            await self.send(name)

        async def receive() -> Message | None:
            if not left:
                await asyncio.sleep(60)
            await asyncio.sleep(0)
            return left.pop()

        async def admit(ask: object) -> Any:
            return CHECKED

        socket: Any = SimpleNamespace(
            send=send, receive=receive, rest=lambda is_resting: None, end=lambda: None
        )
        entrance = SimpleNamespace(responses=responses, admit=admit)
        inference: Any = SimpleNamespace(entrance=entrance)
        req: Any = SimpleNamespace(
            turn=self.turn(),
            connection=SimpleNamespace(share=share_of(Ledger(1 << 20).answers)),
            deadline_ns=0,
            hold=lambda size: None,
            header=lambda name: None,
            spelled_headers=lambda: (),
            grant=None,
        )
        gateway: Any = None
        return _Conversation(gateway, inference, self.shares, req, socket, ("model", ""))


def test_streams_without_end_leave_others_their_turn() -> None:
    async def test() -> None:
        world = World()
        for number in range(20):
            conversation = world.conversation("stream", 50)
            await conversation._start(CHECKED, number)
        while not world.sent:
            await asyncio.sleep(0)

        await world.turn().take(world.send, "other")

        assert world.sent.index("other") < 100
        while len(world.sent) <= 20 * 50:
            await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(test(), 20))


def test_requests_are_sent_in_their_order_however_much_there_is_to_do() -> None:
    async def test() -> None:
        world = World()
        for _ in range(20):
            await world.conversation("stream", 50)._start(CHECKED, 1)
        while not world.turns.is_crowded:
            await asyncio.sleep(0)
        names = [str(number) for number in range(10)]
        for name in names:
            await world.conversation(name, 2)._start(CHECKED, 1)

        while len(world.sent) < 20 * 50 + 20:
            await asyncio.sleep(0)

        assert names == list(dict.fromkeys(name for name in world.sent if name in names))

    asyncio.run(asyncio.wait_for(test(), 20))


@pytest.mark.parametrize("times", [1, 2])
def test_a_client_that_goes_ends_its_requests_some_at_a_time(times: int) -> None:
    async def test() -> None:
        world = World()
        conversation = world.conversation("stream", 0)
        for _ in range(300):
            await conversation._start(CHECKED, 1)
        running = asyncio.ensure_future(conversation.run())
        await asyncio.sleep(0.01)

        running.cancel()
        steps = []
        while world.ended < 300:
            before = world.ended
            await asyncio.sleep(0)
            steps.append(world.ended - before)
            if times > 1:
                running.cancel()

        assert times > 1 or max(steps) < 50
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(asyncio.wait_for(test(), 20))


def test_clients_with_many_requests_have_their_share_of_those_of_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        world = World()
        loop = asyncio.get_running_loop()
        floods = [world.conversation("flood", 0, 100) for _ in range(10)]
        running = [loop.create_task(flood.run()) for flood in floods]
        while world.shares.requests < 200 or len(world.shares.waiting) < 10:
            await asyncio.sleep(0)
        modest = world.conversation("modest", 0, 10)
        running.append(loop.create_task(modest.run()))
        while len(modest._requests) < 10:
            await asyncio.sleep(0)

        assert {20, 21} >= {len(flood._requests) for flood in floods}

        for task in running[1:]:
            task.cancel()
        while len(floods[0]._requests) < 100:
            await asyncio.sleep(0)
        running[0].cancel()
        await asyncio.gather(*running, return_exceptions=True)
        assert (0, 0, set()) == (
            world.shares.requests,
            world.shares.clients,
            world.shares.waiting,
        )

    monkeypatch.setattr(turns, "MAX_REQUESTS", 200)
    asyncio.run(asyncio.wait_for(test(), 20))


@pytest.mark.parametrize(
    ("text", "own_id"),
    [
        (b'{"inputs": 5, "id": "short"}', "short"),
        (b' { "id" : "first", "inputs": [%s]}' % (b"1," * 100_000 + b"1"), "first"),
        # the loop would wait for it
        (b'{"inputs": [%s], "id": "last"}' % (b"1," * 100_000 + b"1"), ""),
        (b'{"id": 5, "inputs": [%s]}' % (b"1," * 100_000 + b"1"), ""),
    ],
)
def test_the_id_of_a_long_request_that_was_refused_is_its_first_member(
    text: bytes, own_id: str
) -> None:
    assert own_id == _id_of(Message(TEXT, text))
