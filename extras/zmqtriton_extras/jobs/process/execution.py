"""The execution of one job: its request goes to the routes of HTTP, in this process.

So all checks, limits and response forms are the route's. A job has the name of its client's token,
and the rights that this token has when the job runs: if the token was removed from the file or has
expired, its jobs fail.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

from zmqtriton.sdk.frontend import (
    AccessRules,
    Ask,
    CheckedRequest,
    Gateway,
    Stages,
    app,
    bearer_tokens,
    refusals,
)
from zmqtriton.sdk.wire import Grant, errors, wire
from zmqtriton_extras.jobs.process.store import FAILED, QUEUED, SUCCEEDED, Job, Outcome

#: Options of services whose routes this process does not serve.
_WITHOUT = ("jobs", "routes")
_STEP = "zmqtriton_extras.jobs.process.execution:lowest_priority"
#: Texts of refusals of requests that no model has begun.
_NOT_BEGUN = (
    errors.OVERLOADED,
    "is not at ready state",
    "has no available versions",
    "is stopping",
)
#: Stages of the job that the current task executes.
_STAGES: ContextVar[Stages] = ContextVar("stages")
_TOO_MANY, _UNAVAILABLE = 429, 503
#: A job whose model says that it may run again does so as often, when an execution was lost.
_MAX_TRIES = 3
#: The limit of an answer, which lies in memory until its job has ended.
_MAX_BYTES = 256 << 20
#: Bytes of a response before the first check of the free space on disk; the next is at twice that.
_CHECKED_BYTES = 1 << 20
#: A longer error is no document that is worth the time of all jobs.
_MAX_ERROR_BYTES = 64 << 10
_AGAIN_S = 1.0


class JobTokens(bearer_tokens.BearerTokens):
    """Finds grants by token name instead of by secret; only this process uses it."""

    def find(self, values: Sequence[str]) -> Grant | None:
        name = values[0] if values else ""
        return next((grant for grant in self._valid.values() if grant.name == name), None)

    def check(
        self, values: Sequence[str], address: str, need: str, model: str | None = None
    ) -> Grant:
        grant = self.find(values)
        if grant is None:
            raise refusals.Unauthenticated(
                "The job's token is not valid any more: send the job again with a valid one",
                "unknown",
            )
        if need not in grant.scopes:
            raise refusals.Forbidden(
                f"The token is not good for this, expecting scope '{need}'", need
            )
        if model is not None:
            bearer_tokens.check_target(grant, need, model)
        return grant


class Answer(NamedTuple):
    status: int
    headers: list[tuple[str, str]]
    body: bytes


class AnswerTooLarge(Exception):
    """Raised when a response is larger than a job's may be; has a status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


#: Returns why an answer of a size has no room; "" if it has.
FaultOf = Callable[[int], Awaitable[str]]


class Reply:
    """The response of a route as it arrives; earlier parts can be read before its end."""

    def __init__(self, fault_of: FaultOf) -> None:
        self._fault_of = fault_of
        self._check_at = _CHECKED_BYTES
        self._status = 0
        #: Headers of the response, without the length, which is only known at the end.
        self._headers: list[tuple[str, str]] = []
        self._parts: list[bytes] = []
        self._size = 0

    async def send(self, event: dict[str, Any]) -> None:
        """Process an event of ASGI. Raises AnswerTooLarge."""
        if event["type"] == "http.response.start":
            headers = [(name.decode(), value.decode("latin-1")) for name, value in event["headers"]]
            self._headers = [row for row in headers if row[0] != "content-length"]
            self._status = event["status"]
            return
        part = bytes(event.get("body", b""))
        self._size += len(part)
        if self._size > _MAX_BYTES:
            raise AnswerTooLarge(500, f"the response of a job can have at most {_MAX_BYTES} bytes")
        if self._size >= self._check_at:
            self._check_at = 2 * self._size
            if fault := await self._fault_of(self._size):
                raise AnswerTooLarge(507, fault)
        self._parts.append(part)

    @property
    def headers(self) -> dict[str, str]:
        return dict(self._headers)

    def read(self, begin: int, size: int) -> bytes:
        return self._body()[begin : begin + size]

    def answer(self) -> Answer:
        return Answer(self._status, self._headers, self._body())

    def _body(self) -> bytes:
        if len(self._parts) != 1:
            self._parts = [b"".join(self._parts)]
        return self._parts[0]


