"""Has running canaries judged from time to time, by the broker's counts. Does no I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from zmqtriton.supervisor.features.canaries.canary import Canary, Phase
from zmqtriton.supervisor.features.canaries.comparisons import CanaryTotals
from zmqtriton.supervisor.features.canaries.version_counts import VersionCounts
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.server_processes.broker_counts import BrokerCounts, CountsReport

CHECK_INTERVAL_S = 1.0

#: Gets a decision and its reason.
Decide = Callable[[Canary, Phase, str], None]


class CanaryWatch:
    def __init__(
        self,
        plan: Plan,
        counts: BrokerCounts,
        canaries: Mapping[str, Canary],
        decide: Decide,
        totals: CanaryTotals,
    ) -> None:
        self._plan = plan
        self._counts = counts
        self._canaries = canaries
        self._decide = decide
        self._totals = totals
        self._is_watching = False

    def begin(self) -> None:
        """Look at the counts now, and then as long as there is something to judge."""
        if not self._is_watching:
            self._is_watching = True
            self._look()

    def _look(self) -> None:
        self._counts.request(self._on_counts)

    def _on_counts(self, report: CountsReport) -> None:
        entries = {(entry["model"], entry["version"]): entry for entry in report["counts"] or ()}
        for canary in list(self._canaries.values()):
            if canary.phase is Phase.RUNNING:
                self._judge(canary, entries)
        self._is_watching = any(r.phase is Phase.RUNNING for r in self._canaries.values())
        if self._is_watching:
            self._plan.call_later(CHECK_INTERVAL_S, self._look)

    def _judge(self, canary: Canary, entries: Mapping[tuple[str, int], Mapping[str, Any]]) -> None:
        stable, tried = (entries.get((canary.model, n)) for n in (canary.stable, canary.version))
        if stable is None or tried is None:
            return  # the broker does not answer, or is being replaced
        new = canary.comparisons.add_uncopied(stable.get("trial", {}).get("uncopied", 0))
        self._totals.count_comparisons(canary.model, canary.version, new)
        problem = canary.verdict(
            VersionCounts.of(stable), VersionCounts.of(tried), tried.get("executing_ns", ())
        )
        if problem:
            self._decide(canary, Phase.ABORTING, problem)
        elif canary.is_due(self._plan.now_s):
            reason = f"nothing was wrong for {canary.settings.promote_after_s:g} s"
            self._decide(canary, Phase.PROMOTING, reason)
