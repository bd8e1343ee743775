"""A gateway between a broker and a supervisor that are the test; brokers die."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import zmq

from tests.frontends.gateway.awaited import AwaitedSink, infer
from tests.supervisor.settings import settings as server_settings
from tests.support.routers import FakeRouter
from tests.support.scenarios import scenario
from tests.support.segments import segment
from tests.support.waiting import loop_turns, until
from zmqtriton_floor import endpoints, wire
from zmqtriton_floor.errors import DeadlineExceeded, Unavailable
from zmqtriton_floor.lifeline import Lifeline, pair
from zmqtriton_frontends.gateway import broker_link
from zmqtriton_frontends.gateway.control_calls import ControlCalls
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.gateway.pending import Pending
from zmqtriton_frontends.inference.admission import CheckedRequest, SchedulingOptions, prepare

TOKEN = b"0123456789abcdef"
NEWS = wire.VersionInfo(
    4, "m", 1, "READY", None, 1, json.dumps({"name": "m", "max_batch_size": 0}), b""
)
SEQUENCES = NEWS._replace(
    generation=6,
    model="s",
    config=json.dumps({"name": "s", "max_batch_size": 0, "sequence_batching": {}}),
)
BODY = wire.RequestBody("r", {}, [], [])
NO_OPTIONS = SchedulingOptions()
PATIENCE_S = 20.0

_LARGE = 100_000
_LARGE_BODY = wire.RequestBody(
    "", {}, [], [wire.Tensor("IN", 2, [_LARGE], memoryview(bytes(_LARGE)))]
)
_SETTINGS = server_settings().document("grpc")


class Around:
    """The surroundings of a gateway. Epochs count the brokers; there is one, or none."""

    def __init__(self, directory: Path) -> None:
        ours, theirs = pair()
        self.lifeline = Lifeline(ours)
        self.gateway = Gateway(Lifeline(theirs))
        self._directory = str(directory)
        self._router: Any = None
        self._identity = b""

    def listen(self, epoch: int) -> None:
        self._router = FakeRouter(endpoints.requests_address(self._directory, epoch))

    def die(self) -> None:
        self._router.close()
        self._router = None

    async def start(self) -> None:
        self.listen(1)
        self.lifeline.send(wire.Bootstrap(5, TOKEN, "grpc", self._directory, 1, _SETTINGS))
        self.lifeline.send(NEWS)
        starting = asyncio.ensure_future(self.gateway.start())
        await self.welcome(1)
        await starting

    async def lose_broker(self) -> None:
        """The broker dies, and the supervisor tells that there is none."""
        self.die()
        self.lifeline.send(wire.NewEpoch(0))
        await until(lambda: not self.gateway.catalogue.has_broker)

    async def replace(self, epoch: int) -> None:
        """The supervisor tells of the next broker, which says Welcome."""
        self.listen(epoch)
        self.lifeline.send(wire.NewEpoch(epoch))
        await self.welcome(epoch)

    async def welcome(self, epoch: int) -> None:
        for greeting in (wire.Hello(5, TOKEN, epoch), wire.HeldBlocks([], 1)):
            assert (await self.receive())[0] == greeting
        self.send(wire.Welcome(epoch))

    async def receive(self) -> tuple[Any, list[bytes]]:
        """The next message to the broker, and its bodies."""
        await until(lambda: self._router.poll(0))
        self._identity, header, *bodies = self._router.receive()
        return wire.decode(header), bodies

    async def hear_requests(self) -> list[wire.Request]:
        message, bodies = await self.receive()
        assert type(message) is wire.Infer
        assert [wire.decode_request(body) for body in bodies] == [BODY] * len(message.requests)
        return message.requests

    def send(self, message: Any, *bodies: bytes) -> None:
        self._router.send([self._identity, wire.encode(message), *bodies])

    def answer(self, own_id: int, outputs: str = "") -> None:
        body = wire.encode_body(wire.ResponseBody({"is": outputs}, []))
        self.send(wire.Replies([wire.Reply(own_id, 0, "", wire.FINAL)]), body)

    def refuse(self, own_id: int) -> None:
        self.send(wire.Replies([wire.Reply(own_id, Unavailable.number, "no", wire.FINAL)]), b"")

    def infer(self) -> asyncio.Task[wire.ResponseBody]:
        return self.infer_soon(self.request())

    async def ask(self) -> tuple[asyncio.Task[wire.ResponseBody], wire.Request]:
        """Return who waits for the answer, and what the broker has heard."""
        waiting = self.infer()
        [row] = await self.hear_requests()
        return waiting, row

    async def exchange(
        self, request: CheckedRequest | None = None
    ) -> tuple[wire.Request, wire.ResponseBody]:
        """Ask and answer; return what the broker has heard, and the response."""
        waiting = self.infer_soon(request or self.request())
        [row] = await self.hear_requests()
        self.answer(row.id)
        return row, await waiting

    def infer_soon(self, request: CheckedRequest) -> asyncio.Task[wire.ResponseBody]:
        return asyncio.ensure_future(infer(self.gateway, request))

    def request(self, model: str = "m", options: SchedulingOptions = NO_OPTIONS) -> CheckedRequest:
        return prepare(self.gateway.catalogue, self.gateway.catalogue.find(model), BODY, options)

    async def is_refused(self, model: str = "m", options: SchedulingOptions = NO_OPTIONS) -> None:
        with pytest.raises(Unavailable, match="Server is stopping, scheduler for model has"):
            await infer(self.gateway, self.request(model, options))

    async def read_one_response(self) -> tuple[AsyncGenerator[Any, None], int]:
        """Return a stream of which one response was read, and the number of its request."""
        stream = self.gateway.stream(self.request())
        first = asyncio.ensure_future(anext(stream))
        [request] = await self.hear_requests()
        self.send(wire.Replies([wire.Reply(request.id, 0, "", 0)]), b"")
        await first
        return stream, request.id

    def close(self) -> None:
        self.gateway.close()
        self.lifeline.close()
        if self._router is not None:
            self._router.close()
        # The gateway's own, which would stay for the whole session.
        zmq.Context.instance().term()


def play(test: Callable[[Around], Awaitable[None]]) -> None:
    async def in_world(directory: str) -> None:
        with closing(Around(Path(directory))) as world:
            await world.start()
            await test(world)

    with TemporaryDirectory() as directory:
        asyncio.run(in_world(directory))


@scenario(play)
async def test_what_a_dead_broker_left_unanswered_is_asked_of_the_next_under_the_same_ids(
    world: Around, /
) -> None:
    answered, lost = world.infer(), world.infer()
    first, second = await world.hear_requests()
    world.answer(first.id, "old")
    assert (await answered).parameters == {"is": "old"}
    world.die()

    await world.replace(2)
    [again] = await world.hear_requests()
    world.answer(again.id, "new")

    assert again == second._replace(flags=wire.RESENT)
    assert (await lost).parameters == {"is": "new"}
    assert world.gateway.in_flight == 0


async def is_asked_and_cancelled_again(
    world: Around, row: wire.Request, end: Callable[[int], None]
) -> None:
    """Check that the next broker hears of the request and of its cancelling, and then its end."""
    world.die()
    await world.replace(2)
    [again] = await world.hear_requests()
    cancel, _ = await world.receive()
    end(row.id)
    await until(lambda: not world.gateway.in_flight)

    assert again.id == row.id
    assert cancel == wire.Cancel([row.id])


@scenario(play)
async def test_a_cancelled_request_is_cancelled_at_the_next_broker_too(world: Around, /) -> None:
    waiting, row = await world.ask()
    waiting.cancel()
    await world.receive()

    await is_asked_and_cancelled_again(world, row, world.refuse)


@scenario(play)
async def test_what_the_broker_gives_up_is_answered_at_once_and_open_until_its_end(
    world: Around, /
) -> None:
    waiting, row = await world.ask()
    early = wire.Reply(row.id, DeadlineExceeded.number, "too late", wire.ABANDONED)
    world.send(wire.Replies([early]), b"")

    with pytest.raises(DeadlineExceeded, match="too late"):
        await waiting
    assert 1 == world.gateway.in_flight

    await is_asked_and_cancelled_again(world, row, world.answer)


@scenario(play)
async def test_statistics_are_asked_again(world: Around, /) -> None:
    waiting = asyncio.ensure_future(world.gateway.statistics("m"))
    question, _ = await world.receive()
    world.die()

    await world.replace(2)
    again, _ = await world.receive()
    world.send(wire.CallResult(again.id, 0, "", '{"model_stats": []}'))

    assert again == question
    assert await waiting == {"model_stats": []}


@scenario(asyncio.run)
async def test_second_and_late_answers_to_a_question_are_dropped() -> None:
    questions: list[Any] = []
    calls = ControlCalls(questions.append, questions.append)
    waiting = asyncio.ensure_future(calls.statistics("m"))
    await asyncio.sleep(0)

    answers = [wire.CallResult(questions[0].id, 0, "", text) for text in ("{}", '{"is": 2}')]
    for answer in answers:
        calls.settle(answer)
    assert {} == await waiting
    calls.settle(answers[0])
    assert [] == [*calls.for_next_broker()]


@scenario(play)
async def test_nothing_is_ready_without_a_broker_and_requests_may_still_be_made(
    world: Around, /
) -> None:
    catalogue = world.gateway.catalogue
    before = (catalogue.is_ready(), catalogue.is_model_ready("m"))
    await world.lose_broker()
    without = (catalogue.is_ready(), catalogue.is_model_ready("m"))
    assert catalogue.find("m").is_loaded

    await world.replace(2)
    await until(lambda: catalogue.has_broker)

    assert (before, without) == ((True, True), (False, False))
    assert (catalogue.is_ready(), catalogue.is_model_ready("m")) == before


@pytest.mark.parametrize("is_strict", [True, False])
@scenario(play)
async def test_without_a_broker_a_server_is_not_ready_in_any_mode(
    world: Around, /, is_strict: bool
) -> None:
    world.gateway.catalogue.strict_readiness = is_strict
    world.gateway.catalogue.has_broker = False

    assert not world.gateway.catalogue.is_ready()


@scenario(play)
async def test_a_second_answer_is_dropped_and_what_travels_with_it_is_not(world: Around, /) -> None:
    row, _ = await world.exchange()
    second, next_asked = await world.ask()

    replies = [wire.Reply(i, 0, "", wire.FINAL) for i in (row.id, next_asked.id)]
    body = wire.encode_body(wire.ResponseBody({}, []))
    world.send(wire.Replies(replies), body, body)

    assert (await second).outputs == []
    assert world.gateway.malformed == 1


@scenario(play)
async def test_many_replies_of_one_message_leave_others_their_turns(
    world: Around, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[int] = []
    answers: list[Any] = []

    class Noted(AwaitedSink):
        """Notes in which turn of the loop it was answered."""

        turn = 0

        def respond(self, pending: Pending, response: wire.ResponseBody, /) -> None:
            turns.append(Noted.turn)
            answers.append(response.parameters["number"])

    loop = asyncio.get_running_loop()
    bodies = [wire.encode_body(wire.ResponseBody({"number": number}, [])) for number in range(20)]
    for _ in range(20):
        Pending(world.gateway, Noted()).start(world.request())
    rows = await world.hear_requests()
    monkeypatch.setattr(broker_link, "monotonic", itertools.count().__next__)

    def count() -> None:
        Noted.turn += 1
        if len(turns) < 20:
            loop.call_soon(count)

    replies = [wire.Reply(row.id, 0, "", wire.FINAL) for row in rows]
    replies[3] = wire.Reply(12345, 0, "", wire.FINAL)  # which nobody has asked
    world.send(wire.Replies(replies), *bodies)
    count()
    await until(lambda: len(turns) == 19)
    assert [0, 1, 2, *range(4, 20)] == answers

    turns.append(0)
    assert len({*turns}) > 10
    assert 1 == world.gateway.malformed


@pytest.mark.usefixtures("no_garbage_collection")
@scenario(play)
async def test_a_request_that_failed_is_gone_before_any_collection(world: Around, /) -> None:
    class Mark:
        def __call__(self) -> None:
            pass

    mark = Mark()
    left = weakref.ref(mark)
    request = world.request()._replace(on_asked=mark)
    failing = world.infer_soon(request)
    del mark, request
    [row] = await world.hear_requests()
    world.refuse(row.id)
    await asyncio.wait([failing])
    assert type(failing.exception()) is Unavailable

    del failing

    assert left() is None


@pytest.mark.row("C50", "E78")
@scenario(play)
async def test_while_the_server_stops_only_sequences_go_on(world: Around, /) -> None:
    world.lifeline.send(SEQUENCES)
    retired: list[bool] = []
    world.gateway.on_retire.append(lambda: retired.append(world.gateway.is_stopping))
    world.lifeline.send(wire.Retire(0))
    await until(lambda: retired == [True])

    for correlation in (7, "seven"):
        going_on = world.request("s", SchedulingOptions(0, correlation=correlation))
        row, response = await world.exchange(going_on)
        assert (correlation, {"is": ""}) == (row.correlation, response.parameters)

    await world.is_refused()
    await world.is_refused("m", SchedulingOptions(0, correlation=7))
    await world.is_refused("s", SchedulingOptions(wire.SEQUENCE_START, correlation=7))
    world.lifeline.send(wire.Shutdown(1000))
    await until(lambda: world.gateway.is_ending)
    await world.is_refused("s", SchedulingOptions(0, correlation=7))


@pytest.mark.row("C50", "E78")
@pytest.mark.parametrize("begins_s", [0.0, math.inf])
@scenario(play)
async def test_a_frontend_that_sends_its_clients_away_takes_what_they_ask_meanwhile(
    world: Around, /, begins_s: float
) -> None:
    world.gateway.begins_sequences_s = begins_s
    world.lifeline.send(SEQUENCES)
    world.lifeline.send(wire.Retire(0))
    world.lifeline.send(wire.Shutdown(1000))
    await until(lambda: world.gateway.is_ending)

    for model, options in (("m", SchedulingOptions()), ("s", SchedulingOptions(0, correlation=7))):
        await world.exchange(world.request(model, options))

    beginning = "s", SchedulingOptions(wire.SEQUENCE_START, correlation=8)
    if begins_s:
        await world.exchange(world.request(*beginning))
    else:
        await world.is_refused(*beginning)


@scenario(play)
async def test_a_frontend_hears_when_the_server_drains(world: Around, /) -> None:
    heard: list[bool] = []
    catalogue = world.gateway.catalogue
    catalogue.on_draining.append(lambda: heard.append(catalogue.is_draining))

    world.lifeline.send(wire.ServerDraining(1))
    world.lifeline.send(wire.ServerDraining(0))

    await until(lambda: len(heard) == 2)
    assert [True, False] == heard


@scenario(play)
async def test_a_request_that_is_refused_when_its_tensors_are_placed_leaves_no_block(
    world: Around, /
) -> None:
    arena = world.gateway.payload.arena
    wish = arena.segment_request(_LARGE)
    arena.add(wish, segment(wish.size))
    world.lifeline.send(wire.Retire(0))
    await until(lambda: world.gateway.is_stopping)

    with pytest.raises(Unavailable, match="Server is stopping"):
        await infer(world.gateway, world.request()._replace(body=_LARGE_BODY))

    assert 0 == arena.used


@scenario(play)
async def test_a_change_is_confirmed_after_requests_that_wait_for_memory(world: Around, /) -> None:
    """Their version is replaced, and ends when all have confirmed."""
    heard: list[Any] = []

    def hear() -> Any:
        heard.extend(message for message, _ in world.lifeline.receive())
        return heard

    answering = world.infer_soon(world.request()._replace(body=_LARGE_BODY))
    world.lifeline.send(wire.Sync(1))
    await until(lambda: [m for m in hear() if type(m) is wire.CreateSegment])
    [wish] = [m for m in heard if type(m) is wire.CreateSegment]
    world.lifeline.send(wire.Sync(2))
    await loop_turns(100)
    assert [] == [m for m in hear() if type(m) is wire.Synced]

    world.lifeline.send(wire.SegmentCreated(wish.segment, 0, ""), segment(wish.size))
    await until(lambda: wire.Synced(2) in hear())

    message, _ = await world.receive()
    world.answer(message.requests[0].id)
    await answering
    assert 0 == world.gateway.payload.arena.used


@pytest.mark.row("C50")
@scenario(play)
async def test_a_stop_while_there_is_no_broker_refuses_new_requests_only(world: Around, /) -> None:
    old = world.infer()
    await world.hear_requests()
    await world.lose_broker()
    world.lifeline.send(wire.Shutdown(1000))
    await until(lambda: world.gateway.is_stopping)
    await world.is_refused()

    await world.replace(2)
    [again] = await world.hear_requests()
    world.answer(again.id)

    assert (await old).outputs == []


@scenario(asyncio.run)
async def test_a_process_that_has_not_heard_of_its_server_yet_can_end(tmp_path: Path) -> None:
    world = Around(tmp_path)
    starting = asyncio.ensure_future(world.gateway.start())
    await asyncio.sleep(0)

    starting.cancel()
    world.close()

    with pytest.raises(asyncio.CancelledError):
        await starting


@pytest.mark.parametrize("count", [1, 20])
@scenario(play)
async def test_replies_that_lack_bodies_answer_nothing(world: Around, /, count: int) -> None:
    answer, asked = await world.ask()

    replies = [wire.Reply(asked.id + i, 0, "", wire.FINAL) for i in range(count)]
    body = wire.encode_body(wire.ResponseBody({"is": "wrong"}, []))
    world.send(wire.Replies(replies), *[body] * (count - 1))
    world.answer(asked.id, "right")

    assert (await answer).parameters == {"is": "right"}
    assert world.gateway.malformed == 1


@scenario(play)
async def test_a_stream_that_is_closed_early_is_cancelled(world: Around, /) -> None:
    stream, number = await world.read_one_response()

    await stream.aclose()

    message, _ = await world.receive()
    assert message == wire.Cancel([number])


@scenario(play)
async def test_the_next_broker_hears_how_far_a_stream_was_read(world: Around, /) -> None:
    stream, number = await world.read_one_response()
    world.die()

    await world.replace(2)

    messages = [(await world.receive())[0] for _ in range(2)]
    assert wire.StreamAcks([wire.StreamAck(5, number, 1)]) in messages
    await stream.aclose()


@scenario(play)
async def test_what_a_response_lies_in_is_released_though_nobody_waits_any_more(
    world: Around, /
) -> None:
    waiting, row = await world.ask()
    waiting.cancel()
    await world.receive()
    lies_in = wire.Reference(9, 1, 4, 0, _LARGE)
    response = wire.ResponseBody({}, [wire.Tensor("OUT", 2, [_LARGE], lies_in)])

    world.send(wire.Replies([wire.Reply(row.id, 0, "", wire.FINAL)]), wire.encode_body(response))

    assert (wire.Release([wire.Block(9, 1, 4)]), []) == await world.receive()


@scenario(play)
async def test_calls_that_the_supervisor_has_no_time_for_reach_it_later(world: Around, /) -> None:
    calls = [world.gateway.call("v", {"size": "x" * 100_000}) for _ in range(20)]
    waiting = asyncio.gather(*calls)
    await asyncio.sleep(0)
    heard: list[Any] = []

    def hear() -> int:
        heard.extend(message for message, _ in world.lifeline.receive())
        return len(heard)

    await until(lambda: hear() == len(calls))

    assert {wire.Call} == {type(message) for message in heard}
    waiting.cancel()


@scenario(play)
async def test_what_is_under_way_when_the_process_ends_is_answered_and_cancelled(
    world: Around, /
) -> None:
    stream = world.gateway.stream(world.request())
    streaming = asyncio.ensure_future(anext(stream))
    answering = world.infer()
    rows = await world.hear_requests()

    world.gateway.give_up()

    with pytest.raises(Unavailable, match="not complete in time: ask again"):
        await answering
    item = await streaming
    assert (True, Unavailable) == (item.is_final, type(item.error))
    message, _ = await world.receive()
    assert message == wire.Cancel([row.id for row in rows])
    await stream.aclose()
