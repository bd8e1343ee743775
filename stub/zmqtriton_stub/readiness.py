"""Asks the model's is_ready(), if it has one, while the main thread may be in execute().

A thread of its own answers questions on a lifeline of its own, one at a time; the supervisor
decides how long it waits. The thread may use the model's method and the log, but nothing else of
the stub.
"""

from __future__ import annotations

import inspect
import threading
from typing import Any, Callable

from zmqtriton_floor import wire
from zmqtriton_floor.errors import InternalError
from zmqtriton_floor.lifeline import Lifeline
from zmqtriton_stub.api.errors import TritonModelException, describe
from zmqtriton_stub.instance import StubInstance


class ModelReadiness:
    """The readiness of one model, from its initialize to its finalize."""

    def __init__(self, instance: StubInstance, is_ready: Callable[[], Any], line: Lifeline) -> None:
        self._instance = instance
        self._is_ready = is_ready
        self._line = line
        #: Last logged reason why the model is not ready; "" if it was ready.
        self._trouble = ""
        self._is_over = False
        #: not waited for at the end: the model may hang
        self._thread = threading.Thread(target=self._run, name="is_ready", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Begin no further call; a running one may last until the process ends."""
        self._is_over = True

    def _run(self) -> None:
        while not self._line.ended:
            self._line.wait()
            for message, _ in self._line.receive():
                if type(message) is wire.Call and not self._is_over:
                    self._line.send(self._answer(message.id))

    def _answer(self, number: int) -> wire.CallResult:
        try:
            is_ready = self._ask()
        except BaseException as error:  # noqa: BLE001 - the model's code may raise anything
            self._log("E", describe(error))
            return wire.CallResult(number, InternalError.number, "is_ready() has failed", "false")
        self._log("W", "" if is_ready else "is_ready() says False")
        return wire.CallResult(number, 0, "", "true" if is_ready else "false")

    def _ask(self) -> bool:
        answer = self._is_ready()
        if inspect.isawaitable(answer):
            import asyncio  # most models do without it, and it takes long to import

            answer = asyncio.run(_await(answer))
        if type(answer) is not bool:
            raise TritonModelException("is_ready() must return a boolean value")
        return answer

    def _log(self, level: str, trouble: str) -> None:
        """Log each change, not each question."""
        if trouble == self._trouble:
            return
        self._trouble = trouble
        text = f"'{self._instance.name}': {trouble or 'is ready again'}"
        self._instance.log(level if trouble else "I", text)


async def _await(answer: Any) -> Any:
    return await answer
