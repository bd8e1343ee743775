"""One canary: a version that is tried beside the stable one, from its load to its end.

    LOADING ──▶ RUNNING ──▶ PROMOTING ──▶ PROMOTED
       │           └──────▶ ABORTING ───▶ ABORTED
       └─────────────────────────▲

While it is PROMOTING or ABORTING, one version gets all new requests and the other one answers what
it has. `_move` alone writes the phase. Does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any

from zmqtriton.supervisor import Blueprint, TransitionError
from zmqtriton_addons.canaries.comparisons import Comparisons
from zmqtriton_addons.canaries.judge import Executing, Judge
from zmqtriton_addons.canaries.settings import CanarySettings
from zmqtriton_addons.canaries.version_counts import VersionCounts
from zmqtriton_floor.routing import ALL
from zmqtriton_floor.wire import TrafficSplit


class Phase(Enum):
    LOADING = "LOADING"
    RUNNING = "RUNNING"
    PROMOTING = "PROMOTING"
    ABORTING = "ABORTING"
    PROMOTED = "PROMOTED"
    ABORTED = "ABORTED"


_MOVES = {
    Phase.LOADING: {Phase.RUNNING, Phase.ABORTING},
    Phase.RUNNING: {Phase.PROMOTING, Phase.ABORTING},
    Phase.PROMOTING: {Phase.PROMOTED},
    Phase.ABORTING: {Phase.ABORTED},
}
_ENDS = (Phase.PROMOTED, Phase.ABORTED)


class Canary:
    def __init__(
        self,
        model: str,
        stable: int,
        settings: CanarySettings,
        *,
        is_configured: bool,
        now_s: float,
    ) -> None:
        self.model = model
        self.stable = stable
        self.settings = settings
        #: The model's configuration asks for it, not an operator.
        self.is_configured = is_configured
        #: The fingerprints of the versions' files, as they were loaded last.
        self.contents: dict[int, str] = {}
        #: The directory that they were loaded from, and the version policy then.
        self.directory, self.policy = "", ""
        #: Its requests are streams, whose execution is no measure.
        self.is_decoupled = False
        self.phase = Phase.LOADING
        self.since_s = now_s
        #: Why it was promoted or aborted.
        self.reason = ""
        #: Decided by its counts or by time, not by an operator.
        self.is_automatic = False
        self.judge = Judge()
        self.comparisons = Comparisons()

    @property
    def version(self) -> int:
        return self.settings.version

    @property
    def is_over(self) -> bool:
        return self.phase in _ENDS

    @property
    def is_undecided(self) -> bool:
        return self.phase in (Phase.LOADING, Phase.RUNNING)

    @property
    def leaving(self) -> int:
        """The version that gets no new requests since the decision."""
        return self.stable if self.phase is Phase.PROMOTING else self.version

    def _move(self, phase: Phase, now_s: float) -> None:
        """Change the phase; nothing else writes it."""
        if phase not in _MOVES.get(self.phase, ()):
            raise TransitionError(
                f"the canary of model '{self.model}' cannot go from {self.phase.value} to "
                f"{phase.value}"
            )
        self.phase, self.since_s = phase, now_s

    def take_over(self, blueprint: Blueprint, versions: Iterable[int]) -> None:
        """Take note of what these versions are loaded from."""
        self.contents |= {number: blueprint.versions[number].contents for number in versions}
        self.directory, self.policy = blueprint.directory, blueprint.version_policy

    def begin(self, now_s: float) -> None:
        """Both versions serve."""
        self._move(Phase.RUNNING, now_s)

    def decide(self, phase: Phase, reason: str, now_s: float, *, is_automatic: bool) -> None:
        self._move(phase, now_s)
        self.reason, self.is_automatic = reason, is_automatic

    def end(self, now_s: float) -> None:
        """Nothing is left to move."""
        self._move(Phase.PROMOTED if self.phase is Phase.PROMOTING else Phase.ABORTED, now_s)

    def verdict(
        self, stable: VersionCounts, canary: VersionCounts, executing: Executing = ()
    ) -> str:
        """Take the broker's counts; return why it must be aborted, or ""."""
        return self.judge.judge(
            self.settings, stable, canary, executing, is_decoupled=self.is_decoupled
        )

    def is_due(self, now_s: float) -> bool:
        """True if it has run for long enough, with enough requests, to be promoted."""
        after_s = self.settings.promote_after_s
        if after_s is None or self.phase is not Phase.RUNNING:
            return False
        had = self.judge.total.canary.requests
        return now_s - self.since_s >= after_s and had >= self.settings.min_requests

    def split(self) -> TrafficSplit:
        """Return how requests are divided now."""
        if self.is_over:
            return TrafficSplit(self.model, 0, 0, 0)
        if self.phase is not Phase.RUNNING:
            weight = ALL if self.phase is Phase.PROMOTING else 0
            return TrafficSplit(self.model, self.stable, self.version, weight)
        settings = self.settings
        return TrafficSplit(
            self.model,
            self.stable,
            self.version,
            _share(settings.weight),
            *settings.header,
            _share(settings.shadow),
            f"{settings.tolerance:g}",
            settings.sticky,
        )

    def describe(self, now_s: float) -> dict[str, Any]:
        settings, total = self.settings, self.judge.total
        return {
            "model": self.model,
            "phase": self.phase.value,
            "seconds": round(now_s - self.since_s, 3),
            "stable": self.stable,
            "canary": self.version,
            "weight": settings.weight,
            "header": ": ".join(filter(None, settings.header)),
            "sticky": settings.sticky,
            "shadow": settings.shadow,
            "tolerance": settings.tolerance,
            "abort_failures": settings.abort_failures,
            "abort_latency": settings.abort_latency,
            "latency": str(settings.latency),
            "abort_hang": settings.abort_hang_s,
            "abort_within": settings.abort_within_s,
            "min_requests": settings.min_requests,
            "promote_after": settings.promote_after_s,
            "reason": self.reason,
            "is_automatic": self.is_automatic,
            "counts": {
                who: {
                    "requests": counts.requests,
                    "failed": counts.failed,
                    "cancelled": counts.cancelled,
                    "mean_ms": round(counts.mean_ns / 1e6, 3),
                }
                for who, counts in (("stable", total.stable), ("canary", total.canary))
            },
            "comparisons": self.comparisons.describe(),
        }


def _share(percentage: float) -> int:
    return round(percentage * ALL / 100)
