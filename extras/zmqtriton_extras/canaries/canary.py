"""One canary: a version on trial next to the stable one, from its load to its end.

    LOADING ──▶ RUNNING ──▶ PROMOTING ──▶ PROMOTED
       │           └──────▶ ABORTING ───▶ ABORTED
       └─────────────────────────▲

While it is PROMOTING or ABORTING, one version gets all new requests and the other one answers its
remaining ones. `_move` alone writes the phase. Does no I/O.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any

from zmqtriton.sdk.models import Decision, scan
from zmqtriton.sdk.supervisor import Blueprint, ServedModel
from zmqtriton.sdk.wire import Kind, logs, routing, wire
from zmqtriton_extras.canaries.judge import Executing, Judge, VersionCounts
from zmqtriton_extras.canaries.settings import CanarySettings

#: Results of a request that should be copied. It is skipped if the stable version failed, if too
#: many copies are under way, or if it cannot be copied, such as a model's.
RESULTS = ("equal", "different", "failed", "skipped")
_MAX_DIFFERENCES, _MAX_TEXT = 5, 300
#: Factors of latency without a limit of the operator's: from the first on, a promotion names it;
#: from the second on, it waits for the operator.
_SLOWER, _TOO_SLOW = 1.5, 10.0


def serving_versions(model: ServedModel) -> list[int]:
    return [number for number, version in model.versions.items() if version.is_serving]


def stable_beside(model: ServedModel, version: object) -> int:
    """Return the highest other version that serves; 0 if no other serves."""
    return max(
        (number for number in serving_versions(model) if str(number) != str(version)), default=0
    )


def take_over(canary: Canary, model: ServedModel) -> None:
    """Record the files that the serving versions were loaded from."""
    for number in serving_versions(model):
        generation = model.versions[number].generation
        if generation is not None:
            canary.take_over(generation.blueprint, (number,))


def is_verdict(model: ServedModel, canary: Canary) -> bool:
    """True if a version has stopped by its own fault, not because it was unloaded or removed."""
    tried = (model.versions.get(number) for number in (canary.version, canary.stable))
    reasons = (version.reason for version in tried if version is not None)
    return any(reason is not None and reason.has(Kind.GIVEN_UP) for reason in reasons)


def is_decoupled(model: ServedModel, canary: Canary) -> bool:
    """True if requests get any number of responses."""
    return _is_decoupled(_config(model, canary.stable))


def why_not_serving(model: ServedModel, canary: Canary) -> str:
    """Return which of the two versions does not serve, and the reason; or ""."""
    for number in (canary.version, canary.stable):
        version = model.versions.get(number)
        if version is None:
            return f"version {number} is not in the model's directory"
        if not version.is_serving:
            why = version.reason.text if version.reason else version.state.value
            return f"version {number} does not serve: {why}"
    return ""


def why_unlike(model: ServedModel, canary: Canary) -> str:
    """Return why the canary cannot take the stable version's requests, or ""."""
    problem = find_difference(_config(model, canary.stable), _config(model, canary.version))
    return problem or why_not_copied(model, canary.stable, canary.settings)


def why_not_copied(model: ServedModel, stable: int, settings: CanarySettings) -> str:
    """Return why a shadow canary cannot get copies of requests, or ""."""
    return find_obstacle_to_copies(_config(model, stable)) if settings.shadow else ""


def _config(model: ServedModel, number: int) -> dict[str, Any]:
    generation = model.versions[number].generation
    final = generation.final_config if generation is not None else None
    config: dict[str, Any] = json.loads(final.config) if final is not None else {}
    return config


def keep_both(model: ServedModel, canary: Canary) -> None:
    """Let loads serve both versions, regardless of the version policy and earlier decisions."""
    kept = frozenset({*serving_versions(model), canary.stable, canary.version})
    selection = model.selection
    model.selection = selection._replace(
        kept=kept,
        rejected=tuple(entry for entry in selection.rejected if entry[0] not in kept),
        promoted=tuple(each for each in selection.promoted if each.version != canary.version),
    )


def keep_decision(model: ServedModel, canary: Canary) -> tuple[Decision, ...]:
    """Have later loads follow the decision until the files change; return it for later servers."""
    decided = tuple(
        Decision(number, canary.contents.get(number, ""), is_promotion, canary.policy, reason)
        for number, is_promotion, reason in _outcomes(canary)
    )
    selection = model.selection
    rejected = [each[:2] for each in decided if not each.is_promotion]
    promoted = [scan.Promotion(*each[:2], canary.policy) for each in decided if each.is_promotion]
    model.selection = scan.VersionSelection(
        rejected=(*selection.rejected, *rejected), promoted=(*selection.promoted, *promoted)
    )
    return decided


