"""One load of a model, from its request to its end: a machine, whose picture is in `states.py`.

A load finds out what to build: the model as its files have it, after the models that it calls, or
what serves with another number of instances. Then it has the environment prepared, starts a
generation of each version, gives the versions that stay their new instances, and swaps in. As in
Triton, all new generations serve or none does: they are swapped in once the last one is loaded, and
what served before stays if one of them fails.

Belongs to a model, which runs at most one at a time, and owns generations until they serve. Does no
I/O.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Protocol

from zmqtriton.environments.demand import SERVER_ENVIRONMENT, Environment, EnvironmentSpec
from zmqtriton.repository.scan import VersionSelection, no_version_text
from zmqtriton.supervisor import states
from zmqtriton.supervisor.actions import LoadOverride
from zmqtriton.supervisor.models.blueprint import (
    Blueprint,
    EnsembleBlueprint,
    FinalConfig,
    ReadFailure,
    Scale,
)
from zmqtriton.supervisor.models.call_graph import (
    LoadCallback,
    LoadOrder,
    LoadSlots,
    RetirementQueue,
)
from zmqtriton.supervisor.models.ensembles import EnsembleGeneration, EnsembleMembers
from zmqtriton.supervisor.models.generation import Generation, GenerationOwner
from zmqtriton.supervisor.models.instance import ProcessLost, describe_error
from zmqtriton.supervisor.models.instance_changes import ChangeCallback, NeedsNewGeneration
from zmqtriton.supervisor.models.load_history import LoadHistory
from zmqtriton.supervisor.models.preparations import EnvironmentPreparations, ModelReadings
from zmqtriton.supervisor.models.version import ModelVersion
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.server_processes.audience import Audience
from zmqtriton.supervisor.server_processes.introductions import Introductions
from zmqtriton.supervisor.settings import Policy
from zmqtriton.supervisor.states import LOAD_ENDS, UNLOADED, GenerationState, LoadState
from zmqtriton.supervisor.story import Change, Outcome, Story
from zmqtriton_floor import wire
from zmqtriton_floor.errors import (
    InternalError,
    InvalidArgument,
    Unavailable,
    ZmqTritonError,
    from_number,
)
from zmqtriton_floor.reasons import Kind, Reason

#: A setting that each backend gets.
_LARGEST_BATCH = "default-max-batch-size"
#: Behind Triton's text, which has no reason.
_NOT_THERE = ". No model repository has a directory of this name"
#: Phases, in words.
WAITS_FOR_OTHERS = "it waits until others are loaded"
_READS = "its files are read"
_INITIALIZES = "its code is imported and initialized"
#: The phases up to the blueprint; a source of models may have a more precise one.
_PHASES = {
    LoadState.ASKED: WAITS_FOR_OTHERS,
    LoadState.WAITING: WAITS_FOR_OTHERS,
    LoadState.READING: _READS,
    LoadState.SETTLING: _READS,
    LoadState.DEPENDENCIES: "the models that it calls are loaded first",
}
#: Changes the instances of a serving generation to those of the blueprint. Raises ZmqTritonError.
InstanceChange = Callable[[Blueprint, ChangeCallback], None]


def ignore_result(_: ZmqTritonError | None) -> None:
    """Ignore a result that nobody asked for; the log and the index have the errors."""


class LoadRequest(NamedTuple):
    """The request for a load, as it was made."""

    #: Used in place of what is on disk.
    override: LoadOverride | None = None
    #: A poll does not retry what has failed and has not changed.
    is_poll: bool = False
    #: New files are loaded once they have not changed for this long: they may be half a copy.
    settle_s: float = 0.0
    #: Failed members of an ensemble are retried.
    retry_failed_members: bool = False
    #: What serves gets so many instances; nothing is read.
    scale: Scale | None = None


class LoadListener(Protocol):
    """Hears of models before a load serves them, of serving ones, and of each load's end."""

    def load_began(self, blueprint: Blueprint) -> None: ...

    def load_succeeded(self, blueprint: Blueprint) -> None: ...

    def load_ended(self, name: str) -> None: ...


class ModelContext(NamedTuple):
    """The rest of the core as every model needs it."""

    plan: Plan
    introductions: Introductions
    audience: Audience
    load_slots: LoadSlots
    #: All that were started and have not ended, by number.
    generations: dict[int, Generation]
    ensemble_members: EnsembleMembers
    load_order: LoadOrder
    retirements: RetirementQueue
    preparations: EnvironmentPreparations
    readings: ModelReadings
    listener: LoadListener
    policy: Policy


