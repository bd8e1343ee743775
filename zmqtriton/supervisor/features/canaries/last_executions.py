"""Ends the last executions of an aborted version, if they take too long. Does no I/O.

Without a limit a version that hangs would stay for ever, and no canary could follow it. Sequences
that are open and not executed just now go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from zmqtriton.supervisor.features.canaries.canary import Canary, Phase
from zmqtriton.supervisor.models.model import Model
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.server_processes.broker_counts import BrokerCounts, CountsReport
from zmqtriton_floor.reasons import Kind, Reason

_LOOK_S = 1.0


class LastExecutions:
    def __init__(self, plan: Plan, counts: BrokerCounts, models: Mapping[str, Model]) -> None:
        self._plan = plan
        self._counts = counts
        self._models = models

    def limit(self, canary: Canary) -> None:
        """Begin the time within which the executions of an aborted canary are to end."""
        within_s = canary.settings.abort_within_s
        if within_s is not None:
            self._plan.call_later(within_s, partial(self._look, canary, within_s))

    def _look(self, canary: Canary, within_s: float) -> None:
        if canary.phase is Phase.ABORTING:
            self._counts.request(partial(self._end, canary, within_s))

    def _end(self, canary: Canary, within_s: float, report: CountsReport) -> None:
        if canary.phase is not Phase.ABORTING:
            return
        ages_ns = [
            oldest
            for entry in report["counts"] or ()
            if (entry["model"], entry["version"]) == (canary.model, canary.version)
            for oldest, _ in entry.get("executing_ns", ())
        ]
        version = self._models[canary.model].versions.get(canary.version)
        generation = version.generation if version is not None else None
        if generation is not None and any(ns >= within_s * 1e9 for ns in ages_ns):
            text = f"version {canary.version} was aborted, and has not ended in {within_s:g} s"
            self._plan.log("W", f"{text}: its processes are ended, with what they execute")
            generation.abort(Reason.of(Kind.OTHER, text))
        else:
            self._plan.call_later(_LOOK_S, partial(self._look, canary, within_s))
