from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from tests.support.scenarios import scenario
from zmqtriton_frontends.grpc_api.call import NoRoomError
from zmqtriton_frontends.grpc_api.inference.outbox import Outbox
from zmqtriton_frontends.process import ledger
from zmqtriton_frontends.process.ledger import Book, Share

SIZE = 64
LIMIT = 64 << 20


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 10))


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def fill(outbox: Outbox, message: bytes = b"x") -> None:
    for _ in range(SIZE):
        await outbox.send(message)


@scenario(run)
async def test_messages_come_out_in_the_order_in_which_they_were_sent() -> None:
    outbox = Outbox(Share(Book(LIMIT)))
    for message in (b"a", b"b", b"c"):
        await outbox.send(message)
    outbox.end()

    assert [b"a", b"b", b"c"] == [message async for message in outbox]


@scenario(run)
async def test_a_reader_waits_for_the_first_message() -> None:
    outbox = Outbox(Share(Book(LIMIT)))
    reader = asyncio.ensure_future(anext(outbox))
    await turns()
    assert not reader.done()

    await outbox.send(b"a")

    assert await reader == b"a"


@scenario(run)
async def test_a_sender_waits_while_it_is_full_and_none_overtakes_it() -> None:
    outbox = Outbox(Share(Book(LIMIT)))
    await fill(outbox)
    first = asyncio.ensure_future(outbox.send(b"first"))
    second = asyncio.ensure_future(outbox.send(b"second"))
    await turns()
    assert not first.done()

    await anext(outbox)
    await first
    assert not second.done()
    await anext(outbox)
    await second

    outbox.end()
    assert [b"first", b"second"] == [message async for message in outbox][-2:]


@scenario(run)
async def test_large_messages_fill_it_sooner() -> None:
    outbox = Outbox(Share(Book(LIMIT)))
    await outbox.send(bytes(4 << 20))
    waiting = asyncio.ensure_future(outbox.send(b"x"))
    await turns()

    assert not waiting.done()
    await anext(outbox)
    await waiting


@scenario(run)
async def test_a_sender_that_gives_up_sends_nothing() -> None:
    outbox = Outbox(Share(Book(LIMIT)))
    await fill(outbox)
    waiting = asyncio.ensure_future(outbox.send(b"gone"))
    await turns()
    waiting.cancel()
    await turns()

    outbox.end()

    assert [b"x"] * SIZE == [message async for message in outbox]


@scenario(run)
async def test_after_an_error_what_was_sent_before_still_comes_out() -> None:
    outbox = Outbox(Share(Book(LIMIT)))
    await outbox.send(b"a")
    outbox.end(ValueError("broken"))
    outbox.end()
    await outbox.send(b"too late")

    assert await anext(outbox) == b"a"
    with pytest.raises(ValueError, match="broken"):
        await anext(outbox)


@scenario(run)
async def test_the_end_lets_waiting_senders_go() -> None:
    outbox = Outbox(Share(Book(LIMIT)))
    await fill(outbox)
    waiting = asyncio.ensure_future(outbox.send(b"never"))
    await turns()

    outbox.end()

    await waiting
    assert [b"x"] * SIZE == [message async for message in outbox]


@scenario(run)
async def test_what_is_encoded_has_room_until_it_is_taken() -> None:
    book = Book(LIMIT)
    outbox = Outbox(Share(book))
    await outbox.send(bytes(100_000))
    assert 90_000 < book.held < 140_000

    await anext(outbox)

    assert book.held == 0


@scenario(run)
async def test_who_encodes_waits_for_room_and_is_refused_after_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ledger, "WAIT_S", 0.01)

    book = Book(1 << 20)
    other, outbox = Share(book), Outbox(Share(book))
    other.add(book.limit)
    with pytest.raises(NoRoomError):
        await outbox.wait_for_room(500_000)
    assert not outbox.admits(500_000)

    waiting = asyncio.ensure_future(outbox.wait_for_room(500_000))
    other.release()
    await waiting

    assert outbox.room >= 500_000
    outbox.close()
    assert book.held == 0