def _outcomes(canary: Canary) -> Iterator[tuple[int, bool, str]]:
    """Yield the versions of a decision: whether each was promoted, and the reason."""
    if canary.phase is Phase.ABORTING:
        yield canary.version, False, canary.reason
        return
    yield canary.version, True, canary.reason
    if canary.stable > canary.version:
        # requests without a version get the highest
        yield canary.stable, False, f"version {canary.version} was promoted"


def is_policy_choice(model: ServedModel, number: int) -> bool:
    """True if the version policy wants this version."""
    serving = model.serving_generations
    return any(number in each.blueprint.policy_versions for each in serving)


def old_version_stays(model: ServedModel, canary: Canary) -> bool:
    """True if the replaced version continues to serve clients that name it."""
    is_older = canary.phase is Phase.PROMOTING and canary.stable < canary.version
    return is_older and is_policy_choice(model, canary.stable)


def has_left(model: ServedModel, canary: Canary) -> bool:
    """True if the version without new requests has answered its last one."""
    version = model.versions.get(canary.leaving)
    return version is None or version.generation is None or old_version_stays(model, canary)


# Two versions of a model take the same requests, by their final configurations: a request is
# divided before it is checked, so what fits the one must fit the other.


def find_difference(stable: Mapping[str, Any], canary: Mapping[str, Any]) -> str:
    """Return why the canary cannot take the stable version's requests, or ""."""
    for what, of in (
        ("max_batch_size", lambda config: config.get("max_batch_size", 0)),
        ("'decoupled'", _is_decoupled),
        ("sequence batching", has_sequences),
        ("inputs", lambda config: _tensors(config, "input")),
    ):
        if of(stable) != of(canary):
            return f"{what} of the two versions differ{'' if what == 'inputs' else 's'}"
    outputs = _tensors(canary, "output")
    missing = (
        f"it does not have the output '{name}' as the stable version has it"
        for name, tensor in _tensors(stable, "output").items()
        if outputs.get(name, ("",))[0] != tensor[0]
    )
    return next(missing, "")


def find_obstacle_to_copies(config: Mapping[str, Any]) -> str:
    """Return why requests of this model cannot be copied, or ""."""
    if _is_decoupled(config):
        return "requests of a decoupled model cannot be copied: they have many answers or none"
    if has_sequences(config):
        return "requests of sequences cannot be copied: each depends on those before it"
    return ""


def _is_decoupled(config: Mapping[str, Any]) -> bool:
    return bool((config.get("model_transaction_policy") or {}).get("decoupled"))


def has_sequences(config: Mapping[str, Any]) -> bool:
    return "sequence_batching" in config


def _tensors(config: Mapping[str, Any], which: str) -> dict[str, tuple[Any, ...]]:
    """Return type, dimensions and necessity of each tensor, by name."""
    return {
        tensor["name"]: (tensor["data_type"], tuple(tensor["dims"]), tensor.get("optional", False))
        for tensor in config.get(which, ())
    }


class Comparisons:
    """The comparisons of a canary's answers with those of the stable version.

    The numbers come from frontends, so each is checked.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        #: Number of skipped requests that came from models and ensembles.
        self.uncopied = 0
        #: Number of them that the broker had counted at the last look.
        self._uncopied_seen = 0
        #: The last differences, in words.
        self.differences: deque[str] = deque(maxlen=_MAX_DIFFERENCES)

    def add(self, report: Mapping[str, Any]) -> Counter[str]:
        """Add a frontend's counts, without values that are no numbers; return the added counts."""
        counts = {result: report.get(result) for result in RESULTS}
        new = Counter({r: n for r, n in counts.items() if type(n) is int and n > 0})
        self.counts += new
        texts = report.get("differences")
        for text in texts[-_MAX_DIFFERENCES:] if isinstance(texts, list) else ():
            self._add_difference(logs.escape(str(text)[:_MAX_TEXT]))
        return new

    def add_uncopied(self, total: int) -> Counter[str]:
        """Add the broker's counts of models' requests; a new broker's begin at 0."""
        more = total - self._uncopied_seen if total >= self._uncopied_seen else total
        self._uncopied_seen = total
        self.uncopied += more
        new = Counter({"skipped": more} if more else {})
        self.counts += new
        return new

    def _add_difference(self, text: str) -> None:
        """Add a difference, which replaces an equal one."""
        if text in self.differences:
            self.differences.remove(text)
        self.differences.append(text)

    def describe(self) -> dict[str, Any]:
        counts = {result: self.counts[result] for result in RESULTS}
        return {**counts, "uncopied": self.uncopied, "differences": list(self.differences)}


