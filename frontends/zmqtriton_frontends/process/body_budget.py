"""How much memory a process gives to bodies of requests that are read or being answered.

One body is taken whatever its size, as the limits for single bodies are others. What does not fit
beside those that are here is read and dropped, and refused, before the kernel has to end somebody.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

#: The key of a request's share in its scope.
SHARE = "zmqtriton.body_share"

Application = Callable[[Any, Any, Any], Awaitable[None]]


class BodyBudget:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.held = 0

    def has_room(self, more: int, own: int) -> bool:
        """True if a body that holds `own` bytes may hold more."""
        return self.held == own or self.held + more <= self._limit


class BodyShare:
    """What one request holds."""

    __slots__ = ("_budget", "held")

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self.held = 0

    def take(self, size: int) -> bool:
        """Take memory for so many bytes more; False if there is none."""
        if not self._budget.has_room(size, self.held):
            return False
        self.held += size
        self._budget.held += size
        return True

    def release(self) -> None:
        self._budget.held -= self.held
        self.held = 0


def with_body_budget(application: Application, budget: BodyBudget) -> Application:
    """Give each request of an ASGI application a share."""

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        scope[SHARE] = share = BodyShare(budget)
        try:
            await application(scope, receive, send)
        finally:
            share.release()

    return serve
