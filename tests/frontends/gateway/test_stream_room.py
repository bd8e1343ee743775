"""Streams in bytes: what stubs are told of, what there is room for, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tests.frontends.gateway.test_streams import OWN, STUB, World, outcome, read, world
from zmqtriton_floor import wire
from zmqtriton_floor.errors import TOO_MANY_UNREAD, Unavailable
from zmqtriton_frontends.gateway.streams import Reader, ResponseStream
from zmqtriton_frontends.process.arrivals import Arrivals
from zmqtriton_frontends.process.ledger import BORROWED_BYTES, Client, Ledger, Share
from zmqtriton_frontends.tensors.references import PlacedBody

MIB = 1 << 20
STEP = wire.STREAM_WINDOW_BYTES // 4


def test_the_stub_is_told_of_a_part_of_the_window_in_bytes() -> None:
    reader = Reader(lambda: 0.0)
    counts = []

    for number in range(8):
        reader.take(outcome(number), bytes(STEP // 2))
        reader.pop()
        counts.append(reader.untold())

    assert [0, 2, 0, 4, 0, 6, 0, 8] == counts


def test_the_stub_is_told_of_a_slow_reader_of_many_bytes_now_and_then() -> None:
    now_s = 0.0
    reader = Reader(lambda: now_s)
    counts = []
    for number in range(20):
        reader.take(outcome(number), bytes(STEP // 8))

    for _ in range(6):
        reader.pop()
        now_s += 0.0625
        counts.append(reader.untold())

    assert [2, 4, 6] == [responses for responses in counts if responses]


def test_a_placed_response_counts_with_what_it_refers_to() -> None:
    reader = Reader()
    reference = wire.Reference(1, 1, 1, 0, 3 * MIB)
    tensor = wire.Tensor("T", 11, [3 << 18], reference)
    body = PlacedBody(wire.encode_body(wire.ResponseBody({}, [tensor])))

    reader.take(outcome(0), body)
    assert 3 * MIB + len(body) == reader.arrivals.unread
    reader.pop()

    assert 1 == reader.untold()
    assert 0 == reader.arrivals.unread


def test_what_nobody_has_popped_can_be_dropped() -> None:
    reader = Reader()
    for number in (0, 1, 2, 4):
        reader.take(outcome(number), b"%d" % number)
    reader.pop()

    assert [b"1", b"2", b"4"] == reader.drop(Unavailable("no room"))

    reader.take(outcome(3), b"3")
    assert [Unavailable.number] == read(reader)
    assert [b"3"] == reader.left()


# --------------------------------------------------------------------- room


def within_a_loop(
    test: Callable[[Path], Coroutine[Any, Any, None]],
) -> Callable[[Path], None]:
    def run(tmp_path: Path) -> None:
        asyncio.run(test(tmp_path))

    run.__name__ = test.__name__
    return run


class Holder:
    """A client of a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self.moved, self.owes = 0, True
        self.client = Client(ledger, "", lambda: self.moved, lambda: self.owes, lambda: None)
        self.share = Share(ledger.answers, self.client)


def _send(it: World, stream: ResponseStream, number: int, size: int, flags: int = 0) -> None:
    row = wire.Reply(stream.own_id, 0, "", flags, number, STUB)
    it.streams.take_reply(stream, row, bytes(size))


@within_a_loop
async def test_a_grant_waits_for_room(tmp_path: Path) -> None:
    ledger = Ledger(64 * MIB)
    slow, other = Holder(ledger), Holder(ledger)
    async with world(tmp_path) as it:
        stream = it.open(arrivals=Arrivals(slow.share))
        _send(it, stream, 0, 9 * MIB)
        assert other.share.take(24 * MIB)

        other.share.add(28 * MIB)
        stream.reader.pop()
        it.streams.taken(stream)
        slow.moved += 1 * MIB
        # it hears that its reader goes on, and may not go on itself
        await it.until(lambda: it.grants)
        assert {wire.StreamAck(OWN, 1, 0)} == set(it.grants)

        other.share.release()
        await it.until(lambda: it.grants[-1].responses == 1)

    assert 0 == ledger.budget.held


@within_a_loop
async def test_a_client_that_stops_is_not_reported_as_one_that_goes_on(tmp_path: Path) -> None:
    holder, still = Holder(Ledger(64 * MIB)), Holder(Ledger(64 * MIB))
    async with world(tmp_path) as it:
        for number, one in enumerate((holder, still), start=1):
            _send(it, it.open(number, Arrivals(one.share)), 0, 9 * MIB)

        holder.owes = False
        await it.until(lambda: len(it.grants) >= 2)

        assert {1} == {grant.id for grant in it.grants}


@within_a_loop
async def test_what_there_is_no_room_for_is_refused(tmp_path: Path) -> None:
    ledger = Ledger(32 * MIB)
    holder = Holder(ledger)
    async with world(tmp_path) as it:
        streams = [it.open(number, Arrivals(holder.share)) for number in range(1, 9)]

        for stream in streams:
            _send(it, stream, 0, 8 * MIB)

        held = ledger.budget.held + ledger.budget.borrowed
        assert held <= 32 * MIB + BORROWED_BYTES // 2 + MIB
        assert [7, 8] == it.cancelled
        assert 2 == len(it.discarded)
        items = await it.items(streams[-1], 1)
        assert [TOO_MANY_UNREAD] == [item.error.text for item in items if item.error]
        for stream in streams:
            stream.reader.arrivals.release()

    assert (0, 0) == (ledger.budget.held, ledger.budget.borrowed)


@within_a_loop
async def test_a_stream_that_keeps_up_takes_no_room(tmp_path: Path) -> None:
    ledger = Ledger(32 * MIB)
    async with world(tmp_path) as it:
        stream = it.open(arrivals=Arrivals(Holder(ledger).share))
        for number in range(300):
            _send(it, stream, number, 100)
            stream.reader.pop()
            it.streams.taken(stream)
            assert 0 == ledger.budget.held
