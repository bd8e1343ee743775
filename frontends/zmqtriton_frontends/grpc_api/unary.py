"""Unary RPCs: a handler begins to answer one, and gives its answer to an object of the transport.

An inference needs no task for that. Control RPCs, which are rare, are coroutines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from zmqtriton_floor.errors import InternalError
from zmqtriton_frontends.grpc_api.call import Call, hold_answer

Response = list[bytes | memoryview]


class Answer(Protocol):
    """Gets the response or the error, in one call that must not raise."""

    def set_result(self, response: Response, /) -> None:
        """Take the message in pieces."""

    def set_exception(self, error: Exception, /) -> None:
        """Take the error in place of a response."""


class Pending(Protocol):
    """An RPC that is being answered."""

    def cancel(self) -> None:
        """Cancel it: nobody waits for its answer any more."""


#: Begins to answer, perhaps before it returns. Raises the errors of the request.
Begin = Callable[[Any, Call, Answer], Pending]
Handle = Callable[[Any, Call], Coroutine[Any, Any, bytes]]


def by_task(handle: Handle) -> Begin:
    """Return a handler that answers in a task."""
    return lambda data, call, answer: _Task(handle(data, call), answer)


class _Task:
    """Gives an answer what a coroutine returns or raises."""

    def __init__(self, work: Coroutine[Any, Any, bytes], answer: Answer) -> None:
        self._answer: Answer | None = answer
        self._task = asyncio.get_running_loop().create_task(work)
        self._task.add_done_callback(self._end)

    def cancel(self) -> None:
        self._answer = None
        self._task.cancel()

    def _end(self, task: asyncio.Task[bytes]) -> None:
        # Otherwise asyncio complains of an unseen error.
        error = None if task.cancelled() else task.exception()
        answer, self._answer = self._answer, None
        if answer is None:
            return
        if task.cancelled():  # and not by us
            answer.set_exception(InternalError("the call was cancelled"))
        elif isinstance(error, Exception):
            answer.set_exception(error)
        elif error is None:
            answer.set_result([task.result()])


async def answered(begin: Begin, data: bytes, call: Call) -> bytes:
    """Return the answer, for which room is held. Cancelling this cancels the RPC."""
    awaited = _Awaited()
    pending = begin(data, call, awaited)
    try:
        response = await awaited.future
    except asyncio.CancelledError:
        pending.cancel()
        raise
    finally:
        del awaited, pending  # the error in it knows this frame: both would stay until a collection
    hold_answer(call, sum(map(len, response)))
    return b"".join(response)


class _Awaited:
    """The answer that a task awaits, unless it was cancelled in this turn of the loop."""

    def __init__(self) -> None:
        self.future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

    def set_result(self, response: Response, /) -> None:
        if not self.future.done():
            self.future.set_result(response)

    def set_exception(self, error: Exception, /) -> None:
        if not self.future.done():
            self.future.set_exception(error)
