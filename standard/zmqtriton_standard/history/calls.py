"""Calls of clients and operators for the history, passed on to the metrics process.

The metrics process keeps the history and measures processes. Its answers are passed on unread. Does
no I/O.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from zmqtriton.sdk.supervisor import ControlCall, CoreParts, Feature, Verb, actions
from zmqtriton.sdk.wire import Unavailable, Unsupported, errors, wire

_METRICS = "metrics"
#: Seconds for an answer, which comes from memory.
_WITHIN_S = 5.0
_NONE = "there is no process that keeps a history: the server runs with --allow-metrics=false"
_SILENT = "the metrics process does not answer"


class HistoryCalls(Feature):
    def __init__(self, core: CoreParts) -> None:
        super().__init__(core)
        self._is_kept = _METRICS in core.policy.frontend_roles

    @property
    def verbs(self) -> Mapping[str, Verb]:
        """Return the calls about the last hours, and about the last few seconds."""
        return {verb: Verb(partial(self._ask, verb)) for verb in ("history", "latest")}

    async def _ask(self, verb: str, call: ControlCall) -> Any:
        """Ask the metrics process; the answer is its CallResult.

        Raises Unsupported or Unavailable without such a process.
        """
        if not self._is_kept:
            raise Unsupported(_NONE)
        serials = self._audience.serials((_METRICS,))
        if not serials:
            raise Unavailable(_SILENT)
        document = json.dumps(call.arguments)
        try:
            return await self._plan.ask(
                lambda ticket: actions.Send(serials[0], wire.Call(ticket, verb, document)),
                within_s=_WITHIN_S,
            )
        except errors.DeadlineExceeded:
            raise Unavailable(_SILENT) from None
