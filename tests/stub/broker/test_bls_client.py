"""Questions to other models, with the test in the place of the broker and of the loop."""

from __future__ import annotations

import asyncio
import gc
import select
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.routers import FakeRouter
from tests.support.waiting import eventually
from zmqtriton_floor import endpoints, wire
from zmqtriton_floor.errors import (
    DeadlineExceeded,
    InternalError,
    InvalidArgument,
    Unavailable,
)
from zmqtriton_stub.api.bls import ResponseIterator
from zmqtriton_stub.broker.bls_call import BlsCall
from zmqtriton_stub.broker.bls_client import BlsClient
from zmqtriton_stub.broker.line import BrokerLine
from zmqtriton_stub.watch import Watch

pytestmark = pytest.mark.slow

_TOKEN = b"0123456789abcdef"
_ROW = wire.Request(0, 0, "m", -1, 0, 0, 0, 0, 1, 0, 0)
_STUB = 9


class Broker:
    """A ROUTER that does what the test says."""

    def __init__(self, directory: Path, epoch: int) -> None:
        self.socket = FakeRouter(endpoints.requests_address(str(directory), epoch))
        self.identity = b""

    def receive(self) -> tuple[Any, list[bytes]]:
        """The next message and its bodies."""
        assert self.socket.poll(10_000), "nothing was said"
        self.identity, header, *bodies = self.socket.receive()
        return wire.decode(header), bodies

    def hear_all(self, kind: type[Any], number: int) -> list[Any]:
        return [self._hear_one(kind) for _ in range(number)]

    def _hear_one(self, kind: type[Any]) -> Any:
        while True:
            message, _ = self.receive()
            if type(message) is kind:
                return message

    def reply(self, own_id: int, text: str = "", *outputs: wire.Tensor, **fields: Any) -> None:
        row = wire.Reply(own_id, 0, "", wire.FINAL, 0, _STUB)._replace(**fields)
        body = wire.encode_body(wire.ResponseBody({"text": text}, list(outputs)))
        self.socket.send([self.identity, wire.encode(wire.Replies([row])), body])

    def close(self) -> None:
        self.socket.close()


class FakeMemory:
    """Keeps what was freed and released."""

    def __init__(self) -> None:
        self.freed: list[wire.Block] = []
        self.released: list[wire.Block] = []
        #: Numbers of leases after which that is so, by calls.
        self.freed_after: list[int] = []

    def answered(self, blocks: list[wire.Block], after: int) -> None:
        self.freed += blocks
        self.freed_after.append(after)

    def release(self, blocks: list[wire.Block]) -> None:
        self.released += blocks


