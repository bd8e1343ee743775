"""The canaries of all models: starts, changes and ends them, and publishes how requests divide.

An operator's call or a model's configuration starts one; the broker's counts, the time or an
operator ends it. Broker and frontends get a division before the new version serves, and its end
before a version is unloaded, so that no request is sent to a missing version. Does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any
from weakref import WeakSet

from zmqtriton.sdk.models import KeepDecisions
from zmqtriton.sdk.supervisor import (
    Blueprint,
    ControlCall,
    CoreParts,
    Feature,
    Promise,
    Scope,
    ServedModel,
    Verb,
)
from zmqtriton.sdk.wire import (
    InvalidArgument,
    Kind,
    NotFound,
    Reason,
    Unavailable,
    ZmqTritonError,
    errors,
    wire,
)
from zmqtriton_extras.canaries.canary import (
    Canary,
    CanaryTotals,
    Phase,
    has_left,
    is_decoupled,
    is_verdict,
    keep_both,
    keep_decision,
    old_version_stays,
    serving_versions,
    stable_beside,
    take_over,
    why_not_copied,
    why_not_serving,
    why_unlike,
)
from zmqtriton_extras.canaries.judge import VersionCounts
from zmqtriton_extras.canaries.settings import CANARY_SETTINGS, CanarySettings, parse_settings

#: The description of the canary, or an error.
Answer = Promise[Any]
_LOOK_S = 1.0
CHECK_INTERVAL_S = 1.0

#: Gets a decision and its reason.
Decide = Callable[[Canary, Phase, str], None]


class CanaryRegistry(Feature):
    def __init__(self, core: CoreParts) -> None:
        self._plan = core.plan
        self._server = core.server
        self._models = core.server.models
        self._audience = core.audience
        #: The current canary of each model, or its last one.
        self._canaries: dict[str, Canary] = {}
        #: Totals for metrics.
        self._totals = totals = CanaryTotals()
        self._watch = CanaryWatch(core, self._canaries, self._decide, totals)
        self._last_executions = LastExecutions(core)
        #: Callers that wait for a canary to start or end, by model.
        self._waiting = WaitingCallers()
        #: Owner of each current canary's story, by model.
        self._stories: dict[str, Scope] = {}

    @property
    def verbs(self) -> Mapping[str, Verb]:
        return canary_verbs(self, self._models)

    # ---------------------------------------------------- what operators ask

    def start_canary(self, name: str, values: Mapping[str, Any], stable: int = 0) -> Answer:
        """Load a version next to the serving one, and give it its share.

        `stable` is the version that served at the previous server, regardless of this one. Raises
        InvalidArgument, NotFound and AlreadyExists.
        """
        settings = parse_settings(values)
        model = self._models.get(name)
        serving = serving_versions(model) if model is not None else []
        if model is None or not serving:
            raise NotFound(
                f"model '{name}' has no version that serves; load it before you start a canary"
            )
        last = self._canaries.get(name)
        if last is not None and not last.is_over:
            text = f"version {last.version} of model '{name}' is"
            if last.is_undecided:
                raise errors.AlreadyExists(
                    f"{text} a canary already ({last.phase.value}); promote or abort it first"
                )
            raise Unavailable(
                f"{text} still ending as a canary ({last.phase.value}); try again in a moment"
            )
        stable = stable or stable_beside(model, settings.version)
        if not stable:
            text = f"version {settings.version} of model '{name}' is the only one that serves"
            raise InvalidArgument(text)
        override = model.history.override
        if override is not None and (override.directory or override.host):
            raise InvalidArgument(
                f"the files of model '{name}' came with its load, so it has no other versions; "
                "put it into a repository"
            )
        answer = self._waiting[name] = Answer()
        canary = self._begin(name, stable, settings)
        self._plan.tell(self._load(canary, model.load(override, again=True)))
        self._tell(canary)
        return answer

    async def _load(self, canary: Canary, loaded: Promise[None]) -> None:
        try:
            await loaded
        except ZmqTritonError as error:
            if canary.phase is Phase.LOADING:
                self._fail(canary, error.text.strip())

    async def change(self, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Change the settings of a running canary. Raises InvalidArgument and NotFound."""
        canary = self._undecided(name)
        settings = canary.settings.changed(values)
        if canary.phase is Phase.RUNNING:
            problem = why_not_copied(self._models[name], canary.stable, settings)
            if problem:
                raise InvalidArgument(problem)
        canary.settings = settings
        self._plan.log("I", f"the canary of model '{name}' has changed: {settings.describe()}")
        self._divide(canary)
        await self._audience.confirm()
        return self.describe_canaries(name)[0]

    def promote(self, name: str) -> Answer:
        """Let the canary serve all requests. Raises NotFound and Unavailable."""
        canary = self._undecided(name)
        if canary.phase is Phase.LOADING:
            raise Unavailable(
                f"version {canary.version} of model '{name}' is still loading; wait for it"
            )
        answer = self._waiting[name] = Answer()
        reason = _with_slowness("an operator has promoted it", canary)
        self._decide(canary, Phase.PROMOTING, reason, is_automatic=False)
        return answer

    def abort(self, name: str) -> Answer:
        """Let the stable version serve all requests again. Raises NotFound."""
        canary, reason = self._undecided(name), "an operator has aborted it"
        self._waiting.refuse(name, reason)
        answer = self._waiting[name] = Answer()
        self._decide(canary, Phase.ABORTING, reason, is_automatic=False)
        return answer

    def describe(self, counts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        return {"canaries": {"models": self.describe_canaries(), **self._totals.describe()}}

    def describe_canaries(self, name: str = "") -> list[dict[str, Any]]:
        """Describe the current or last canary of each model. Raises NotFound for an unknown one."""
        if name and name not in self._canaries:
            raise NotFound(f"model '{name}' has no canary; `zmqtriton-ctl canary start` starts one")
        names = [name] if name else sorted(self._canaries)
        return [self._canaries[each].describe(self._plan.now_s) for each in names]

    def repeated_calls(self) -> Iterable[tuple[str, dict[str, Any]]]:
        """Return the calls that start undecided canaries; decisions are kept on disk."""
        for name, canary in self._canaries.items():
            if canary.is_undecided:
                document = canary.describe(self._plan.now_s)
                values = {
                    key: document[key] for key in CANARY_SETTINGS if document.get(key, "") != ""
                }
                if canary.is_configured:  # the other server has begun it, too
                    yield "canary.change", {"model": name, **values}
                else:
                    own = {"version": canary.version, "stable": canary.stable}
                    yield "canary.start", {"model": name, **values, **own}

    def _undecided(self, name: str) -> Canary:
        canary = self._canaries.get(name)
        if canary is None or not canary.is_undecided:
            raise NotFound(f"model '{name}' has no running canary; start one first")
        return canary

    # ----------------------------------------------------------- what happens

    def load_began(self, blueprint: Blueprint) -> None:
        """Divide requests before a version serves that the configuration wants tried."""
        name, settings = blueprint.name, blueprint.trial
        canary = self._canaries.get(name)
        if canary is None or canary.is_over:
            if settings is None:
                return
            serving = serving_versions(self._models[name]) or blueprint.versions
            others = [number for number in serving if number != settings.version]
            if not others:
                return
            canary = self._begin(name, max(others), settings, is_configured=True)
            self._tell(canary)
        elif settings is not None and canary.is_configured:
            self._reconfigure(canary, settings)
        canary.take_over(blueprint, blueprint.versions)

    def load_succeeded(self, blueprint: Blueprint) -> None:
        """End a canary that the configuration does not want any more: its policy decides."""
        canary = self._canaries.get(blueprint.name)
        if canary is None or canary.phase is not Phase.RUNNING or not canary.is_configured:
            return
        if blueprint.trial is None and canary.version in blueprint.versions:
            is_choice = canary.version in blueprint.policy_versions
            phase = Phase.PROMOTING if is_choice else Phase.ABORTING
            reason = "the model's parameters name no canary any more"
            self._decide(canary, phase, reason, is_automatic=False)

    def compared(self, arguments: Mapping[str, Any]) -> None:
        """Add a frontend's comparisons of answers."""
        canary = self._canaries.get(str(arguments.get("model")))
        if canary is not None and arguments.get("version") == canary.version:
            new = canary.comparisons.add(arguments)
            self._totals.count_comparisons(canary.model, canary.version, new)

    def forget_model(self, name: str) -> None:
        canary = self._canaries.pop(name, None)
        if canary is not None:
            self._waiting.refuse(name, "the model is gone: load it again")
            if name in self._stories:
                self._stories.pop(name).cancel()
            self._audience.tell_broker(wire.TrafficSplit(name, 0, 0, 0))

    def news(self) -> Iterable[wire.TrafficSplit]:
        return [canary.split() for canary in self._canaries.values() if not canary.is_over]

    # ------------------------------------------------------------- its story

    def _tell(self, canary: Canary) -> None:
        scope = self._stories[canary.model] = self._plan.scope()
        scope.tell(self._live(canary, self._models[canary.model]))

    async def _live(self, canary: Canary, model: ServedModel) -> None:
        """Wait for the load, let the canary run until it is decided, and end the version that goes.

        Operators and the watch may decide at any time, also before it runs.
        """
        server = self._server  # nothing more is decided while it ends
        await self._plan.until(
            lambda: (
                canary.phase is not Phase.LOADING or not (model.is_loading or server.is_stopping)
            )
        )
        if canary.phase is Phase.LOADING:
            self._try(canary, model)
        await self._plan.until(
            lambda: (
                not canary.is_undecided
                or (not server.is_stopping and bool(why_not_serving(model, canary)))
            )
        )
        if canary.is_undecided:
            has_canary = canary.version in serving_versions(model)
            self._decide(
                canary,
                Phase.PROMOTING if has_canary else Phase.ABORTING,
                why_not_serving(model, canary),
                is_kept=is_verdict(model, canary),
            )
        # now no new request goes to the version that leaves, whoever divides
        await self._audience.confirm()
        if canary.phase is Phase.ABORTING:
            self._stories[canary.model].tell(self._last_executions.limit(canary))
        version = model.versions.get(canary.leaving)
        if version is not None and version.is_serving and not old_version_stays(model, canary):
            model.unload_version(version)
        self._plan.tell(self._answer_when_known(canary))
        await self._plan.until(lambda: has_left(model, canary))
        canary.end(self._plan.now_s)
        self._divide(canary)

    # ------------------------------------------------------------- the begin

    def _begin(
        self, name: str, stable: int, settings: CanarySettings, *, is_configured: bool = False
    ) -> Canary:
        canary = Canary(name, stable, settings, is_configured=is_configured, now_s=self._plan.now_s)
        self._canaries[name] = canary
        take_over(canary, self._models[name])
        keep_both(self._models[name], canary)
        self._plan.enqueue(KeepDecisions(name, canary.directory, undecided=(canary.version,)))
        self._divide(canary)
        return canary

    def _fail(self, canary: Canary, problem: str) -> None:
        """End a canary that could not begin."""
        self._waiting.refuse(canary.model, problem)
        # it has not served, perhaps for a reason of this moment or this machine alone
        self._decide(canary, Phase.ABORTING, problem, is_kept=False)

    def _try(self, canary: Canary, model: ServedModel) -> None:
        """Give the canary its share, now that the load has ended."""
        problem = why_not_serving(model, canary) or why_unlike(model, canary)
        if problem:
            self._fail(canary, problem)
            return
        canary.is_decoupled = is_decoupled(model, canary)
        canary.begin(self._plan.now_s)
        self._plan.log(
            "I",
            f"version {canary.version} of model '{canary.model}' is tried beside version "
            f"{canary.stable}: {canary.settings.describe()}",
        )
        self._divide(canary)
        self._plan.tell(self._answer_when_known(canary))
        self._watch.begin()

    def _reconfigure(self, canary: Canary, settings: CanarySettings) -> None:
        if settings.version != canary.version:
            text = f"model '{canary.model}' has a canary, version {canary.version}; version "
            self._plan.log("W", f"{text}{settings.version} can be one when that has ended")
        elif canary.settings != settings and canary.is_undecided:
            canary.settings = settings
            self._divide(canary)

    # --------------------------------------------------------------- the end

    def _decide(
        self,
        canary: Canary,
        phase: Phase,
        reason: str,
        *,
        is_automatic: bool = True,
        is_kept: bool = True,
    ) -> None:
        canary.decide(phase, reason, self._plan.now_s, is_automatic=is_automatic)
        result = "promoted" if phase is Phase.PROMOTING else "aborted"
        self._totals.count_end(canary.model, result)
        self._plan.log(
            "W" if phase is Phase.ABORTING and is_automatic else "I",
            f"version {canary.version}, the canary of model '{canary.model}', is {result}: "
            f"{reason}",
        )
        decisions = keep_decision(self._models[canary.model], canary)
        if is_kept:
            self._plan.enqueue(KeepDecisions(canary.model, canary.directory, decisions))
        self._divide(canary)

    async def _answer_when_known(self, canary: Canary) -> None:
        answer = self._waiting.pop(canary.model, None)  # the next one may ask before this is known
        await self._audience.confirm()
        if answer is not None:
            answer(canary.describe(self._plan.now_s))

    # ------------------------------------------------------------ the others

    def _divide(self, canary: Canary) -> None:
        """Send the present division of requests to the broker and the frontends."""
        message = canary.split()
        self._audience.tell_broker(message)
        self._audience.tell_frontends(message)


class LastExecutions:
    """Ends the last executions of an aborted version, if they take too long.

    Without a limit a hanging version would stay for ever, and no canary could follow it. Open
    sequences without a running execution continue.
    """

    def __init__(self, core: CoreParts) -> None:
        self._plan = core.plan
        self._counts = core.counts
        self._models = core.server.models

    async def limit(self, canary: Canary) -> None:
        """End the executions of an aborted canary that last longer than its settings allow."""
        within_s = canary.settings.abort_within_s
        if within_s is None:
            return
        await self._plan.pause(within_s)
        while canary.phase is Phase.ABORTING:
            report = await self._counts.request()
            if canary.phase is Phase.ABORTING and self._end(canary, within_s, report):
                return
            await self._plan.pause(_LOOK_S)

    def _end(self, canary: Canary, within_s: float, report: dict[str, Any]) -> bool:
        """End the processes of the version if one executes for too long; return whether one did."""
        ages_ns = [
            oldest
            for entry in report["counts"] or ()
            if (entry["model"], entry["version"]) == (canary.model, canary.version)
            for oldest, _ in entry.get("executing_ns", ())
        ]
        version = self._models[canary.model].versions.get(canary.version)
        generation = version.generation if version is not None else None
        if generation is None or not any(ns >= within_s * 1e9 for ns in ages_ns):
            return False
        text = f"version {canary.version} was aborted, and has not ended in {within_s:g} s"
        self._plan.log("W", f"{text}: its processes are ended, with what they execute")
        generation.abort(Reason.of(Kind.OTHER, text))
        return True


class CanaryWatch:
    """Lets running canaries be judged from time to time, by the broker's counts."""

    def __init__(
        self,
        core: CoreParts,
        canaries: Mapping[str, Canary],
        decide: Decide,
        totals: CanaryTotals,
    ) -> None:
        self._plan = core.plan
        self._counts = core.counts
        self._canaries = canaries
        self._decide = decide
        self._totals = totals
        self._is_watching = False
        #: Canaries whose promotion waits for an operator, as the log has said.
        self._held: WeakSet[Canary] = WeakSet()

    def begin(self) -> None:
        """Look at the counts now, and again as long as a canary runs."""
        if not self._is_watching:
            self._is_watching = True
            self._plan.tell(self._watch())

    async def _watch(self) -> None:
        while self._is_watching:
            report = await self._counts.request()
            entries = {(each["model"], each["version"]): each for each in report["counts"] or ()}
            for canary in list(self._canaries.values()):
                if canary.phase is Phase.RUNNING:
                    self._judge(canary, entries)
            self._is_watching = any(r.phase is Phase.RUNNING for r in self._canaries.values())
            if self._is_watching:
                await self._plan.pause(CHECK_INTERVAL_S)

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
        elif canary.is_due(self._plan.now_s) and not self._is_held(canary):
            reason = f"nothing was wrong for {canary.settings.promote_after_s:g} s"
            self._decide(canary, Phase.PROMOTING, _with_slowness(reason, canary))

    def _is_held(self, canary: Canary) -> bool:
        """Return whether a due canary is too slow to be promoted; log it once."""
        if canary.is_held and canary not in self._held:
            self._held.add(canary)
            self._plan.log(
                "W",
                f"version {canary.version}, the canary of model '{canary.model}', is not promoted "
                f"by itself: {canary.slowness}; promote or abort it, or set abort_latency",
            )
        return canary.is_held


def _with_slowness(reason: str, canary: Canary) -> str:
    return f"{reason}, though {canary.slowness}" if canary.slowness else reason


class WaitingCallers(dict[str, Answer]):
    """The callers that wait for a canary to begin or end, by model."""

    def refuse(self, name: str, why: str) -> None:
        answer = self.pop(name, None)
        if answer is not None:
            answer.fail(InvalidArgument(f"the canary of model '{name}' has not begun: {why}"))


def canary_verbs(canaries: CanaryRegistry, models: Mapping[str, ServedModel]) -> Mapping[str, Verb]:
    """Return the verbs; each is answered when it has taken effect."""

    def show(call: ControlCall) -> list[dict[str, Any]]:
        name = ControlCall.required_model_name(call.arguments) if "model" in call.arguments else ""
        return canaries.describe_canaries(name)

    def start_elsewhere(call: ControlCall) -> dict[str, Any]:
        # other versions may serve there
        model = models.get(_model_name(call))
        stable = 0 if model is None else stable_beside(model, call.arguments.get("version"))
        return {**call.arguments, "stable": stable}

    return {
        "canary.start": Verb(
            lambda call: canaries.start_canary(_model_name(call), _values(call), _stable(call)),
            needs_repository=True,
            changes=Verb.always,
            goes_over=start_elsewhere,
        ),
        "canary.change": Verb(
            lambda call: canaries.change(_model_name(call), _values(call)),
            changes=Verb.always,
            goes_over=Verb.the_same,
        ),
        "canary.promote": Verb(
            lambda call: canaries.promote(_model_name(call)),
            changes=Verb.always,
            goes_over=Verb.the_same,
        ),
        "canary.abort": Verb(
            lambda call: canaries.abort(_model_name(call)),
            changes=Verb.always,
            goes_over=Verb.the_same,
        ),
        "canary.status": Verb(show),
        "canary.compared": Verb(lambda call: canaries.compared(call.arguments)),
    }


def _model_name(call: ControlCall) -> str:
    return ControlCall.required_model_name(call.arguments)


def _values(call: ControlCall) -> dict[str, Any]:
    others = {"model", "stable"} if call.is_of_server else {"model"}
    return {key: value for key, value in call.arguments.items() if key not in others}


def _stable(call: ControlCall) -> int:
    """Return the version that serves at the predecessor; 0 without a take-over."""
    return int(call.arguments.get("stable", 0)) if call.is_of_server else 0
