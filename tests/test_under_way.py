"""What HTTP's and gRPC's shortcuts have in common, with the test in the gateway's place."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from zmqtriton_floor.check import Admission
from zmqtriton_floor.errors import Unavailable
from zmqtriton_floor.memory import INLINE_BYTES
from zmqtriton_floor.wire import Reference, RequestBody, ResponseBody, Tensor, encode_body
from zmqtriton_frontends.kserve import CheckedRequest, Options
from zmqtriton_frontends.under_way import UnderWay

SMALL = ResponseBody({}, [Tensor("OUTPUT0", 11, [2], b"abcdefgh")])
LARGE = ResponseBody({}, [Tensor("OUTPUT0", 11, [50_000], Reference(9, 1, 2, 0, 200_000))])
OPENED = ResponseBody({}, [Tensor("OUTPUT0", 11, [50_000], bytes(200_000))])


class FakePayload:
    """A segment that is there a turn later."""

    def __init__(self) -> None:
        self.opened: list[ResponseBody] = []
        self.problem: Exception | None = None

    async def open(self, response: ResponseBody) -> ResponseBody:
        self.opened.append(response)
        await asyncio.sleep(0)
        if self.problem is not None:
            raise self.problem
        return OPENED


class FakeGateway:
    """Notes what it is asked; large requests are never answered."""

    def __init__(self) -> None:
        self.payload = FakePayload()
        self.begun: list[UnderWay] = []
        self.cancelled: list[int] = []
        self.infers = 0

    def begin(self, request: CheckedRequest, reply: UnderWay) -> int:
        self.begun.append(reply)
        return len(self.begun)

    def cancel(self, own_id: int) -> None:
        self.cancelled.append(own_id)

    async def infer(self, request: CheckedRequest) -> ResponseBody:
        self.infers += 1
        try:
            return await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.cancelled.append(0)
            raise


class Noted(UnderWay):
    """Keeps its answer."""

    SENDING = "SEND"

    def __init__(self, gateway: Any) -> None:
        super().__init__(gateway)
        self.answers: list[ResponseBody | Exception] = []

    def ask(self, size: int = 8) -> None:
        nothing: Any = None  # what is of no importance here
        body = RequestBody("", {}, [], [Tensor("INPUT0", 11, [size // 4], bytes(size))])
        self._send(CheckedRequest(nothing, body, Admission(0, 0), Options(), {}))

    def work(self, work: Awaitable[ResponseBody]) -> None:
        async def done() -> ResponseBody:
            return await work

        self._await(done(), self._respond)

    def _respond(self, response: ResponseBody) -> None:
        self.answers.append(response)

    def _refuse(self, error: Exception) -> None:
        self.answers.append(error)


class World:
    def __init__(self) -> None:
        self.gateway = FakeGateway()
        self.one = Noted(self.gateway)

    async def turn(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


def play(scenario: Callable[[World], Awaitable[None]]) -> None:
    complaints: list[dict[str, Any]] = []

    async def all_of_it() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, what: complaints.append(what))
        await scenario(World())
        gc.collect()

    asyncio.run(all_of_it())
    assert [] == complaints


def test_a_small_response_is_answered_within_the_call() -> None:
    async def scenario(world: World) -> None:
        world.one.ask()

        world.one.set_result(encode_body(SMALL))

        assert [SMALL] == world.one.answers
        assert [] == world.gateway.payload.opened

    play(scenario)


def test_a_response_with_large_tensors_is_opened_first() -> None:
    async def scenario(world: World) -> None:
        world.one.ask()

        world.one.set_result(encode_body(LARGE))
        assert [] == world.one.answers
        await world.turn()

        assert [OPENED] == world.one.answers

    play(scenario)


def test_who_leaves_when_the_response_is_there_leaves_none_of_its_memory_leased() -> None:
    async def scenario(world: World) -> None:
        world.one.ask()

        world.one.set_result(encode_body(LARGE))
        world.one.cancel()  # before the loop has turned
        await world.turn()

        assert [LARGE] == world.gateway.payload.opened
        assert [] == world.one.answers

    play(scenario)


def test_what_cannot_be_opened_is_an_error_to_who_waits_and_to_nobody_else() -> None:
    async def scenario(world: World) -> None:
        world.gateway.payload.problem = problem = Unavailable("gone")
        other = Noted(world.gateway)

        for one in (world.one, other):
            one.ask()
            one.set_result(encode_body(LARGE))
        other.cancel()
        await world.turn()

        assert [problem] == world.one.answers
        assert [] == other.answers

    play(scenario)


def test_a_body_that_is_no_response_is_an_error() -> None:
    async def scenario(world: World) -> None:
        world.one.ask()

        world.one.set_result(b"nonsense")

        assert ["a body that is no response"] == [str(error) for error in world.one.answers]

    play(scenario)


@pytest.mark.parametrize(("size", "own_id", "infers"), [(8, 1, 0), (INLINE_BYTES + 8, 0, 1)])
def test_who_leaves_has_the_request_cancelled(size: int, own_id: int, infers: int) -> None:
    async def scenario(world: World) -> None:
        world.one.ask(size)
        await world.turn()

        world.one.cancel()
        await world.turn()

        assert [own_id] == world.gateway.cancelled
        assert infers == world.gateway.infers
        assert [] == world.one.answers

    play(scenario)


def test_who_leaves_amid_the_work_on_an_answer_has_it_ended() -> None:
    async def scenario(world: World) -> None:
        world.one.ask()
        world.one.set_result(encode_body(LARGE))
        await world.turn()
        work = asyncio.get_running_loop().create_future()
        world.one.work(work)
        await world.turn()

        world.one.cancel()
        await world.turn()

        assert work.cancelled()
        assert [OPENED] == world.one.answers

    play(scenario)