class LoadedModel(GenerationOwner, Protocol):
    """A model as its loads see it; it owns a generation from the moment that that serves."""

    name: str
    versions: dict[int, ModelVersion]
    history: LoadHistory
    selection: VersionSelection

    def load_ended(self, load: Load) -> None:
        """Begin the next load, if there is one."""

    def record_loaded(self, blueprint: Blueprint) -> None:
        """Record that all versions serve; others are not wanted any more."""

    def publish(self, version: ModelVersion) -> None:
        """Tell the frontends of a version."""

    def version_infos(self) -> list[wire.VersionInfo]:
        """Return everything that frontends must know of it."""


class Load(GenerationOwner):
    """Calls `done` exactly once."""

    def __init__(
        self,
        model: LoadedModel,
        around: ModelContext,
        done: LoadCallback,
        request: LoadRequest,
    ) -> None:
        self.state = LoadState.ASKED
        self._model = model
        self._context = around
        self._done = done
        self._request = request
        self._story: Story | None = None
        #: Something of the versions has changed.
        self._change = Change()
        #: The pending reading, or the last one; and the pending preparation, or 0.
        self._reading = self._preparation = 0
        self._prepared = Outcome[Environment | ZmqTritonError]()
        self._blueprint: Blueprint
        #: An ensemble's configuration, or why it cannot be served.
        self._combined: FinalConfig | ZmqTritonError | None = None
        #: The environment, or why there is none.
        self._environment: Environment | ZmqTritonError = SERVER_ENVIRONMENT
        #: The generations that do not serve yet, by version.
        self._generations: dict[int, Generation] = {}
        #: The changes of versions that keep their generation; they are made last.
        self._changes: dict[int, InstanceChange] = {}
        #: The versions whose generation is being loaded, or whose instances are being changed.
        self._outstanding: set[int] = set()
        #: None of the new generations will serve.
        self._has_failed = False
        #: Versions that serve what is new, while not every frontend knows.
        self._unacknowledged: set[int] = set()
        self._retries: dict[int, int] = {}
        self._failures: dict[int, Reason] = {}

    def _take(self, event: states.Event) -> None:
        """Change the state; nothing else writes it."""
        whose = f"load of model '{self._model.name}'"
        self.state = states.next_state(states.LOAD_TRANSITIONS, self.state, event, whose)

    @property
    def phase(self) -> str:
        """The phase that it is in, in words: what it waits for."""
        if self.state in _PHASES:
            return self._context.readings.phase(self._model.name) or _PHASES[self.state]
        if self._preparation:
            return self._context.preparations.phase(self._preparation)
        return _INITIALIZES

    # ---------------------------------------------------------------- the story

    def begin(self) -> None:
        self._take(states.LoadBegun())
        self._story = Story(self._tell())

    async def _tell(self) -> None:
        try:
            await self._load()
        except ZmqTritonError as error:
            self._end(error)
        except Exception:  # which the log gets; the next load may begin
            self.cancel(InternalError("an error of the server's own").reason, has_failed=True)
            raise
        else:
            self._end(None)

    async def _load(self) -> None:
        """Find out what is to be built, after the models that it calls, and build that.

        Raises why not all versions serve.
        """
        history, request = self._model.history, self._request
        await self._slot()
        if request.scale is not None:
            await self._build(self._scaled(request.scale))
            return
        reading = await self._read()
        # what was not there has no fingerprint
        is_known = request.is_poll and bool(reading.fingerprint)
        was_tried = is_known and history.was_attempted(reading.fingerprint)
        if isinstance(reading, Blueprint) and reading.ensemble is not None:
            # a member that was missing may be there now
            combined = await self._load_members(reading, reading.ensemble)
            is_failed = isinstance(combined, ZmqTritonError)
            if was_tried if is_failed else self._is_current(reading):
                history.record_tried()
            else:
                await self._build(reading, combined)
        elif was_tried:
            history.record_tried()
        elif isinstance(reading, ReadFailure):
            raise self._note_failure(reading)
        elif self._is_current(reading):
            self._note_unchanged(reading)
        else:
            await self._load_callees(reading)
            await self._build(reading)

    async def _build(
        self, blueprint: Blueprint, combined: FinalConfig | ZmqTritonError | None = None
    ) -> None:
        """Build the generations; an ensemble comes with its configuration, or why it has none.

        Raises why not all versions serve.
        """
        self._take(states.BlueprintReady())
        self._blueprint, self._combined = blueprint, combined
        self._record_reading(blueprint)
        if not blueprint.versions:
            await self._refuse_all(blueprint.name)
        self._choose_changes(blueprint)

        await self._prepare_environment(blueprint)
        self._take(states.EnvironmentReady())
        for number, generation in list(self._generations.items()):
            self._start(number, generation)
        await self._change.until(lambda: not self._outstanding)

        # last, since instances that were replaced do not come back
        if self._changes and not self._has_failed:
            self._take(states.ChangesBegun())
            self._begin_changes()
            await self._change.until(lambda: not self._outstanding)

        self._take(states.AnnouncementBegun())
        if self._has_failed:
            self._drop_loaded()
        for generation in list(self._generations.values()):
            self._swap_in(generation)
        await self._change.until(lambda: not self._unacknowledged)
        if self._failures:
            raise self._error()
        self._record_success(blueprint)

    # ----------------------------------------------------- what is to be built

    async def _slot(self) -> None:
        """Wait for one of the server's slots."""
        granted = Outcome[None]()
        self._context.load_slots.acquire(self, granted)
        await granted

    def _scaled(self, scale: Scale) -> Blueprint:
        """Return the serving versions with another number of instances. Raises ZmqTritonError."""
        serving = {n: v.generation for n, v in self._model.versions.items() if v.is_serving}
        newest = serving[max(serving)] if serving else None
        if newest is None:
            raise Unavailable(f"model '{self._model.name}' is not loaded, so it cannot be scaled")
        blueprint = newest.blueprint.scaled(scale)
        versions = {n: v for n, v in blueprint.versions.items() if n in serving}
        # what was said of it when it was loaded need not be said again
        return replace(blueprint, warnings=(), completed_config_text="", versions=versions)

    async def _read(self) -> Blueprint | ReadFailure:
        """Read the model, again and again until its files stay the same."""
        around, request, last_fingerprint = self._context, self._request, ""
        while True:
            self._take(states.SlotGranted())
            read = Outcome[Blueprint | ReadFailure]()
            self._reading = around.readings.request_read(
                self._model.name,
                request.override,
                read,
                # whoever asks for a load has put everything in place
                is_patient=not request.retry_failed_members,
                is_poll=request.is_poll,
                selection=self._model.selection,
            )
            reading = await read
            if isinstance(reading, Blueprint):
                reading = self._model.history.keep_scale(reading)
            fingerprint = reading.fingerprint
            is_settled = fingerprint in ("", last_fingerprint) or not request.settle_s
            if is_settled or self._model.history.was_attempted(fingerprint):
                return reading
            last_fingerprint = fingerprint
            self._take(states.FilesUnsettled())
            around.load_slots.release(self)
            is_time = Outcome[None]()
            around.plan.call_later(request.settle_s, is_time)
            await is_time
            await self._slot()

    def _is_current(self, blueprint: Blueprint) -> bool:
        model = self._model
        return model.history.is_current(blueprint, self._request.override, model.versions)

    def _note_failure(self, failure: ReadFailure) -> ZmqTritonError:
        """Record that the model cannot be read; return why, as who asked is told."""
        self._model.history.record_read_failure(failure)
        text = failure.reason.text
        if not failure.is_duplicate and failure.fingerprint:
            text = f"Poll failed for model directory '{self._model.name}': {text}"
        self._context.plan.log("E", text, model=self._model.name)
        text = f"failed to load '{self._model.name}', failed to poll from model repository"
        text += f": {failure.reason.text}" if failure.fingerprint else _NOT_THERE
        return InternalError(text)

    def _note_unchanged(self, blueprint: Blueprint) -> None:
        self._model.history.record_unchanged(blueprint)
        for number in blueprint.versions:
            self._model.versions[number].transition(states.GenerationServing())
        if not self._request.is_poll:  # which are many
            text = f"'{blueprint.name}' has not changed since it was loaded; it serves on as it is"
            self._context.plan.log("I", text, model=blueprint.name)

    def _record_dependencies(self, blueprint: Blueprint) -> None:
        self._take(states.DependenciesNamed())
        self._model.history.record_dependencies(blueprint)
        self._context.load_order.break_wait_cycles(self._model.name)

    async def _load_callees(self, blueprint: Blueprint) -> None:
        """Load the models that it names first, whether or not they can be loaded."""
        self._record_dependencies(blueprint)
        if blueprint.callees:
            around, tried = self._context, Outcome[None]()
            around.load_slots.release(self)
            again = self._request.retry_failed_members
            around.load_order.load_callees(blueprint.name, blueprint.callees, tried, again=again)
            await tried
            await self._slot()

    async def _load_members(
        self, blueprint: Blueprint, ensemble: EnsembleBlueprint
    ) -> FinalConfig | ZmqTritonError:
        """Load an ensemble's members first, which may need the slot.

        Return its configuration, or why it has none.
        """
        around, members = self._context, self._context.ensemble_members
        around.load_slots.release(self)
        self._record_dependencies(blueprint)
        try:
            members.check_acyclic(blueprint.name)
            tried = Outcome[None]()
            members.load_members(ensemble, tried, again=self._request.retry_failed_members)
            await tried
            return members.finalize_config(blueprint)
        except ZmqTritonError as error:
            return error

    # ------------------------------------------------------ how it is built

    def _choose_changes(self, blueprint: Blueprint) -> None:
        """Choose for each version whether its instances change, or a new generation is loaded."""
        scale = self._request.scale
        verb, aim = ("loading", "") if scale is None else ("scaling", f" to {scale.text}")
        # instances that were replaced do not come back if another version fails
        can_roll = (
            sum(
                number not in self._model.versions
                or not _differs_in_instances_only(blueprint, self._model.versions[number])
                for number in blueprint.versions
            )
            == 1
        )
        for number in blueprint.versions:
            version = self._model.versions.setdefault(number, ModelVersion(blueprint.name, number))
            text = f"{verb}: {blueprint.name}:{number}{aim}"
            self._context.plan.log("I", text, model=blueprint.name, version=number)
            if version.transition(states.LoadStarted()):
                self._model.publish(version)
            change = _change_in_place(blueprint, version, can_roll=can_roll)
            if change is not None:
                self._changes[number] = change
            else:
                self._add_generation(number)

    async def _refuse_all(self, name: str) -> None:
        """Record that there is no version. From now on the model is known, also to frontends."""
        self._take(states.AnnouncementBegun())
        for news in self._model.version_infos():
            self._context.audience.tell_frontends(news)
        known = Outcome[None]()
        self._context.audience.confirm_frontends(known)
        await known
        # Triton's words for it; the table has others.
        raise InvalidArgument(f"load failed for model '{name}': {no_version_text(name)}\n")

    def _record_reading(self, blueprint: Blueprint) -> None:
        """Record the blueprint that is about to be built, and log the warnings of its reading."""
        around = self._context
        if self._request.scale is None:
            self._model.history.record_attempt(blueprint, self._request.override)
        around.listener.load_began(blueprint)
        if completed := blueprint.completed_config_text:
            around.plan.log("V", "Server side auto-completed config: ", completed)
        for warning in blueprint.warnings:
            around.plan.log("W", warning, model=blueprint.name)

    @property
    def _needs_environment(self) -> bool:
        return any(not self._blueprint.versions[number].problem for number in self._generations)

    async def _prepare_environment(self, blueprint: Blueprint) -> None:
        demand = blueprint.environment
        if isinstance(demand, Environment):
            self._environment = demand
        elif isinstance(demand, EnvironmentSpec) and self._needs_environment:
            preparations, prepared = self._context.preparations, self._prepared
            self._preparation = preparations.begin(blueprint.name, demand, prepared)
            self._environment = await prepared
            self._preparation = 0

    def _begin_changes(self) -> None:
        changes, self._changes = self._changes, {}
        self._outstanding = set(changes)
        for number, change in changes.items():
            then = partial(self._on_instances_changed, number)
            try:
                change(self._blueprint, then)
            except ZmqTritonError as error:
                then(error)

    def _drop_loaded(self) -> None:
        """End the generations that will not serve, since another version cannot."""
        generations, self._generations, self._changes = self._generations, {}, {}
        failed = ", ".join(map(str, sorted(self._failures)))
        for number, generation in generations.items():
            version = self._model.versions[number]
            is_first = version.generation is None
            # the first time in Triton's words
            text = UNLOADED.text if is_first else f"version {failed} could not be loaded"
            reason = Reason.of(Kind.OTHER_VERSION_FAILED, text, versions=failed)
            if version.transition(states.GenerationFailed(), reason):
                self._model.publish(version)
            generation.abort(UNLOADED)

    def _on_instances_changed(self, number: int, error: ZmqTritonError | None) -> None:
        if number not in self._outstanding:
            return  # the model is being unloaded
        version = self._model.versions[number]
        if isinstance(error, NeedsNewGeneration):
            assert version.generation is not None
            self._take(states.GenerationNeeded())
            self._environment = version.generation.environment
            self._start(number, self._add_generation(number))
            return
        if error is not None:
            self._fail(number, error)
            return
        self._outstanding.discard(number)
        self._unacknowledged.add(number)
        version.transition(states.GenerationServing())
        self._model.publish(version)
        ended = partial(self._on_version_acknowledged, number, None)
        # a broker that has just taken over would still give requests to the old instances
        then = partial(self._context.introductions.after_retirements, ended)
        self._context.audience.confirm(then)
        self._change()

    def _add_generation(self, number: int) -> Generation:
        around = self._context
        self._retries.setdefault(number, around.policy.load_retries)
        parts = (self, around.plan, around.introductions, self._blueprint, number)
        if self._blueprint.ensemble is None:
            generation = Generation(*parts)
        else:
            generation = EnsembleGeneration(*parts, around.ensemble_members)
            limit = self._blueprint.ensemble.max_inflight_requests
            if limit:
                text = f"Ensemble model '{self._model.name}' configured with max_inflight_requests"
                around.plan.log("I", f"{text}: {limit}")
        around.generations[generation.number] = self._generations[number] = generation
        self._outstanding.add(number)
        return generation

    def _start(self, number: int, generation: Generation) -> None:
        plan = self._blueprint.versions[number]
        combined = self._combined
        if plan.problem:
            self._fail_unstarted(generation, plan.problem)
        elif isinstance(combined, ZmqTritonError):
            self._fail_unstarted(generation, combined)
        elif isinstance(self._environment, ZmqTritonError):
            self._fail_unstarted(generation, self._environment)
        else:
            generation.environment = self._environment
            generation.final_config = combined or generation.final_config
            if self._blueprint.ensemble is None:
                self._log_initialization(generation)
            generation.start()

    def _log_initialization(self, generation: Generation) -> None:
        plan, blueprint = self._context.plan, self._blueprint
        largest = json.loads(blueprint.backend_settings).get(_LARGEST_BATCH)
        if largest is not None:
            plan.log("V", f"Adding default backend config setting: {_LARGEST_BATCH},{largest}")
        text = f"{blueprint.name} (version {generation.version})"
        plan.log("V", f"TRITONBACKEND_ModelInitialize: {text}")
        if generation.final_config is not None:
            plan.log("V", "model configuration:\n", document=generation.final_config.config)

    def _fail_unstarted(self, generation: Generation, error: ZmqTritonError) -> None:
        """Fail a version for which nothing can be started."""
        self._fail(generation.version, error)
        generation.abort(error.reason)

    # ------------------------------------- what becomes of a new generation

    def generation_loaded(self, generation: Generation) -> None:
        """Announce the generation to the broker first.

        So that it knows the requests that will come.
        """
        generation.announce()
        self._context.audience.confirm_broker(partial(self._on_announced, generation))

    def _on_announced(self, generation: Generation) -> None:
        is_wanted = self._generations.get(generation.version) is generation
        if is_wanted and generation.state is GenerationState.SERVING:
            self._outstanding.discard(generation.version)
            self._change()

    def _swap_in(self, generation: Generation) -> None:
        number = generation.version
        del self._generations[number]
        self._unacknowledged.add(number)
        version = self._model.versions[number]
        old, version.generation = version.generation, generation
        generation.owner = self._model
        version.transition(states.GenerationServing())
        self._model.publish(version)
        then = partial(self._on_version_acknowledged, number, old)
        self._context.audience.confirm_frontends(then)

    def _on_version_acknowledged(self, number: int, old: Generation | None) -> None:
        if old is not None:
            old.retire()
        self._unacknowledged.discard(number)
        self._change()

    def generation_failed(self, generation: Generation, error: ZmqTritonError) -> None:
        number = generation.version
        if self._generations.get(number) is not generation:
            return
        if self._retries[number]:
            self._retries[number] -= 1
            self._start(number, self._add_generation(number))
        else:
            self._fail(number, error)

    def generation_given_up(self, generation: Generation) -> None:
        reason = generation.readiness.why_not_ready
        error = from_number(InternalError.number, reason.text if reason else "", reason)
        self.generation_failed(generation, error)
        generation.abort(reason)

    def _fail(self, number: int, error: ZmqTritonError) -> None:
        reason = describe_error(error)
        if isinstance(error, ProcessLost):
            self._model.history.record_lost_process()
        name = self._model.name
        text = f"failed to load '{name}' version {number}: {reason.text}"
        self._context.plan.log("E", text, model=name, version=number)
        self._failures[number] = reason
        self._generations.pop(number, None)
        self._outstanding.discard(number)
        self._has_failed |= not self._blueprint.is_tried(number)
        version = self._model.versions[number]
        if version.transition(states.GenerationFailed(), reason):
            self._model.publish(version)
        self._change()

    # ----------------------------------------------------------------- the end

    def cancel(self, why: Reason = UNLOADED, *, has_failed: bool = False) -> None:
        """Cancel the load: generations that are not swapped in yet end now.

        Versions of a load that has failed by this are not loaded, so that the next one may begin.
        """
        if self._story is not None:
            self._story.cancel()
        for number in self._generations if has_failed else ():
            version = self._model.versions[number]
            if version.transition(states.GenerationFailed(), why):
                self._model.publish(version)
        self._context.preparations.cancel(self._preparation)
        self._context.readings.cancel_read(self._reading)
        generations, self._generations = self._generations, {}
        self._changes, self._outstanding = {}, set()
        for generation in generations.values():
            generation.abort(why)
        name = self._model.name
        numbers = sorted(generations)
        texts = "".join(f"version {n} is at UNAVAILABLE state: {why.text};\n" for n in numbers)
        error = Unavailable(f"load failed for model '{name}': {texts or why.text}")
        self._end(error, states.LoadCancelled())

    def drop_version(self, number: int) -> None:
        """Go on without a version that is being unloaded."""
        is_changed = self._changes.pop(number, None) is not None or number in self._outstanding
        self._outstanding.discard(number)
        generation = self._generations.pop(number, None)
        if generation is not None:
            generation.abort(UNLOADED)
        if is_changed or generation is not None:
            self._failures[number] = UNLOADED
            if self._preparation and not self._needs_environment:
                self._context.preparations.cancel(self._preparation)
                self._prepared(self._environment)
            else:
                self._change()

    def _record_success(self, blueprint: Blueprint) -> None:
        self._model.record_loaded(blueprint)
        scale = self._request.scale
        if scale is not None:
            self._model.history.record_scale(scale, blueprint)
        what = "loaded" if scale is None else "scaled"
        name = self._model.name
        self._context.plan.log("I", f"successfully {what} '{name}'", model=name)

    def _error(self) -> ZmqTritonError:
        """Return why not all versions serve, in Triton's words."""
        if isinstance(self._combined, ZmqTritonError):
            # The ensemble itself cannot be made, whichever versions it has.
            texts = f"{self._combined.text}\n"
        else:
            texts = "".join(
                f"version {number} is at UNAVAILABLE state: {reason.text};"
                for number, reason in sorted(self._failures.items())
            )
            texts += "\n"
        return InvalidArgument(f"load failed for model '{self._model.name}': {texts}")

    def _end(self, error: ZmqTritonError | None, event: states.Event | None = None) -> None:
        """End the load, with an error or without. Only the first end counts."""
        if self.state in LOAD_ENDS:
            return
        self._take(event or (states.LoadGivenUp() if error else states.LoadSucceeded()))
        self._context.load_slots.release(self)
        self._model.load_ended(self)
        self._context.listener.load_ended(self._model.name)
        self._done(error)


def _serving_generation(version: ModelVersion) -> Generation | None:
    generation = version.generation if version.is_serving else None
    is_steady = generation is not None and generation.state is GenerationState.SERVING
    return generation if is_steady else None


def _differs_in_instances_only(blueprint: Blueprint, version: ModelVersion) -> bool:
    generation = _serving_generation(version)
    return generation is not None and blueprint.differs_in_instances_only(
        generation.blueprint, version.number
    )


def _change_in_place(
    blueprint: Blueprint, version: ModelVersion, *, can_roll: bool
) -> InstanceChange | None:
    """Return the change of the serving generation's instances, if no new one is needed."""
    generation = _serving_generation(version)
    if generation is None:
        return None
    if blueprint.differs_in_instances_only(generation.blueprint, version.number):
        return generation.change_instance_groups
    new = blueprint.versions[version.number]
    served = generation.blueprint.versions[version.number]
    is_same_place = blueprint.directory == generation.blueprint.directory
    if new.fingerprint_without_code == served.fingerprint_without_code != "":
        return generation.roll if can_roll and is_same_place and not new.problem else None
    return None
