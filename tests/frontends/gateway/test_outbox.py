"""A frontend's messages to the broker: all of one turn together, and in which order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from zmqtriton_floor import wire
from zmqtriton_frontends.gateway.outbox import Outbox


class Connection:
    """Keeps what is put, and where it was flushed."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.flushes: list[int] = []
        self.is_closed = False

    def put(self, frames: list[bytes]) -> None:
        self.messages.append(wire.decode(frames[0]))

    def flush(self) -> None:
        self.flushes.append(len(self.messages))

    def close(self) -> None:
        self.is_closed = True


class Releases:
    def __init__(self, *blocks: wire.Block) -> None:
        self.blocks = list(blocks)

    def take(self) -> list[wire.Release]:
        blocks, self.blocks = self.blocks, []
        return [wire.Release(blocks)]


def request(own_id: int) -> wire.Request:
    return wire.Request(own_id, 1, "", -1, 0, 0, 0, 0, 1, 0, 0)


def in_a_turn(act: Callable[[Outbox, Any], None], connection: Any) -> list[Any]:
    """Return the messages that have left when one turn of the loop is over."""
    outbox = Outbox()

    async def turn() -> None:
        outbox.begin(asyncio.get_running_loop())
        outbox.connection = connection
        act(outbox, connection)
        await asyncio.sleep(0)

    asyncio.run(turn())
    return connection.messages if connection is not None else []


def test_what_arises_in_one_turn_leaves_together() -> None:
    connection = Connection()

    def act(outbox: Outbox, _: Any) -> None:
        outbox.request(request(1), b"a")
        outbox.request(request(2), b"b")
        outbox.cancel(1)
        outbox.grant(wire.StreamAck(5, 2, 3))
        assert [] == connection.messages

    messages = in_a_turn(act, connection)

    [requests] = [message for message in messages if type(message) is wire.Infer]
    assert [1, 2] == [row.id for row in requests.requests]
    assert {wire.Infer, wire.Cancel, wire.StreamAcks} == {type(m) for m in messages}
    assert [len(messages)] == connection.flushes


def test_what_is_done_with_is_released_before_requests_that_need_room() -> None:
    connection, block = Connection(), wire.Block(7, 1, 2)

    def act(outbox: Outbox, _: Any) -> None:
        outbox.releases = Releases(block)  # type: ignore[assignment]
        outbox.request(request(1), b"a")

    messages = in_a_turn(act, connection)

    assert [wire.Release([block])] == messages[:1]
    assert [wire.Release, wire.Infer] == [type(message) for message in messages]


def test_without_anything_to_release_nothing_is_said_of_it() -> None:
    connection = Connection()

    def act(outbox: Outbox, _: Any) -> None:
        outbox.releases = Releases()  # type: ignore[assignment]
        outbox.request(request(1), b"a")

    assert [wire.Infer] == [type(message) for message in in_a_turn(act, connection)]


def test_what_cannot_wait_leaves_at_once_or_never() -> None:
    connection = Connection()

    def act(outbox: Outbox, known: Any) -> None:
        outbox.send(wire.Release([]))
        assert [wire.Release([])] == connection.messages
        assert [1] == connection.flushes
        outbox.disconnect()
        outbox.send(wire.Release([]))

    assert [wire.Release([])] == in_a_turn(act, connection)
    assert connection.is_closed


def test_while_there_is_no_broker_requests_wait_for_the_next() -> None:
    connection: Any = Connection()
    outbox = Outbox()

    async def turn() -> None:
        outbox.begin(asyncio.get_running_loop())
        outbox.request(request(1), b"a")
        await asyncio.sleep(0)
        outbox.connect(connection, [wire.Hello(5, bytes(16), 1)], [wire.Release([])])
        assert [wire.Hello, wire.Release] == [type(m) for m in connection.messages]
        assert [2] == connection.flushes
        outbox.flush()

    asyncio.run(turn())

    assert [wire.Hello, wire.Release, wire.Infer] == [type(m) for m in connection.messages]


def test_the_next_broker_is_asked_again_between_first_and_last() -> None:
    first: Any = Connection()
    second: Any = Connection()
    outbox = Outbox()

    async def turn() -> None:
        outbox.begin(asyncio.get_running_loop())
        outbox.connect(first, [], [])
        outbox.request(request(1), b"a")
        outbox.flush()
        outbox.disconnect()
        outbox.connect(second, [wire.Hello(5, bytes(16), 2)], [wire.Release([])])

    asyncio.run(turn())

    assert first.is_closed
    assert [wire.Hello, wire.Infer, wire.Release] == [type(m) for m in second.messages]
    assert wire.RESENT & second.messages[1].requests[0].flags


@pytest.mark.parametrize("turns", [2])
def test_each_turn_has_a_flush_of_its_own(turns: int) -> None:
    connection: Any = Connection()
    outbox = Outbox()

    async def run() -> None:
        outbox.begin(asyncio.get_running_loop())
        outbox.connection = connection
        for own_id in range(turns):
            outbox.request(request(own_id), b"a")
            await asyncio.sleep(0)

    asyncio.run(run())

    assert [1, 2] == connection.flushes
