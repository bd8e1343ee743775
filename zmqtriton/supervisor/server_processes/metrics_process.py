"""Questions to the metrics process, passed on for clients and operators. Does no I/O.

It keeps the history and measures processes. Its answers are passed on unread.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Container
from functools import partial
from typing import Any

from zmqtriton.supervisor.actions import Send
from zmqtriton.supervisor.control.verbs import ControlCall, Verb, Verbs
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.server_processes.roles import METRICS
from zmqtriton_floor import wire
from zmqtriton_floor.errors import Unavailable, Unsupported

#: It answers from memory.
_WITHIN_S = 5.0
_NONE = "there is no process that keeps a history: the server runs with --allow-metrics=false"
_SILENT = "the metrics process does not answer"

#: Gets its answer, or why there is none.
AnswerCallback = Callable[[Any], None]


class MetricsProcess:
    def __init__(
        self, plan: Plan, roles: Collection[str], serials: Callable[[Container[str]], list[int]]
    ) -> None:
        """Set up; `serials` finds the processes of some roles that run."""
        self._plan = plan
        self._is_there = METRICS in roles
        self._find_serials = serials
        self._numbers = itertools.count(1)
        self._waiting: dict[int, AnswerCallback] = {}

    @property
    def verbs(self) -> Verbs:
        """The calls that it answers: about the last hour, and about the last few seconds."""
        return {verb: Verb(partial(self._ask, verb)) for verb in ("history", "latest")}

    def _ask(self, verb: str, call: ControlCall) -> None:
        """Ask it; the answer is its CallResult, or an error. Raises if nobody can be asked."""
        if not self._is_there:
            raise Unsupported(_NONE)
        serials = self._find_serials((METRICS,))
        if not serials:
            raise Unavailable(_SILENT)
        number = next(self._numbers)
        self._waiting[number] = call.answer
        self._plan.enqueue(Send(serials[0], wire.Call(number, verb, json.dumps(call.arguments))))
        self._plan.call_later(_WITHIN_S, lambda: self._settle(number, Unavailable(_SILENT)))

    def handle_result(self, result: wire.CallResult) -> None:
        self._settle(result.id, result)

    def _settle(self, number: int, answer: Any) -> None:
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            waiting(answer)
