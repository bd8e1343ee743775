"""The common part of all requests with one response, with the test in the gateway's place."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Awaitable, Callable, Coroutine
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, call

import pytest

from tests.support.scenarios import scenario
from tests.support.waiting import loop_turns
from zmqtriton_floor.errors import InternalError, Unavailable
from zmqtriton_floor.signature import Admission
from zmqtriton_floor.wire import (
    AddRegion,
    Reference,
    RequestBody,
    ResponseBody,
    Tensor,
    encode_body,
)
from zmqtriton_frontends.gateway.pending import Pending, Sink
from zmqtriton_frontends.inference.admission import CheckedRequest, SchedulingOptions
from zmqtriton_frontends.inference.client_regions import Claim, Regions, RegionSlice
from zmqtriton_frontends.tensors.references import PlacedBody

pytestmark = pytest.mark.slow

SMALL = ResponseBody({}, [Tensor("OUTPUT0", 11, [2], b"abcdefgh")])
LARGE = ResponseBody({}, [Tensor("OUTPUT0", 11, [50_000], Reference(9, 1, 2, 0, 200_000))])
OPENED = ResponseBody({}, [Tensor("OUTPUT0", 11, [50_000], bytes(200_000))])


class FakePayload:
    """A segment that is there a turn later, or at once."""

    def __init__(self) -> None:
        self.opened: list[ResponseBody] = []
        self.is_mapped = False
        self.problem: Exception | None = None

    def open_now(self, response: ResponseBody, kept: object = None) -> ResponseBody | None:
        return OPENED if self.is_mapped else None

    async def open(self, response: ResponseBody, kept: object = None) -> ResponseBody:
        self.opened.append(response)
        await asyncio.sleep(0)
        if self.problem is not None:
            raise self.problem
        return OPENED


class FakeGateway:
    """Notes what it is asked; what there is no room for is never answered."""

    def __init__(self) -> None:
        self.payload = FakePayload()
        self.catalogue: Any = self
        self.regions = Regions()
        self.has_room = True
        self.refusal: Exception | None = None
        self.begun: list[Pending] = []
        self.claims: list[Claim | None] = []
        self.cancelled: list[int] = []
        self.late = 0
        #: Awaited where there is no room.
        self.memory: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def begin(self, request: CheckedRequest, reply: Pending) -> int | None:
        if self.refusal is not None:
            raise self.refusal
        self.begun.append(reply)
        self.claims.append(request.claim)
        return len(self.begun) if self.has_room else None

    def cancel(self, own_id: int) -> None:
        self.cancelled.append(own_id)

    async def begin_late(self, request: CheckedRequest, reply: Pending) -> int:
        self.late += 1
        try:
            return await self.memory
        except asyncio.CancelledError:
            self.cancelled.append(0)
            raise


class Copied:
    """A copy that knows what it is compared with."""

    def __init__(self) -> None:
        self.stable: list[ResponseBody] = []
        self.is_dropped = False

    def send(self) -> None:
        raise AssertionError("the gateway sends it")

    def skip(self) -> None:
        raise AssertionError("its answer is whole")

    def take_stable(self, response: ResponseBody) -> None:
        self.stable.append(response)

    def drop(self) -> None:
        self.is_dropped = True


class Noted(Sink):
    """Keeps its answer."""

    sending = "SEND"

    def __init__(self, gateway: Any) -> None:
        self.pending = Pending(gateway, self)
        self.answers: list[ResponseBody | Exception] = []
        self.is_hashed, self.deadline_ns = False, 0
        self.observer: Any = Mock()
        #: Awaited before the response is given.
        self.work: asyncio.Future[None] | None = None

    def ask(self, copy: Copied | None = None, **places: RegionSlice) -> None:
        signature = SimpleNamespace(is_decoupled=False)
        model: Any = SimpleNamespace(is_hashed=self.is_hashed, signature=signature)
        body = RequestBody("", {}, [], [Tensor("INPUT0", 11, [2], bytes(8))])
        options = SchedulingOptions(deadline_ns=self.deadline_ns)
        checked = CheckedRequest(model, body, Admission(0, 0), options, places)
        self.pending.start(checked._replace(copy=copy, observer=self.observer))

    def respond(
        self, pending: Pending, response: ResponseBody, /
    ) -> Coroutine[Any, Any, None] | None:
        if self.work is not None:
            return self._respond_late(self.work, response)
        self.answers.append(response)
        return None

    async def _respond_late(self, work: asyncio.Future[None], response: ResponseBody) -> None:
        await work
        self.answers.append(response)

    def refuse(self, error: Exception, /) -> None:
        self.answers.append(error)


class World:
    def __init__(self) -> None:
        self.gateway = FakeGateway()
        self.one = Noted(self.gateway)

    async def ask_and_leave(self, **places: RegionSlice) -> None:
        self.one.ask(None, **places)
        await loop_turns(5)
        self.one.pending.cancel()
        await loop_turns(5)


def play(scenario: Callable[[World], Awaitable[None]]) -> None:
    complaints: list[dict[str, Any]] = []
    gc.freeze()  # what there was before is not looked through

    async def all_of_it() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, what: complaints.append(what))
        await scenario(World())
        gc.collect()

    asyncio.run(all_of_it())
    assert [] == complaints


@pytest.mark.parametrize(
    ("body", "response"),
    [(encode_body(SMALL), SMALL), (PlacedBody(encode_body(LARGE)), OPENED)],
    ids=["small", "lies where this process reads already"],
)
@scenario(play)
async def test_what_can_be_read_at_once_is_answered_within_the_call(
    world: World, /, body: bytes, response: ResponseBody
) -> None:
    world.gateway.payload.is_mapped = True
    world.one.ask()

    world.one.pending.set_result(body)

    assert ([response], []) == (world.one.answers, world.gateway.payload.opened)


@scenario(play)
async def test_a_response_with_large_tensors_is_opened_first(world: World, /) -> None:
    world.one.ask()

    world.one.pending.set_result(PlacedBody(encode_body(LARGE)))
    assert [] == world.one.answers
    await loop_turns(5)

    assert [OPENED] == world.one.answers


@scenario(play)
async def test_who_leaves_when_the_response_is_there_leaves_none_of_its_memory_leased(
    world: World, /
) -> None:
    world.one.ask()

    world.one.pending.set_result(PlacedBody(encode_body(LARGE)))
    world.one.pending.cancel()  # before the loop has turned
    await loop_turns(5)

    assert ([LARGE], []) == (world.gateway.payload.opened, world.one.answers)


@scenario(play)
async def test_what_cannot_be_opened_is_an_error_to_who_waits_and_to_nobody_else(
    world: World, /
) -> None:
    world.gateway.payload.problem = problem = Unavailable("gone")
    other = Noted(world.gateway)

    for one in (world.one, other):
        one.ask()
        one.pending.set_result(PlacedBody(encode_body(LARGE)))
    other.pending.cancel()
    await loop_turns(5)

    assert [problem] == world.one.answers
    assert [] == other.answers


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"nonsense", "body is not a response"),
        # which nobody has checked
        (encode_body(LARGE), "refers to memory that it may not"),
    ],
)
@scenario(play)
async def test_a_body_that_is_no_response_or_refers_to_memory_unchecked_is_an_error(
    world: World, /, body: bytes, text: str
) -> None:
    world.one.ask()

    world.one.pending.set_result(body)

    [error] = world.one.answers
    assert text in str(error)
    assert [] == world.gateway.payload.opened


@pytest.mark.parametrize(("has_room", "own_id", "late"), [(True, 1, 0), (False, 0, 1)])
@scenario(play)
async def test_who_leaves_has_the_request_cancelled(
    world: World, /, has_room: bool, own_id: int, late: int
) -> None:
    world.gateway.has_room = has_room

    await world.ask_and_leave()

    assert ([own_id], late) == (world.gateway.cancelled, world.gateway.late)
    assert [] == world.one.answers


#: After one turn it is sent, and the end of its task not noticed.
@pytest.mark.parametrize("turns", [1, 6])
@scenario(play)
async def test_who_leaves_when_there_is_memory_has_what_was_sent_cancelled(
    world: World, /, turns: int
) -> None:
    world.gateway.has_room = False
    world.one.ask()
    await loop_turns(5)
    world.gateway.memory.set_result(7)
    await loop_turns(turns)

    world.one.pending.cancel()
    await loop_turns(5)

    assert ([7], []) == (world.gateway.cancelled, world.one.answers)


@scenario(play)
async def test_what_was_sent_when_there_was_memory_is_answered_like_any_other(
    world: World, /
) -> None:
    world.gateway.has_room = False
    world.one.ask()
    world.gateway.memory.set_result(7)
    await loop_turns(5)

    world.one.pending.set_result(encode_body(SMALL))

    assert [SMALL] == world.one.answers


@scenario(play)
async def test_what_cannot_be_sent_for_lack_of_memory_is_an_error(world: World, /) -> None:
    world.gateway.has_room = False
    copy = Copied()
    world.one.ask(copy)
    problem = Unavailable("no memory")
    world.gateway.memory.set_exception(problem)
    await loop_turns(5)

    assert [problem] == world.one.answers
    assert copy.is_dropped


def answer(one: Noted) -> None:
    one.pending.set_result(encode_body(SMALL))


def answer_late(one: Noted) -> None:
    one.pending.set_result(PlacedBody(encode_body(LARGE)))


def cancel(one: Noted) -> None:
    one.pending.cancel()


def fail(one: Noted) -> None:
    one.pending.set_exception(Unavailable("it died"))


@pytest.mark.parametrize(
    ("end", "stable"),
    [(answer, [SMALL]), (answer_late, [OPENED]), (fail, []), (cancel, [])],
)
@scenario(play)
async def test_a_copy_gets_the_answer_that_the_client_gets_or_is_dropped(
    world: World, /, end: Callable[[Noted], None], stable: list[ResponseBody]
) -> None:
    copy = Copied()
    world.one.ask(copy)

    end(world.one)
    await loop_turns(5)

    assert (stable, not stable) == (copy.stable, copy.is_dropped)


@pytest.mark.parametrize("end", [answer, answer_late, fail, cancel])
@scenario(play)
async def test_nothing_that_comes_after_the_end_reaches_the_sink_or_an_observer(
    world: World, /, end: Callable[[Noted], None]
) -> None:
    world.one.ask()
    end(world.one)
    await loop_turns(5)
    answers, seen = [*world.one.answers], [*world.one.observer.method_calls]

    fail(world.one)
    world.one.pending.cancel()

    assert (answers, seen) == (world.one.answers, world.one.observer.method_calls)
    assert [call.end("SEND")] == seen[1:]


@scenario(play)
async def test_who_leaves_amid_the_work_on_an_answer_has_it_ended(world: World, /) -> None:
    world.one.ask()
    world.one.work = work = asyncio.get_running_loop().create_future()
    world.one.pending.set_result(PlacedBody(encode_body(LARGE)))
    await loop_turns(5)

    world.one.pending.cancel()
    await loop_turns(5)

    assert work.cancelled()
    assert [] == world.one.answers


def _is_claimed(regions: Regions) -> bool:
    """Asked last: the region is gone then."""
    left: list[int] = []
    regions.on_left.append(left.append)
    regions.remove(1)
    regions.close()
    return left != [1]


@pytest.mark.parametrize("has_room", [False, True])
@scenario(play)
async def test_who_leaves_claims_no_memory_of_clients(
    world: World, /, client_memory: int, has_room: bool
) -> None:
    world.gateway.regions.add(AddRegion(1, "r", 0, 100), os.dup(client_memory))
    world.gateway.has_room = has_room

    await world.ask_and_leave(OUTPUT0=RegionSlice("r", 0, 8))

    assert not _is_claimed(world.gateway.regions)


@scenario(play)
async def test_an_output_is_written_to_its_place_and_the_claim_ends(
    world: World, /, client_memory: int
) -> None:
    world.gateway.regions.add(AddRegion(1, "r", 0, 100), os.dup(client_memory))
    world.one.ask(OUTPUT0=RegionSlice("r", 10, 8))

    world.one.pending.set_result(encode_body(SMALL))

    assert b"abcdefgh" == os.pread(client_memory, 8, 10)
    assert [SMALL._replace(outputs=[SMALL.outputs[0]._replace(data=b"")])] == world.one.answers
    assert not _is_claimed(world.gateway.regions)


@pytest.mark.parametrize(
    ("why", "is_lent"), [("", True), ("deadline", False), ("canary", False), ("cache", False)]
)
@scenario(play)
async def test_a_stub_writes_outputs_unless_another_answer_may_come_first_or_others_need_them(
    world: World, /, client_memory: int, why: str, is_lent: bool
) -> None:
    world.gateway.regions.add(AddRegion(1, "r", 0, 100, 1), os.dup(client_memory))
    world.one.deadline_ns = 10**18 if why == "deadline" else 0
    world.one.is_hashed = why == "cache"

    world.one.ask(Copied() if why == "canary" else None, OUTPUT0=RegionSlice("r", 0, 8))

    assert [is_lent] == [claim is not None for claim in world.gateway.claims]


@scenario(play)
async def test_an_output_without_data_that_no_stub_was_to_write_is_an_error(
    world: World, /, client_memory: int
) -> None:
    world.gateway.regions.add(AddRegion(1, "r", 0, 100, 1), os.dup(client_memory))
    world.one.ask(OUTPUT0=RegionSlice("r", 0, 8))

    world.one.pending.set_result(encode_body(ResponseBody({}, [Tensor("OUTPUT0", 11, [2], None)])))

    [error] = world.one.answers
    assert str(error).startswith("the model has sent no data for output 'OUTPUT0'; ")
    assert not _is_claimed(world.gateway.regions)


@pytest.mark.parametrize(("end", "error"), [(fail, Unavailable), (answer, InternalError)])
@scenario(play)
async def test_a_claim_ends_with_whatever_becomes_of_the_request(
    world: World, /, client_memory: int, end: Callable[[Noted], None], error: type[Exception]
) -> None:
    world.gateway.regions.add(AddRegion(1, "r", 0, 100), os.dup(client_memory))
    world.one.ask(OUTPUT0=RegionSlice("r", 0, 7))  # for which the answer is too large

    end(world.one)

    assert [error] == [type(answer) for answer in world.one.answers]
    assert not _is_claimed(world.gateway.regions)


@scenario(play)
async def test_what_is_refused_at_once_drops_its_copy_and_claims_nothing(
    world: World, /, client_memory: int
) -> None:
    world.gateway.regions.add(AddRegion(1, "r", 0, 100), os.dup(client_memory))
    world.gateway.refusal = Unavailable("Server exiting")
    copy = Copied()

    world.one.ask(copy, OUTPUT0=RegionSlice("r", 0, 8))

    assert [world.gateway.refusal] == world.one.answers
    assert ([], True) == (copy.stable, copy.is_dropped)
    assert not _is_claimed(world.gateway.regions)
