"""Directories of models that zmqtriton-ctl adds and removes while the server runs.

Only where clients control what is loaded; elsewhere the command line decides what is served. Models
that were loaded from a directory stay when it is removed. Does no I/O.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

from zmqtriton.supervisor.actions import ChangeRepositories
from zmqtriton.supervisor.plan import Plan
from zmqtriton_floor.errors import InvalidArgument, Unsupported, ZmqTritonError

REGISTER, UNREGISTER = "repository.register", "repository.unregister"
VERBS = frozenset({REGISTER, UNREGISTER})


class _PendingChange(NamedTuple):
    log_text: str
    respond: Callable[[Any], None]


class RepositoryRegistry:
    def __init__(self, plan: Plan, paths: tuple[str, ...], *, is_explicit: bool) -> None:
        self._plan = plan
        self._is_explicit = is_explicit
        self._tickets = itertools.count(1)
        self._pending: dict[int, _PendingChange] = {}
        #: Absolute paths of the directories in use.
        self.paths = paths

    def handle(self, verb: str, arguments: dict[str, Any], answer: Callable[[Any], None]) -> None:
        """Add or remove a directory; `answer` gets all directories in use, or the error."""
        path = arguments.get("path")
        if not isinstance(path, str) or not path.startswith("/") or "\0" in path:
            raise InvalidArgument("a repository is named by its absolute path")
        is_wanted = verb == REGISTER
        if not self._is_explicit:
            noun = "registration" if is_wanted else "unregistration"
            raise Unsupported(
                f"repository {noun} is not allowed if model control mode is not EXPLICIT"
            )
        ticket = next(self._tickets)
        text = f"Model repository {'registered' if is_wanted else 'unregistered'}: {path}"
        self._pending[ticket] = _PendingChange(text, answer)
        self._plan.enqueue(ChangeRepositories(ticket, path, is_wanted))

    def repositories_changed(
        self, ticket: int, paths: tuple[str, ...], error: ZmqTritonError | None
    ) -> None:
        """Take the answer to ChangeRepositories."""
        change = self._pending.pop(ticket)
        self.paths = paths
        if error is None:
            self._plan.log("I", change.log_text)
        change.respond(error or list(paths))
