"""A reader of one stream without sockets; those of a gateway, with the test as their publisher."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from tests.frontends.ledger_client import LedgerClient
from tests.support.scenarios import scenario
from tests.support.waiting import until
from zmqtriton_floor import endpoints, wire
from zmqtriton_floor.errors import TOO_MANY_UNREAD, InternalError, InvalidArgument, Unavailable
from zmqtriton_floor.process import zmq_sockets
from zmqtriton_floor.reasons import Kind
from zmqtriton_floor.wire import FINAL, SENT, STREAM_WINDOW
from zmqtriton_frontends.gateway import streams as module
from zmqtriton_frontends.gateway.streams import (
    GAP_S,
    LATE_S,
    Reader,
    ResponseStream,
    StreamItem,
    Streams,
)
from zmqtriton_frontends.process.arrivals import Arrivals
from zmqtriton_frontends.process.ledger import BORROWED_BYTES, Ledger
from zmqtriton_frontends.tensors.references import PlacedBody

pytestmark = pytest.mark.slow

OWN, STUB = 5, 7
PATIENCE_S = 20.0
MIB = 1 << 20
STEP = wire.STREAM_WINDOW_BYTES // 4


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def reader(clock: Clock) -> Reader:
    return Reader(clock)


def outcome(number: int, flags: int = 0, code: int = 0) -> wire.Outcome:
    return wire.Outcome(OWN, 1, code, "no" if code else "", flags, number)


def read(reader: Reader) -> list[bytes | int | None]:
    """Return what is ready: bodies, the code of an error, None for an empty final response."""
    got: list[bytes | int | None] = []
    while reader.ready:
        code, _, body, is_final = reader.pop()
        got.append(code or body or None)
        assert is_final == (reader.was_final and not reader.ready)
    return got


# -------------------------------------------------------------------- order


#: What comes, and what can be read then.
ORDERS: dict[str, list[tuple[wire.Outcome, bytes, list[bytes | int | None]]]] = {
    "the second before the first": [
        (outcome(1), b"1", []),
        (outcome(0), b"0", [b"0", b"1"]),
        (outcome(2), b"2", [b"2"]),
    ],
    "the final one before the others": [
        (outcome(2, FINAL), b"2", []),
        (outcome(1), b"1", []),
        (outcome(0), b"0", [b"0", b"1", b"2"]),
    ],
    # its number is the one after the last
    "an end without a response": [(outcome(0), b"0", [b"0"]), (outcome(1, FINAL), b"", [None])],
    "an error is a response": [(outcome(0, code=4), b"", [4]), (outcome(1), b"1", [b"1"])],
}


@pytest.mark.parametrize("arrivals", ORDERS.values(), ids=ORDERS)
def test_responses_are_ready_in_the_order_of_their_numbers(
    reader: Reader, arrivals: list[tuple[wire.Outcome, bytes, list[bytes | int | None]]]
) -> None:
    for row, body, ready in arrivals:
        reader.take(row, body)
        assert ready == read(reader)

    assert reader.deadline is None


def test_a_response_that_comes_again_is_there_once(reader: Reader) -> None:
    for number in (0, 0, 2, 2, 1, 1):
        reader.take(outcome(number), b"%d" % number)
    for _ in range(2):
        reader.take(outcome(3, FINAL), b"3")

    assert ([b"0", b"1", b"2", b"3"], [b"0", b"2", b"1", b"3"]) == (read(reader), reader.left())


# ------------------------------------------------------------- what is lost


#: Responses that come and seconds that pass, and what can be read in the end.
GAPS: dict[str, tuple[list[wire.Outcome | float], list[bytes | int]]] = {
    # another process sends it, for which the machine may have no time
    "seconds behind the final one": (
        [outcome(0), outcome(2, FINAL), 3.0, outcome(1)],
        [b"0", b"1", b"2"],
    ),
    "not yet lost": ([outcome(0), outcome(2), outcome(3, FINAL), LATE_S - 0.01], [b"0"]),
    "lost": (
        [outcome(0), outcome(2), outcome(3, FINAL), LATE_S - 0.01, 0.01],
        [b"0", Unavailable.number],
    ),
    "what trickles in does not put off the end": (
        [
            *(outcome(4, FINAL), LATE_S / 4, outcome(0), LATE_S / 4, outcome(1)),
            *(LATE_S / 4, outcome(2), LATE_S / 4),
        ],
        [b"0", b"1", b"2", Unavailable.number],
    ),
    "no final one comes": ([outcome(1), GAP_S], [Unavailable.number]),
    "a hole that is filled": ([outcome(1), outcome(0), 1000.0], [b"0", b"1"]),
    "a new hole has its own time": (
        [outcome(1), outcome(3), GAP_S - 1, outcome(0), GAP_S - 1],
        [b"0", b"1"],
    ),
    # all that was on its way died with the broker, and nothing comes behind it
    "not yet lost with a broker": ([outcome(0), outcome(3, SENT), GAP_S - 0.01], [b"0"]),
    "lost with a broker": (
        [outcome(0), outcome(3, SENT), GAP_S - 0.01, 0.01],
        [b"0", Unavailable.number],
    ),
    "late, but not lost with the broker": (
        [outcome(0), outcome(3, SENT), 3.0, outcome(1), outcome(2), GAP_S, outcome(3), 1000.0],
        [b"0", b"1", b"2", b"3"],
    ),
    "a part is lost with a broker": (
        [outcome(0), outcome(4, SENT), outcome(2), outcome(1), GAP_S - 0.01, 0.01],
        [b"0", b"1", b"2", Unavailable.number],
    ),
    "nothing is lost with a broker": ([outcome(0), outcome(1, SENT), 1000.0], [b"0"]),
    "lost with the first of two brokers": (
        [outcome(0), outcome(3, SENT), outcome(4, SENT), outcome(3), GAP_S],
        [b"0", Unavailable.number],
    ),
    "an end tells more": (
        [outcome(3, SENT), outcome(0), outcome(1), outcome(2, FINAL), 1000.0],
        [b"0", b"1", b"2"],
    ),
    "a new hole is lost, too": (
        [outcome(1), outcome(3), GAP_S - 1, outcome(0), GAP_S - 1, 1.0],
        [b"0", b"1", Unavailable.number],
    ),
}


@pytest.mark.parametrize(("events", "expected"), GAPS.values(), ids=GAPS)
def test_what_is_missing_is_an_error_in_time_and_not_before(
    clock: Clock, reader: Reader, events: list[wire.Outcome | float], expected: list[bytes | int]
) -> None:
    for event in events:
        if isinstance(event, float):
            clock.now += event
            reader.expire()
        else:
            reader.take(event, b"%d" % event.number)

    assert expected == read(reader)


def test_an_end_by_the_broker_comes_after_what_is_there(reader: Reader) -> None:
    reader.take(outcome(0), b"0")
    reader.take(outcome(2), b"2")

    reader.end(Unavailable("the stub is dead"))
    reader.take(outcome(1), b"1")

    assert ([b"0", Unavailable.number], [b"2", b"1"]) == (read(reader), reader.left())


@pytest.mark.parametrize(
    "arrivals",
    [[outcome(STREAM_WINDOW)], [outcome(2**60)], [outcome(2, FINAL), outcome(5)]],
    ids=["beyond the window", "far beyond it", "after the last"],
)
def test_a_stub_that_sends_what_it_may_not_loses_the_stream(
    reader: Reader, arrivals: list[wire.Outcome]
) -> None:
    for row in arrivals:
        reader.take(row, b"")

    assert [InternalError.number] == read(reader)


# ------------------------------------------------------------------ credits


HALF_WINDOW = STREAM_WINDOW // 2


@pytest.mark.parametrize(
    ("count", "size", "pause_s", "step"),
    [
        (3 * STREAM_WINDOW, 1, 0.0, HALF_WINDOW),
        (8, STEP // 2, 0.0, 2),
        (HALF_WINDOW - 1, 1, 1.0, HALF_WINDOW),
    ],
    ids=["responses", "bytes", "a slow one that keeps up"],
)
def test_the_stub_is_told_of_each_part_of_the_window_that_was_read(
    *, clock: Clock, reader: Reader, count: int, size: int, pause_s: float, step: int
) -> None:
    counts = []

    for number in range(count):
        reader.take(outcome(number), bytes(size))
        reader.pop()
        clock.now += pause_s
        counts.append(reader.untold())

    assert [0 if read % step else read for read in range(1, count + 1)] == counts


@pytest.mark.parametrize(
    ("count", "size", "expected"),
    [(STREAM_WINDOW, 1, [2, 4, 6, 8]), (20, STEP // 8, [2, 4, 6])],
    ids=["responses", "bytes"],
)
def test_the_stub_is_told_of_a_slow_reader_that_is_far_behind_now_and_then(
    clock: Clock, reader: Reader, count: int, size: int, expected: list[int]
) -> None:
    counts = []
    for number in range(count):
        reader.take(outcome(number), bytes(size))

    for _ in range(2 * len(expected)):
        reader.pop()
        clock.now += 0.0625
        counts.append(reader.untold())

    assert expected == [responses for responses in counts if responses]


def test_nobody_is_told_of_a_stream_that_is_over(reader: Reader) -> None:
    for number in range(STREAM_WINDOW):
        reader.take(outcome(number), b"x")
    reader.take(outcome(STREAM_WINDOW, FINAL), b"")

    read(reader)

    assert 0 == reader.untold()


# --------------------------------------------------- whatever the network does


@st.composite
def interleavings(draw: st.DrawFn) -> tuple[int, list[int]]:
    """Return the number of responses, and the order in which they come.

    Each way keeps its own order, the two ways do not keep each other's. Some are lost, some come
    again.
    """
    count = draw(st.integers(0, 40))
    goes_straight = [draw(st.booleans()) for _ in range(count)]
    straight = [n for n in range(count) if goes_straight[n]]
    brokered = [n for n in range(count) if not goes_straight[n]] + [count]
    arrivals: list[int] = []
    while straight or brokered:
        way = straight if straight and (not brokered or draw(st.booleans())) else brokered
        number = way.pop(0)
        fate = draw(st.sampled_from(["once"] * 18 + ["lost", "twice"]))
        if fate != "lost" or number == count:
            arrivals += [number] * (2 if fate == "twice" else 1)
    return count, arrivals


@given(interleavings(), st.data())
def test_any_interleaving_gives_the_order_or_an_error(
    case: tuple[int, list[int]], data: st.DataObject
) -> None:
    count, arrivals = case
    clock = Clock()
    reader = Reader(clock)
    got: list[bytes | int | None] = []

    for number in arrivals:
        clock.now += data.draw(st.sampled_from([0.0, 0.001, 0.02]))
        reader.take(outcome(number, FINAL if number == count else 0), b"%d" % number)
        if data.draw(st.booleans()):
            got += read(reader)
    clock.now += GAP_S
    reader.expire()
    got += read(reader)

    assert reader.was_final
    assert reader.deadline is None
    everything: list[bytes | int | None] = [b"%d" % n for n in range(count + 1)]
    if set(arrivals) == set(range(count + 1)):
        assert everything == got
    else:
        assert Unavailable.number == got[-1]
        assert everything[: len(got) - 1] == got[:-1]


@given(st.lists(st.tuples(st.integers(0, 300), st.booleans(), st.booleans()), max_size=60))
def test_nonsense_ends_a_stream_once_and_keeps_nothing(
    rows: list[tuple[int, bool, bool]],
) -> None:
    reader = Reader(Clock())
    finals = 0

    for number, is_final, is_error in rows:
        reader.take(outcome(number, FINAL if is_final else 0, 3 if is_error else 0), b"x")
        while reader.ready:
            finals += reader.pop()[3]

    assert finals == reader.was_final
    assert len(reader.left()) <= len(rows)


# ------------------------------------------------------------------ sockets


class World:
    """A gateway's streams, with the test as broker and as the stub's publisher."""

    def __init__(self, directory: Path, context: Any) -> None:
        self.directory = directory
        self.context = context
        self.replies: dict[int, object] = {}
        self.grants: list[wire.StreamAck] = []
        self.cancelled: list[int] = []
        self.discarded: list[bytes] = []
        #: Their context closes them.
        self.publishers: list[Any] = []
        self.streams = Streams(
            asyncio.get_running_loop(),
            OWN,
            str(directory),
            self.replies,
            tell=self.grants.append,
            cancel=self.cancelled.append,
            discard=self.discarded.append,
        )

    def open(self, own_id: int = 1, arrivals: Arrivals | None = None) -> ResponseStream:
        stream = ResponseStream(asyncio.get_running_loop(), own_id, arrivals)
        self.replies[own_id] = stream
        return stream

    def publisher(self, serial: int = STUB) -> Any:
        address = endpoints.stream_address(str(self.directory), serial)
        self.publishers.append(zmq_sockets.open_publisher(self.context, address))
        return self.publishers[-1]

    def reply(
        self, stream: ResponseStream, number: int, flags: int = 0, source: int = STUB
    ) -> None:
        # As in the gateway: with the final response nothing is asked any more.
        if flags:
            del self.replies[stream.own_id]
        row = wire.Reply(stream.own_id, 0, "", flags, number, source)
        self.streams.take_reply(stream, row, BODY)

    def publish(self, publisher: Any, *outcomes: wire.Outcome, topic: int = OWN) -> None:
        header = wire.encode(wire.Results(list(outcomes), []))
        zmq_sockets.send(publisher, [endpoints.topic(topic) + header, *[BODY for _ in outcomes]])

    async def subscribed(self, publisher: Any) -> bytes:
        """The next subscription or its end."""
        await until(lambda: zmq_sockets.has_input(publisher))
        [message] = zmq_sockets.receive(publisher)
        return message

    async def follow(self) -> tuple[Any, ResponseStream]:
        """A stub that this process hears, and a stream of which it has sent the first response."""
        publisher, stream = self.publisher(), self.open()
        self.reply(stream, 0)
        await self.subscribed(publisher)
        return publisher, stream

    async def items(self, stream: ResponseStream, count: int) -> list[StreamItem]:
        got: list[StreamItem] = []
        for _ in range(count):
            await asyncio.wait_for(stream.wait(), PATIENCE_S)
            got.append(stream.pop())
        return got


BODY = wire.encode_body(wire.ResponseBody({}, []))
SUBSCRIBED = b"\1" + endpoints.topic(OWN)


@asynccontextmanager
async def world(directory: Path) -> AsyncIterator[World]:
    with zmq.Context() as context:
        it = World(directory, context)
        try:
            yield it
        finally:
            it.streams.close()
            context.destroy(0)
            zmq.Context.instance().term()


def play(test: Callable[[World], Awaitable[None]]) -> None:
    async def in_world(directory: Path) -> None:
        async with world(directory) as it:
            await test(it)

    with TemporaryDirectory() as directory:
        asyncio.run(in_world(Path(directory)))


@scenario(play)
async def test_a_stub_that_answers_over_the_broker_is_subscribed_to_once(it: World, /) -> None:
    publisher = it.publisher()
    stream = it.open()

    it.reply(stream, 0)
    it.reply(stream, 1)
    assert SUBSCRIBED == await it.subscribed(publisher)
    it.publish(publisher, outcome(2), outcome(3))
    it.publish(publisher, outcome(4))

    assert 5 == len(await it.items(stream, 5))
    assert (3, 2) == (it.streams.direct, it.streams.brokered)
    assert not zmq_sockets.has_input(publisher)


@scenario(play)
async def test_an_end_by_the_broker_does_not_wait_for_what_its_stub_has_lost(it: World, /) -> None:
    stream = it.open()
    it.reply(stream, 0)
    row = wire.Reply(stream.own_id, Unavailable.number, "it died", FINAL, 0, 0)

    it.streams.take_reply(stream, row, b"")

    first, last = await it.items(stream, 2)
    assert first.error is None
    assert isinstance(last.error, Unavailable)
    assert last.is_final
    assert it.streams.brokered == 1, "the broker's own words are no response"


@scenario(play)
async def test_a_single_answer_needs_no_subscription(it: World, /) -> None:
    publisher = it.publisher()

    it.reply(it.open(), 0, FINAL)
    await asyncio.sleep(0.1)

    assert not zmq_sockets.has_input(publisher)


@scenario(play)
async def test_what_comes_straight_after_the_final_response_is_not_lost(it: World, /) -> None:
    publisher, stream = await it.follow()

    it.reply(stream, 2, FINAL)
    it.publish(publisher, outcome(1))

    items = await it.items(stream, 3)
    assert [False, False, True] == [item.is_final for item in items]
    assert [None] * 3 == [item.error for item in items]
    it.streams.left(stream)


@scenario(play)
async def test_what_never_comes_is_an_error_in_time(
    it: World, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LATE_S", 0.1)

    stream = it.open()
    it.reply(stream, 0)
    it.reply(stream, 2, FINAL)

    _, last = await it.items(stream, 2)

    assert last.is_final
    assert "response 1 of the stream was lost: send the request again" == str(last.error)


@scenario(play)
async def test_a_stream_that_has_lost_a_response_is_cancelled_though_its_client_reads_others(
    it: World, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GAP_S", 0.1)
    cancelled: list[int] = []
    stream = ResponseStream(asyncio.get_running_loop(), 1, cancel=cancelled.append)
    it.replies[1] = stream
    it.reply(stream, 0)
    it.streams.take_reply(stream, wire.Reply(1, 0, "", SENT, 2, STUB), b"")
    assert 1 == it.streams.brokered, "a count is no response"

    await until(lambda: cancelled)

    assert [1] == cancelled
    first, last = await it.items(stream, 2)
    assert (None, "response 1 of the stream was lost: send the request again") == (
        first.error,
        str(last.error),
    )


@pytest.mark.parametrize(
    "frames",
    [
        [b"\xff"],
        [wire.encode(wire.Welcome(1))],
        [wire.encode(wire.Results([outcome(0)], []))],
        [wire.encode(wire.Results([outcome(0)._replace(peer=OWN + 1)], [])), BODY],
        [wire.encode(wire.Results([outcome(0, FINAL)], [])), BODY],
        [wire.encode(wire.Results([outcome(0, code=3)], [])), b""],
    ],
    ids=["garbage", "kind", "bodies", "peer", "final", "error"],
)
@scenario(play)
async def test_nonsense_from_a_publisher_is_counted_and_dropped(
    it: World, /, frames: list[bytes]
) -> None:
    publisher, stream = await it.follow()

    zmq_sockets.send(publisher, [endpoints.topic(OWN) + frames[0], *frames[1:]])
    it.publish(publisher, outcome(1))

    assert (2, 1) == (len(await it.items(stream, 2)), it.streams.publishers.malformed)


@scenario(play)
async def test_a_stub_that_is_gone_is_let_go_of_when_the_next_one_comes(it: World, /) -> None:
    first, second = it.publisher(), it.publisher(STUB + 1)
    it.reply(it.open(1), 0)
    assert SUBSCRIBED == await it.subscribed(first)

    # As after a kill: whoever reaps it removes the file.
    os.unlink(endpoints.stream_path(str(it.directory), STUB))
    it.reply(it.open(2), 0, source=STUB + 1)

    assert SUBSCRIBED == await it.subscribed(second)
    assert b"\0" + endpoints.topic(OWN) == await it.subscribed(first)


@scenario(play)
async def test_a_stub_that_has_ended_is_not_waited_for(it: World, /) -> None:
    it.reply(it.open(), 0)

    # what is kept of a stub that ended would only grow
    assert not it.streams.publishers._sources


@scenario(play)
async def test_a_new_broker_is_told_how_far_each_reader_is_until_the_stub_must_know(
    it: World, /
) -> None:
    started, fresh = it.open(1), it.open(2)
    it.reply(started, 0, source=0)
    started.pop()
    assert not fresh.reader.ready

    it.streams.renew()
    await until(lambda: len(it.grants) >= 4)
    del it.replies[1], it.replies[2]

    assert {wire.StreamAck(OWN, 1, 1), wire.StreamAck(OWN, 2, 0)} == set(it.grants)


# ------------------------------------------------------------------- room


def test_a_placed_response_counts_with_what_it_refers_to(reader: Reader) -> None:
    tensor = wire.Tensor("T", 11, [3 << 18], wire.Reference(1, 1, 1, 0, 3 * MIB))
    body = PlacedBody(wire.encode_body(wire.ResponseBody({}, [tensor])))

    reader.take(outcome(0), body)
    assert 3 * MIB + len(body) == reader.arrivals.unread
    reader.pop()

    assert (1, 0) == (reader.untold(), reader.arrivals.unread)


def test_what_nobody_has_popped_can_be_dropped(reader: Reader) -> None:
    for number in (0, 1, 2, 4):
        reader.take(outcome(number), b"%d" % number)
    reader.pop()

    assert [b"1", b"2", b"4"] == reader.drop(Unavailable("no room"))

    reader.take(outcome(3), b"3")
    assert ([Unavailable.number], [b"3"]) == (read(reader), reader.left())


# --------------------------------------------------------------------- room


def _send(it: World, stream: ResponseStream, number: int, size: int, flags: int = 0) -> None:
    row = wire.Reply(stream.own_id, 0, "", flags, number, STUB)
    it.streams.take_reply(stream, row, bytes(size))


@scenario(asyncio.run)
async def test_a_grant_waits_for_room(tmp_path: Path) -> None:
    ledger = Ledger(64 * MIB)
    slow, other = LedgerClient(ledger), LedgerClient(ledger)
    async with world(tmp_path) as it:
        stream = it.open(arrivals=Arrivals(slow.share))
        _send(it, stream, 0, 9 * MIB)
        assert other.share.take(24 * MIB)

        other.share.add(28 * MIB)
        stream.reader.pop()
        it.streams.taken(stream)
        slow.moved += 1 * MIB
        # it hears that its reader goes on, and may not go on itself
        await until(lambda: it.grants)
        assert {wire.StreamAck(OWN, 1, 0)} == set(it.grants)

        other.share.release()
        await until(lambda: it.grants[-1].responses == 1)

    assert 0 == ledger.budget.held


@scenario(play)
async def test_a_client_that_stops_is_not_reported_as_one_that_goes_on(it: World, /) -> None:
    holder, still = LedgerClient(Ledger(64 * MIB)), LedgerClient(Ledger(64 * MIB))
    for number, one in enumerate((holder, still), start=1):
        _send(it, it.open(number, Arrivals(one.share)), 0, 9 * MIB)

    holder.owes = False
    await until(lambda: len(it.grants) >= 2)

    assert {1} == {grant.id for grant in it.grants}


@scenario(asyncio.run)
async def test_what_there_is_no_room_for_is_refused(tmp_path: Path) -> None:
    ledger = Ledger(32 * MIB)
    holder = LedgerClient(ledger)
    async with world(tmp_path) as it:
        streams = [it.open(number, Arrivals(holder.share)) for number in range(1, 9)]

        for stream in streams:
            _send(it, stream, 0, 8 * MIB)

        assert (ledger.budget.held + ledger.budget.borrowed) <= 32 * MIB + BORROWED_BYTES // 2 + MIB
        assert ([7, 8], 2) == (it.cancelled, len(it.discarded))
        items = await it.items(streams[-1], 1)
        assert [TOO_MANY_UNREAD] == [item.error.text for item in items if item.error]
        for stream in streams:
            stream.reader.arrivals.release()

    assert (0, 0) == (ledger.budget.held, ledger.budget.borrowed)


@scenario(play)
async def test_a_stream_that_keeps_up_takes_no_room(it: World, /) -> None:
    ledger = Ledger(32 * MIB)
    stream = it.open(arrivals=Arrivals(LedgerClient(ledger).share))
    for number in range(300):
        _send(it, stream, number, 100)
        stream.reader.pop()
        it.streams.taken(stream)
        assert 0 == ledger.budget.held


def test_an_error_that_is_raised_is_in_no_circle_with_its_frame() -> None:
    error = InvalidArgument("no").because(Kind.OTHER)
    item = StreamItem(None, error, is_final=True)
    with pytest.raises(InvalidArgument, match="no") as caught:
        item.content()

    assert caught.value.reason == error.reason
    assert error.__traceback__ is None
