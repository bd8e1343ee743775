"""The processes that render chat templates: one for each model that was used lately.

A template is code that comes with a model, and may run forever. In a process of its own its time
and memory are limited, it only delays chats of its own model, and it can be killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from zmqtriton.sdk.wire import InternalError, InvalidArgument, Unavailable, Unsupported
from zmqtriton_extras.openai import templates
from zmqtriton_extras.openai.templates import LENGTH_BYTES, OUTCOMES, READY

#: Maximum seconds for a template; a usual one takes a millisecond.
WITHIN_S = 5.0
#: Maximum seconds until a process can render.
_START_S = 30.0
#: Processes of one server process. One takes 15 MB.
MAX_PROCESSES = 8
#: Seconds that an unused process is kept.
_IDLE_S = 60.0
#: Chats of one model that wait for its process.
_MAX_WAITING = 256
#: Environment variables of the process; others of the server may be secret.
_VARIABLES = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ")
_ERRORS = {"InvalidArgument": InvalidArgument, "Unsupported": Unsupported}


class Child:
    """The process of one model."""

    def __init__(self, model: str, user: str) -> None:
        self._model = model
        self._user = user
        self._process: asyncio.subprocess.Process | None = None
        self._lock = asyncio.Lock()
        self._waiting = 0

    @property
    def is_idle(self) -> bool:
        return not self._waiting

    async def render(self, request: bytes) -> str:
        """Return the prompt for a request of request_of().

        Raises the errors of templates.render, and InternalError for a template that takes too much.
        """
        if self._waiting >= _MAX_WAITING:
            raise Unavailable(
                f"too many chats wait for the template of model '{self._model}', try again"
            )
        self._waiting += 1
        try:
            async with self._lock:
                return await self._render(request)
        finally:
            self._waiting -= 1

    async def _render(self, request: bytes) -> str:
        is_done = False
        try:
            process = self._process
            if process is None or process.returncode is not None:
                process = await self._start()
            answer = await asyncio.wait_for(_ask(process, request), WITHIN_S)
            is_done = True
        except asyncio.TimeoutError:
            raise InternalError(
                f"the chat template of model '{self._model}' takes longer than {WITHIN_S:.0f} s: "
                "shorten the chat"
            ) from None
        except (asyncio.IncompleteReadError, ConnectionError, _OddAnswerError):
            raise InternalError(
                f"the process of the chat template of model '{self._model}' has ended: send the "
                "request again"
            ) from None
        finally:
            # also if nobody waits for the answer any more: the next one would get it
            if not is_done:
                self.end()
        outcome, text = OUTCOMES[answer[0]], answer[1:].decode()
        if outcome == "prompt":
            return text
        if outcome == "messages":
            raise templates.RefusedChatError(text)
        raise _ERRORS.get(outcome, InternalError)(text)

    async def _start(self) -> asyncio.subprocess.Process:
        command = [sys.executable, "-m", "zmqtriton_extras.openai.templates"]
        command += ["--parent", str(os.getpid()), *_as_user(self._user)]
        process = self._process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={name: os.environ[name] for name in _VARIABLES if name in os.environ},
        )
        assert process.stdout is not None, "it is a pipe"
        await asyncio.wait_for(process.stdout.readexactly(len(READY)), _START_S)
        return process

    def end(self) -> None:
        process = self._process
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
        # its end is noted by the loop
        self._process = None

    async def close(self) -> None:
        """End the process, and wait until it has ended."""
        process = self._process
        self.end()
        if process is not None:
            await process.wait()


def request_of(
    model: str,
    template: str,
    messages: list[dict[str, Any]],
    variables: str,
    tools: Sequence[dict[str, Any]] = (),
) -> bytes:
    """Return a request for the prompt that a template makes of a chat with tools."""
    request = {"model": model, "text": template, "messages": messages, "variables": variables}
    if tools:
        request["tools"] = list(tools)
    return json.dumps(request).encode()


class Children:
    def __init__(self, users: Sequence[str] = ()) -> None:
        """Set up; models without a user of their own run as the first of the users."""
        self._users = users
        #: Children by model, in the order of their last use.
        self._children: dict[str, Child] = {}
        self._ending: dict[str, asyncio.TimerHandle] = {}

    async def render(self, model: str, user: str, request: bytes) -> str:
        """Return the prompt for a request of request_of(). Raises the errors of Child.render."""
        child = self._children.pop(model, None) or Child(model, user or next(iter(self._users), ""))
        self._children[model] = child
        self._make_room()
        try:
            return await child.render(request)
        finally:
            self._end_later(model)

    async def close(self) -> None:
        """End all child processes."""
        for timer in self._ending.values():
            timer.cancel()
        self._ending.clear()
        for child in self._children.values():
            await child.close()
        self._children.clear()

    def _make_room(self) -> None:
        idle = [model for model, child in self._children.items() if child.is_idle]
        for model in idle[: max(0, len(self._children) - MAX_PROCESSES)]:
            self._end(model)

    def _end_later(self, model: str) -> None:
        before = self._ending.pop(model, None)
        if before is not None:
            before.cancel()
        loop = asyncio.get_running_loop()
        self._ending[model] = loop.call_later(_IDLE_S, self._end_idle, model)

    def _end_idle(self, model: str) -> None:
        child = self._children.get(model)
        if child is not None and child.is_idle:
            self._end(model)

    def _end(self, model: str) -> None:
        self._children.pop(model).end()
        timer = self._ending.pop(model, None)
        if timer is not None:
            timer.cancel()


class _OddAnswerError(Exception):
    """Raised for an answer that no process of the server sends."""


async def _ask(process: asyncio.subprocess.Process, request: bytes) -> bytes:
    assert process.stdin is not None, "it is a pipe"
    assert process.stdout is not None, "it is a pipe"
    process.stdin.write(len(request).to_bytes(LENGTH_BYTES, "little") + request)
    await process.stdin.drain()
    size = int.from_bytes(await process.stdout.readexactly(LENGTH_BYTES), "little")
    if not 0 < size <= templates.MAX_BYTES:
        raise _OddAnswerError
    answer = await process.stdout.readexactly(size)
    if answer[0] >= len(OUTCOMES):
        raise _OddAnswerError
    return answer


def _as_user(name: str) -> list[str]:
    """Return the arguments for a process of another user, if this process may change users."""
    if not name or os.geteuid():
        return []
    user = pwd.getpwnam(name)
    return ["--user", str(user.pw_uid), str(user.pw_gid)]