class World:
    """An asker and its brokers."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.brokers = [Broker(directory, 1)]
        self.memory = memory = FakeMemory()
        self.watch = watch = Watch()
        self.reads: list[bool] = []
        self.asker = BlsClient(
            self._bootstrap(1),
            cast(Any, memory),
            BrokerLine(watch.replies),
            watch,
            read_work=lambda: self.reads.append(True),
        )

    def _bootstrap(self, epoch: int) -> wire.Bootstrap:
        return wire.Bootstrap(7, _TOKEN, "stub", str(self._directory), epoch, "")

    @property
    def is_woken(self) -> bool:
        return bool(select.select([self.watch.bell_descriptor], [], [], 0)[0])

    @property
    def broker(self) -> Broker:
        return self.brokers[-1]

    def ask(self, body: bytes = b"body") -> BlsCall:
        return self.asker.ask(_ROW, body)

    def open(self, number: int, blocks: Any = ()) -> list[BlsCall]:
        """Calls that the broker has received."""
        calls = [self.asker.ask(_ROW, b"body", blocks) for _ in range(number)]
        self.broker.hear_all(wire.Infer, number)
        return calls

    def change_broker(self, between: Callable[[], object] = lambda: None) -> None:
        self.broker.close()
        self.brokers.append(Broker(self._directory, 2))
        self.asker.leave()
        between()
        self.asker.follow(self._bootstrap(2))

    def turn_until(self, condition: Callable[[], bool]) -> None:
        def look() -> bool:
            self.asker.turn()
            return condition()

        eventually(look, 60, "condition")

    def close(self) -> None:
        self.asker.close()
        for broker in self.brokers:
            broker.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


@pytest.fixture
def question(world: World) -> BlsCall:
    return world.open(1)[0]


@pytest.fixture
def waiting(world: World, question: BlsCall) -> Iterator[Future[Any]]:
    """A thread that waits for the reply to `question`."""
    with ThreadPoolExecutor(1) as threads:
        future = threads.submit(world.asker.wait, question)
        eventually(lambda: question.bell is not None, 60, "it polls")
        yield future


def _text(answered: tuple[wire.Reply, bytes]) -> str:
    return wire.decode_response(answered[1]).parameters["text"]


def test_the_first_question_says_hello_and_comes_after_it(world: World) -> None:
    question = world.ask(b"the body")

    assert (wire.Hello(7, _TOKEN, 1), []) == world.broker.receive()
    message, bodies = world.broker.receive()
    assert ([question.row], [b"the body"]) == (message.requests, bodies)


def test_the_main_thread_waits_for_its_own_reply(world: World) -> None:
    first, second = world.open(2)
    world.broker.reply(second.row.id, "second")
    world.broker.reply(first.row.id, "first")

    assert ("first", "second") == (_text(world.asker.wait(first)), _text(world.asker.wait(second)))
    assert {} == world.asker._open  # what is answered would only grow


def test_threads_get_their_own_replies_in_whichever_order_they_come(world: World) -> None:
    def ask(number: int) -> str:
        return _text(world.asker.wait(world.ask(str(number).encode())))

    with ThreadPoolExecutor(8) as threads:
        futures = [threads.submit(ask, number) for number in range(64)]
        left = 64
        while left:
            # As many as there are threads, answered from the last to the first.
            messages = [world.broker.receive() for _ in range(min(8, left))]
            if type(messages[0][0]) is wire.Hello:
                messages = [*messages[1:], world.broker.receive()]
            for message, [body] in reversed(messages):
                world.broker.reply(message.requests[0].id, body.decode())
            left -= len(messages)

        assert [str(n) for n in range(64)] == [future.result(10) for future in futures]


def test_a_reply_that_another_thread_takes_wakes_the_one_that_waits(
    world: World, question: BlsCall, waiting: Future[Any]
) -> None:
    world.broker.reply(question.row.id)
    world.turn_until(lambda: question.is_answered)

    waiting.result(10)


def test_blocks_are_freed_after_the_leases_that_were_sent_before_the_reply(world: World) -> None:
    first, second = world.open(2, [wire.Block(9, 1, 1)])
    world.broker.reply(first.row.id)
    world.asker.wait(first)
    world.broker.socket.send([world.broker.identity, wire.encode(wire.LeasesSent(4))])
    world.broker.reply(second.row.id)

    world.asker.wait(second)

    assert ([0, 4], [True]) == (world.memory.freed_after, world.reads)


def test_what_makes_no_sense_is_counted(world: World, question: BlsCall) -> None:
    identity = world.broker.identity
    world.broker.reply(77)
    world.broker.socket.send([identity, b"rubbish"])
    world.broker.socket.send([identity, wire.encode(wire.Listen())])
    world.broker.reply(question.row.id)

    world.asker.wait(question)

    assert 3 == world.asker.malformed


def test_a_question_that_cannot_be_sent_is_answered(world: World) -> None:
    assert "no" == world.asker.wait(world.asker.refused(InvalidArgument("no")))[0].text


# ----------------------------------------------------------------- streams


def test_the_stub_hears_how_far_its_reader_has_come(world: World, question: BlsCall) -> None:
    half = wire.STREAM_WINDOW // 2
    for number in range(half + 1):
        world.broker.reply(question.row.id, flags=0, number=number)
    question.granted_s += 60.0  # no time passes, however slow the machine is

    for _ in range(half + 1):
        world.asker.wait(question)

    [consumed] = world.broker.hear_all(wire.StreamAcks, 1)
    assert [wire.StreamAck(7, question.row.id, half)] == consumed.acks


def test_a_slow_reader_is_told_of_though_most_responses_are_not_read_yet(
    world: World, question: BlsCall
) -> None:
    half = wire.STREAM_WINDOW // 2
    for number in range(half - 1):
        world.broker.reply(question.row.id, flags=0, number=number)
    world.turn_until(lambda: question.received == half - 1)
    for number in range(half - 1, wire.STREAM_WINDOW):
        world.broker.reply(question.row.id, flags=0, number=number)

    def has_told() -> bool:
        question.granted_s -= 1.0  # it takes its time
        world.asker.wait(question)
        return question.granted > 0

    eventually(has_told, 60, "the sender hears of it")

    [consumed] = world.broker.hear_all(wire.StreamAcks, 1)
    assert [wire.StreamAck(7, question.row.id, question.taken)] == consumed.acks
    assert question.taken < half - 1, "before it has to read on"


def test_a_missing_response_ends_the_stream_with_an_error(world: World, question: BlsCall) -> None:
    for number in (0, 2, 3):
        world.broker.reply(question.row.id, flags=0, number=number)

    world.asker.wait(question)
    reply, _ = world.asker.wait(question)

    assert (InternalError.number, wire.FINAL) == (reply.code, reply.flags)
    assert [wire.Cancel([question.row.id])] == world.broker.hear_all(wire.Cancel, 1)
    assert world.asker.orphans
    world.broker.reply(question.row.id, number=4)
    world.turn_until(lambda: not world.asker.orphans)


def test_what_died_with_a_broker_ends_the_stream_with_an_error(
    world: World, question: BlsCall
) -> None:
    world.broker.reply(question.row.id, flags=0)
    world.asker.wait(question)
    world.change_broker()
    world.broker.hear_all(wire.Infer, 1)

    world.broker.reply(question.row.id, flags=wire.SENT, number=3)
    reply, _ = world.asker.wait(question)

    assert (InternalError.number, wire.FINAL) == (reply.code, reply.flags)
    [granted] = world.broker.hear_all(wire.StreamAcks, 1)
    assert 3 == granted.acks[0].responses, "nobody will take it"


def test_a_grant_that_may_have_died_with_a_broker_is_repeated(
    world: World, question: BlsCall
) -> None:
    world.broker.reply(question.row.id, flags=0)
    world.asker.wait(question)
    world.asker.grant(question, 1)
    world.change_broker()
    world.broker.hear_all(wire.Infer, 1)

    world.broker.reply(question.row.id, flags=wire.SENT, number=1)
    world.turn_until(lambda: world.broker.socket.poll(0))

    [granted] = world.broker.hear_all(wire.StreamAcks, 1)
    assert 1 == granted.acks[0].responses
    world.broker.reply(question.row.id, "next", number=1)
    assert "next" == _text(world.asker.wait(question))


def test_what_the_broker_gives_up_is_answered_before_its_inputs_are_free(world: World) -> None:
    [question] = world.open(1, [wire.Block(7, 1, 2)])
    world.broker.reply(question.row.id, "read", _referring(1), flags=0)
    world.broker.reply(question.row.id, "unread", _referring(2), flags=0, number=1)
    number = DeadlineExceeded.number
    world.broker.reply(question.row.id, code=number, source=0, flags=wire.ABANDONED)
    texts = [_text(world.asker.wait(question)) for _ in range(2)]
    reply, _ = world.asker.wait(question)

    assert ["read", "unread"] == texts
    assert (number, wire.FINAL) == (reply.code, reply.flags)
    assert [] == world.memory.freed
    world.broker.reply(question.row.id, "dropped", _referring(3), number=2)
    world.turn_until(lambda: not world.asker.orphans)
    assert [wire.Block(7, 1, 2)] == world.memory.freed
    assert [wire.Block(_STUB, 1, 3)] == world.memory.released


def test_of_what_was_given_up_the_unread_is_released_with_its_iterator(
    world: World, question: BlsCall
) -> None:
    iterator = ResponseIterator(world.asker, question)
    world.broker.reply(question.row.id, "unread", _referring(1), flags=0)
    world.broker.reply(question.row.id, code=8, source=0, flags=wire.ABANDONED)
    world.turn_until(lambda: question.is_answered)

    del iterator
    gc.collect()

    assert [wire.Block(_STUB, 1, 1)] == world.memory.released
    assert 1 == world.asker.orphans
    world.broker.reply(question.row.id, number=1)
    world.turn_until(lambda: not world.asker.orphans)


def test_the_next_broker_is_told_that_it_was_given_up(world: World, question: BlsCall) -> None:
    world.broker.reply(question.row.id, code=8, source=0, flags=wire.ABANDONED)
    world.asker.wait(question)

    world.change_broker()

    assert [question.row.id] == [a.requests[0].id for a in world.broker.hear_all(wire.Infer, 1)]
    assert [wire.Cancel([question.row.id])] == world.broker.hear_all(wire.Cancel, 1)


def test_an_iterator_that_is_let_go_lets_the_other_model_go_on(
    world: World, question: BlsCall
) -> None:
    iterator = ResponseIterator(world.asker, question)

    del iterator
    gc.collect()

    assert world.is_woken
    assert world.asker.orphans
    [at_once] = world.broker.hear_all(wire.StreamAcks, 1)
    half = wire.STREAM_WINDOW // 2
    for number in range(half):
        world.broker.reply(question.row.id, flags=0, number=number)
    world.turn_until(lambda: question.received == half)
    [later] = world.broker.hear_all(wire.StreamAcks, 1)
    assert [0, half] == [grant.responses for grant in (*at_once.acks, *later.acks)]
    assert question.inbox.empty()
    world.broker.reply(question.row.id, number=half)
    world.turn_until(lambda: not world.asker.orphans)


def test_an_iterator_begins_again_when_it_is_through(world: World, question: BlsCall) -> None:
    world.broker.reply(question.row.id, "a", flags=0)
    world.broker.reply(question.row.id, "b", number=1)
    iterator = ResponseIterator(world.asker, question)

    first, second = list(iterator), list(iterator)

    assert ['{"text":"a"}', '{"text":"b"}'] == [response.parameters() for response in first]
    assert first == second


def test_cancelling_twice_says_it_once(world: World, question: BlsCall) -> None:
    world.asker.cancel(question)
    world.asker.cancel(question)
    world.ask()

    assert wire.Cancel([question.row.id]) == world.broker.receive()[0]
    assert wire.Infer is type(world.broker.receive()[0])


# ------------------------------------------------------------------ memory


def _referring(number: int) -> wire.Tensor:
    return wire.Tensor("OUT", 11, [1024], wire.Reference(_STUB, 1, number, 0, 4096))


def test_responses_that_nobody_reads_are_released(world: World, question: BlsCall) -> None:
    iterator = ResponseIterator(world.asker, question)
    world.broker.reply(question.row.id, "here", _referring(1), flags=0)
    world.turn_until(lambda: question.received == 1)

    del iterator
    gc.collect()
    world.broker.reply(question.row.id, "late", _referring(2), number=1)
    world.turn_until(lambda: not world.asker.orphans)

    assert [wire.Block(_STUB, 1, number) for number in (1, 2)] == world.memory.released


def test_a_stream_that_is_complete_here_and_was_not_read_is_released_too(
    world: World, question: BlsCall
) -> None:
    world.broker.reply(question.row.id, "here", _referring(1))
    world.turn_until(lambda: question.is_answered)

    world.asker.drop(question)

    assert [wire.Block(_STUB, 1, 1)] == world.memory.released
    assert not world.asker.orphans


# ----------------------------------------------------------------- asyncio


def _ask_async(world: World, loop: Any) -> asyncio.Future[str]:
    future: asyncio.Future[str] = loop.create_future()

    def notify(question: BlsCall) -> None:
        answered = question.inbox.get()
        assert answered is not None
        loop.call_soon_threadsafe(future.set_result, _text(answered))

    world.asker.ask(_ROW, b"", notify=notify)
    world.watch.add_loop(loop, world.asker.turn)
    future.add_done_callback(lambda _: world.watch.remove_loop(loop))
    return future


def test_an_event_loop_takes_replies_as_they_come(world: World) -> None:
    async def ask() -> list[str]:
        loop = asyncio.get_running_loop()
        futures = [_ask_async(world, loop) for _ in range(20)]
        for message in world.broker.hear_all(wire.Infer, 20):
            world.broker.reply(message.requests[0].id, str(message.requests[0].id))
        return await asyncio.wait_for(asyncio.gather(*futures), 10)

    assert [str(number) for number in range(1, 21)] == asyncio.run(ask())
    assert {} == world.watch.loops


# ------------------------------------------------------------------ broker


def test_a_dead_broker_is_not_listened_to_any_more(world: World) -> None:
    world.open(1)
    poller = select.poll()
    poller.register(world.watch.replies, select.POLLIN)

    world.broker.close()

    # The end of a connection can be read for ever.
    world.turn_until(lambda: not poller.poll(0))


def test_the_next_broker_is_asked_again_for_what_is_open(world: World) -> None:
    answered, opened, cancelled = world.open(3)
    world.broker.reply(answered.row.id)
    world.asker.wait(answered)
    world.asker.cancel(cancelled)

    world.change_broker(world.ask)

    assert wire.Hello(7, _TOKEN, 2) == world.broker.receive()[0]
    [first] = world.broker.receive()[0].requests
    [second] = world.broker.receive()[0].requests
    assert [opened.row.id, cancelled.row.id] == [first.id, second.id]
    assert [wire.RESENT] * 2 == [first.flags, second.flags]
    assert wire.Cancel([cancelled.row.id]) == world.broker.receive()[0]
    assert not world.broker.receive()[0].requests[0].flags, "the dead one was not asked"
    world.broker.reply(opened.row.id, "after all")
    assert "after all" == _text(world.asker.wait(opened))


def test_what_a_dead_broker_had_answered_is_not_asked_again(world: World) -> None:
    """A model that computes for long reads late, and who has answered forgets after a second."""
    answered, opened = world.open(2)
    world.broker.reply(answered.row.id, "in time")

    world.change_broker()

    assert wire.Hello(7, _TOKEN, 2) == world.broker.receive()[0]
    assert [opened.row.id] == [row.id for row in world.broker.receive()[0].requests]
    assert "in time" == _text(world.asker.wait(answered))


def test_a_thread_that_waits_follows_to_the_next_broker(
    world: World, question: BlsCall, waiting: Future[Any]
) -> None:
    world.change_broker()
    world.broker.hear_all(wire.Infer, 1)
    world.broker.reply(question.row.id, "here")

    assert "here" == _text(waiting.result(10))


def test_at_the_end_whoever_waits_gets_an_error(world: World, waiting: Future[Any]) -> None:
    world.asker.close()

    assert Unavailable.number == waiting.result(10)[0].code
    assert Unavailable.number == world.asker.wait(world.ask())[0].code


# ------------------------------------------------------------------- calls of others


def test_a_call_whose_wait_is_interrupted_is_dropped(
    world: World, question: BlsCall, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(world.watch, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        world.asker.wait(question)

    assert question.is_dropped


def test_what_somebody_else_has_taken_is_told_at_once_until_the_answer(
    world: World, question: BlsCall
) -> None:
    world.asker.grant(question, 3)

    told, _ = world.broker.receive()
    assert [(question.row.id, 3)] == [(ack.id, ack.responses) for ack in told.acks]
    world.broker.reply(question.row.id)
    world.turn_until(lambda: question.is_answered)
    world.asker.grant(question, 4)
    assert not world.broker.socket.poll(50)