class Execution:
    def __init__(self, gateway: Gateway) -> None:
        settings = gateway.settings
        tokens = settings.access.tokens
        # keys of restricted APIs were checked when the job came, and are not kept
        unrestricted = settings.access._replace(tokens="", restrictions=())
        access = AccessRules(settings._replace(access=unrestricted))
        if tokens:
            access.tokens = JobTokens(tokens)
            access.tokens.watch()
        # requests of jobs take this step, too, and its routes make no jobs; the steps of other
        # services need their options
        rows = settings.server.add_ons
        kept = tuple(row for row in rows if row[0] not in _WITHOUT)
        server = settings.server._replace(add_ons=kept)
        gateway.settings = settings._replace(
            server=server, offers=settings.offers.adding("requests.step", _STEP)
        )
        self._application: Any = app.build(gateway, app.routes(gateway), access)

    async def answer(self, job: Job, body: bytes, stages: Stages, reply: Reply) -> Answer:
        """Return the route's answer; `stages` gets its progress, `reply` its parts as they come.

        Cancelling this call cancels the request. Raises AnswerTooLarge.
        """
        _STAGES.set(stages)
        is_given = False

        async def receive() -> dict[str, Any]:
            nonlocal is_given
            if is_given:  # whoever waits for more waits for the client to leave
                await asyncio.get_running_loop().create_future()
            is_given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._application(_scope(job, len(body)), receive, reply.send)
        return reply.answer()


def judge(job: Job, answer: Answer, may_repeat: bool) -> Outcome:
    """Return the outcome of a response for a job; `job` is as it was before this try."""
    status, headers, body = answer
    text = json.dumps(headers)
    if status < 400:
        return Outcome(SUCCEEDED, status, text, body)
    reason = _reason(body)
    is_begun = status != _TOO_MANY and not any(part in reason for part in _NOT_BEGUN)
    may_try = status in (_TOO_MANY, _UNAVAILABLE) and (
        not is_begun or (may_repeat and job.tries + 1 < _MAX_TRIES)
    )
    if may_try:
        return Outcome(QUEUED, not_before=time.time() + _AGAIN_S)
    return Outcome(FAILED, status, text, body, reason)


def _reason(body: bytes) -> str:
    """Return the error text in a response; a long response is not parsed, but cut."""
    try:
        error = json.loads(body if len(body) <= _MAX_ERROR_BYTES else b"")["error"]
    except (ValueError, KeyError, TypeError):
        return body[:500].decode(errors="replace")
    return str(error["message"] if isinstance(error, dict) else error)


def _scope(job: Job, size: int) -> dict[str, Any]:
    headers = [(name.encode(), value.encode("latin-1")) for name, value in json.loads(job.headers)]
    headers.append((b"content-length", b"%d" % size))
    if job.owner:
        headers.append((b"authorization", job.owner.encode()))
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": job.path,
        "raw_path": job.path.encode(),
        "query_string": job.query.encode(),
        "root_path": "",
        "headers": headers,
        "server": None,
        "client": None,
    }


def lowest_priority(gateway: Gateway) -> Any:
    """Return the step that lets jobs wait for all client requests, and follows progress."""

    def step(ask: Ask, checked: CheckedRequest) -> CheckedRequest:
        checked = checked.with_stages(_STAGES.get())
        return checked._replace(options=checked.options._replace(priority=wire.BELOW_ALL))

    return step
