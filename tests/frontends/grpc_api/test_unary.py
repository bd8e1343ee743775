"""Unary RPCs without a transport: by a task, and awaited by one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.frontends.grpc_api.fake_gateway import FakeCall, NotedAnswers
from tests.support.scenarios import scenario
from tests.support.shares import share_of
from tests.support.waiting import loop_turns
from zmqtriton_floor.errors import NO_MEMORY, NO_THREAD, InternalError, Unavailable
from zmqtriton_frontends.grpc_api.call import (
    FREE_BYTES,
    Answer,
    NoRoomError,
    answered,
    by_task,
    client_error,
)
from zmqtriton_frontends.process.ledger import Book

pytestmark = pytest.mark.slow


class Begun:
    """An RPC that is answered by the test."""

    def __init__(self) -> None:
        self.answer: Answer
        self.is_cancelled = False

    def begin(self, _data: bytes, _call: Any, answer: Answer) -> Begun:
        self.answer = answer
        return self

    def cancel(self) -> None:
        self.is_cancelled = True


def run(test: Awaitable[None]) -> None:
    async def with_limit() -> None:
        await asyncio.wait_for(test, 20)

    asyncio.run(with_limit())


@scenario(run)
async def test_a_task_gives_what_it_returns_or_raises() -> None:
    async def fail(data: bytes, _call: Any) -> bytes:
        if data == b"gone":
            raise Unavailable("gone")
        return data

    good, bad = NotedAnswers(), NotedAnswers()
    by_task(fail)(b"here", FakeCall(), good)
    by_task(fail)(b"gone", FakeCall(), bad)
    await loop_turns(5)

    assert ([[b"here"]], ["gone"]) == (good.all, [str(error) for error in bad.all])


@pytest.mark.parametrize(("who", "errors"), [("who waits", []), ("somebody else", [InternalError])])
@scenario(run)
async def test_a_task_that_is_cancelled_is_an_error_unless_nobody_waits_for_it(
    who: str, errors: list[type[Exception]]
) -> None:
    noted, waiting = NotedAnswers(), asyncio.get_running_loop().create_future()

    async def wait(_data: bytes, _call: Any) -> bytes:
        return bytes(await waiting)

    pending = by_task(wait)(b"", FakeCall(), noted)
    await loop_turns(5)
    ends: dict[str, Callable[[], object]] = {
        "who waits": pending.cancel,
        "somebody else": waiting.cancel,
    }
    ends[who]()
    await loop_turns(5)

    assert waiting.cancelled()
    assert errors == [type(answer) for answer in noted.all]


@scenario(run)
async def test_who_awaits_an_answer_and_is_cancelled_cancels_it() -> None:
    begun = Begun()
    asking = asyncio.ensure_future(answered(begun.begin, b"", FakeCall()))
    await loop_turns(5)

    asking.cancel()
    begun.answer.set_result([b"too late"])  # before the loop has turned
    begun.answer.set_exception(Unavailable("too late"))

    with pytest.raises(asyncio.CancelledError):
        await asking
    assert begun.is_cancelled


@scenario(run)
async def test_an_awaited_answer_is_one_message_that_has_room_or_is_refused() -> None:
    for room, is_admitted in ((1 << 20, True), (FREE_BYTES, False)):
        begun, call = Begun(), FakeCall()
        call.answers = share_of(Book(room))
        asking = asyncio.ensure_future(answered(begun.begin, b"", call))
        await loop_turns(5)
        begun.answer.set_result([b"a" * FREE_BYTES, memoryview(b"b")])

        if is_admitted:
            assert b"a" * FREE_BYTES + b"b" == await asking
            assert FREE_BYTES + 1 == call.answers.held
        else:
            with pytest.raises(NoRoomError):
                await asking


@pytest.mark.parametrize(
    ("error", "text", "is_logged"),
    [
        (MemoryError(), NO_MEMORY, False),
        (RuntimeError("can't start new thread"), NO_THREAD, False),
        (RuntimeError("secret"), "the server failed to answer; its log says why", True),
    ],
)
def test_a_shortage_is_told_and_a_fault_of_ours_is_logged(
    caplog: pytest.LogCaptureFixture, error: Exception, text: str, is_logged: bool
) -> None:
    assert text == client_error("ModelInfer", error).text
    assert is_logged == ("ModelInfer failed" in caplog.text)