class CanaryTotals:
    """The sums of all canaries since the server began, for metrics."""

    def __init__(self) -> None:
        #: Ends by model and result.
        self._ends: Counter[tuple[str, str]] = Counter()
        #: Comparisons by model, version and result.
        self._comparisons: Counter[tuple[str, str, str]] = Counter()

    def count_end(self, model: str, result: str) -> None:
        self._ends[model, result] += 1

    def count_comparisons(self, model: str, version: int, new: Mapping[str, int]) -> None:
        for result, count in new.items():
            self._comparisons[model, str(version), result] += count

    def describe(self) -> dict[str, Any]:
        return {
            "ends": [[*key, count] for key, count in sorted(self._ends.items())],
            "comparisons": [[*key, count] for key, count in sorted(self._comparisons.items())],
        }


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
        #: True for a model of streams: the time of their execution is not compared.
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
        """The version that gets no new requests after the decision."""
        return self.stable if self.phase is Phase.PROMOTING else self.version

    def _move(self, phase: Phase, now_s: float) -> None:
        """Change the phase; nothing else writes it."""
        if phase not in _MOVES.get(self.phase, ()):
            raise RuntimeError(
                f"the canary of model '{self.model}' is {self.phase.value}, so it cannot become "
                f"{phase.value}: see `zmqtriton-ctl canary status`"
            )
        self.phase, self.since_s = phase, now_s

    def take_over(self, blueprint: Blueprint, versions: Iterable[int]) -> None:
        """Record the files that these versions are loaded from."""
        self.contents |= {number: blueprint.versions[number].contents for number in versions}
        self.directory, self.policy = blueprint.directory, blueprint.version_policy

    def begin(self, now_s: float) -> None:
        """Begin the trial: both versions serve."""
        self._move(Phase.RUNNING, now_s)

    def decide(self, phase: Phase, reason: str, now_s: float, *, is_automatic: bool) -> None:
        self._move(phase, now_s)
        self.reason, self.is_automatic = reason, is_automatic

    def end(self, now_s: float) -> None:
        """End the canary: no requests remain to be moved."""
        self._move(Phase.PROMOTED if self.phase is Phase.PROMOTING else Phase.ABORTED, now_s)

    def verdict(
        self, stable: VersionCounts, canary: VersionCounts, executing: Executing = ()
    ) -> str:
        """Add the broker's counts; return why the canary must be aborted, or ""."""
        return self.judge.judge(
            self.settings, stable, canary, executing, is_decoupled=self.is_decoupled
        )

    @property
    def slowness(self) -> str:
        """The slowdown against the stable version, in words; "" without a considerable one."""
        factor, text = self.judge.slowdown(self.settings, is_decoupled=self.is_decoupled)
        return text if factor >= _SLOWER else ""

    @property
    def is_held(self) -> bool:
        """True if only an operator may promote it: it is far slower, and has no limit for that."""
        factor, _ = self.judge.slowdown(self.settings, is_decoupled=self.is_decoupled)
        return self.settings.abort_latency is None and factor >= _TOO_SLOW

    def is_due(self, now_s: float) -> bool:
        """True if the canary has run long enough, with enough requests, to be promoted."""
        after_s = self.settings.promote_after_s
        if after_s is None or self.phase is not Phase.RUNNING:
            return False
        had = self.judge.total.canary.requests
        return now_s - self.since_s >= after_s and had >= self.settings.min_requests

    def split(self) -> wire.TrafficSplit:
        """Return the current division of requests."""
        if self.is_over:
            return wire.TrafficSplit(self.model, 0, 0, 0)
        if self.phase is not Phase.RUNNING:
            weight = routing.ALL if self.phase is Phase.PROMOTING else 0
            return wire.TrafficSplit(self.model, self.stable, self.version, weight)
        settings = self.settings
        return wire.TrafficSplit(
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
            "slowness": self.slowness,
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
    return round(percentage * routing.ALL / 100)
