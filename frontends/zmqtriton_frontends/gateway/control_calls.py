"""Calls to the supervisor and the broker, each awaited until it is answered."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from zmqtriton_floor import wire
from zmqtriton_floor.errors import InvalidArgument, ProtocolError, from_number

#: The client whose request is being answered, in words; "" if that is of no interest.
_client: ContextVar[str] = ContextVar("client", default="")


@contextmanager
def on_behalf_of(client: str) -> Iterator[None]:
    """Let the log name this client for the changes that are made in the block."""
    before = _client.set(client)
    try:
        yield
    finally:
        _client.reset(before)


class ControlCalls:
    """Control calls and questions for statistics."""

    def __init__(
        self, ask_supervisor: Callable[[Any], None], ask_broker: Callable[[Any], None]
    ) -> None:
        self._ask_supervisor = ask_supervisor
        self._ask_broker = ask_broker
        self._ids = itertools.count(1)
        self._answers: dict[int, asyncio.Future[str]] = {}
        self._for_broker: dict[int, wire.AskStatistics] = {}

    async def call(self, verb: str, arguments: dict[str, Any], client: str = "") -> Any:
        """Return the result of a control call. Raises the supervisor's error.

        `client` is the name of the client in the log; by default the one of `on_behalf_of`.
        """
        question = wire.Call(next(self._ids), verb, json.dumps(arguments), client or _client.get())
        return await self._answer(question, self._ask_supervisor)

    async def statistics(
        self, model: str = "", version: int = -1, *, kind: int = 0
    ) -> dict[str, Any]:
        """Return the counters of a model, or of all, or another kind of statistics.

        Raises for an unknown one.
        """
        question = wire.AskStatistics(next(self._ids), model, version, kind)
        self._for_broker[question.id] = question
        try:
            return dict(await self._answer(question, self._ask_broker))
        finally:
            del self._for_broker[question.id]

    async def _answer(self, question: Any, ask: Callable[[Any], None]) -> Any:
        try:
            wire.SCHEMAS[type(question).__name__].read([*question])
        except ProtocolError as error:  # nobody would answer a message that cannot be read
            raise InvalidArgument(f"the call cannot be sent: {error}") from None
        answer = self._answers[question.id] = asyncio.get_running_loop().create_future()
        ask(question)
        try:
            return json.loads(await answer)
        finally:
            self._answers.pop(question.id, None)

    def for_next_broker(self) -> Iterable[wire.AskStatistics]:
        """Return the questions that a dead broker has left open."""
        return self._for_broker.values()

    def settle(self, message: wire.CallResult) -> None:
        """Give an answer to its caller, if the caller still waits."""
        waiting = self._answers.get(message.id)
        if waiting is None or waiting.done():
            return
        if message.code:
            waiting.set_exception(from_number(message.code, message.text))
        else:
            waiting.set_result(message.result)
