"""One load of a model: build a generation of each version, swap them in, report the outcome.

Belongs to a model, which runs at most one at a time; a LoadInquiry finds out what to build. As in
Triton, all new generations serve or none does: they are swapped in once the last one is loaded, and
what served before stays if one of them fails. Does no I/O.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

from zmqtriton.environments.demand import SERVER_ENVIRONMENT, Environment, EnvironmentSpec
from zmqtriton.repository.scan import no_version_text
from zmqtriton.supervisor import states
from zmqtriton.supervisor.models.blueprint import Blueprint, FinalConfig
from zmqtriton.supervisor.models.context import LoadCallback, ModelContext
from zmqtriton.supervisor.models.ensembles import EnsembleGeneration
from zmqtriton.supervisor.models.failure_text import describe_error
from zmqtriton.supervisor.models.generation import Generation, GenerationOwner
from zmqtriton.supervisor.models.instance import ProcessLost
from zmqtriton.supervisor.models.instance_groups import ChangeCallback
from zmqtriton.supervisor.models.loads.load_inquiry import LoadInquiry, LoadRequest
from zmqtriton.supervisor.models.loads.protocols import LoadTarget
from zmqtriton.supervisor.models.rolling_reload import NeedsNewGeneration
from zmqtriton.supervisor.models.version import ModelVersion
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.states import UNLOADED, GenerationState
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

#: Changes the instances of a serving generation to those of the blueprint. Raises ZmqTritonError.
InstanceChange = Callable[[Blueprint, ChangeCallback], None]


def ignore_result(_: ZmqTritonError | None) -> None:
    """Ignore a result that nobody asked for; the log and the index have the errors."""


class ModelLoad(GenerationOwner):
    """Calls `done` exactly once."""

    def __init__(
        self,
        model: LoadTarget,
        around: ModelContext,
        done: LoadCallback,
        request: LoadRequest,
    ) -> None:
        self._model = model
        self._context = around
        self._done = done
        self._request = request
        self._inquiry = LoadInquiry(model, around, request, self)
        #: An ensemble's configuration, or why it cannot be served.
        self._combined: FinalConfig | ZmqTritonError | None = None
        self._blueprint: Blueprint | None = None
        #: The environment, or why there is none.
        self._environment: Environment | ZmqTritonError = SERVER_ENVIRONMENT
        #: The number of the pending preparation, or 0.
        self._preparing = 0
        #: The generations that do not serve yet, by version.
        self._generations: dict[int, Generation] = {}
        #: The versions whose generation is loaded, and waits for the others.
        self._loaded: set[int] = set()
        #: Versions that keep their generation: changes to apply to its instances, and versions
        #: whose changes are in progress.
        self._changes: dict[int, InstanceChange] = {}
        self._changing: set[int] = set()
        #: None of the new generations will serve.
        self._has_failed = False
        #: Versions whose new generation serves, but not every frontend knows.
        self._unacknowledged_versions: set[int] = set()
        self._retries: dict[int, int] = {}
        self._failures: dict[int, Reason] = {}
        self._has_ended = False

    @property
    def phase(self) -> str:
        """The phase that it is in, in words: what it waits for."""
        if self._blueprint is None:
            return self._inquiry.phase
        if self._preparing:
            return self._context.preparations.phase(self._preparing)
        return "its code is imported and initialized"

    def begin(self) -> None:
        self._inquiry.begin()

    def build(self, blueprint: Blueprint, combined: FinalConfig | ZmqTritonError | None) -> None:
        """Build the generations; an ensemble comes with its configuration, or why it has none."""
        self._combined = combined
        self._blueprint = blueprint
        _record_reading(self._model, self._context, self._request, blueprint)
        if not blueprint.versions:
            self._refuse_all(blueprint.name)
            return
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
                continue
            self._generations[number] = self._new_generation(number)
            self._retries[number] = self._context.policy.load_retries
        demand = blueprint.environment
        is_needed = any(not blueprint.versions[number].problem for number in self._generations)
        if isinstance(demand, EnvironmentSpec) and is_needed:
            prepare = self._context.preparations.begin
            self._preparing = prepare(blueprint.name, demand, self._on_environment_prepared)
        else:
            if isinstance(demand, Environment):
                self._environment = demand
            self._start_all()

    def _refuse_all(self, name: str) -> None:
        """Record that there is no version. From now on the model is known, also to frontends."""
        # Triton's words for it; the table has others.
        error = InvalidArgument(f"load failed for model '{name}': {no_version_text(name)}\n")
        for news in self._model.version_infos():
            self._context.publish(news)
        self._context.acknowledgements.sync(
            self._context.serving_frontends(), lambda: self.end(error)
        )

    def _on_environment_prepared(self, environment: Environment | ZmqTritonError) -> None:
        self._environment = environment
        self._preparing = 0
        self._start_all()

    def _start_all(self) -> None:
        assert self._blueprint is not None
        for number, generation in list(self._generations.items()):
            self._start(number, generation)
        self._proceed()

    def _proceed(self) -> None:
        """Go on once all new generations are loaded, or have failed.

        Instances of those that stay are changed before any is swapped in: that may fail, too.
        """
        if self._has_ended or self._changing or self._generations.keys() - self._loaded:
            return
        if self._has_failed:
            self._drop_loaded()
        elif self._changes:
            self._begin_changes()
            return
        else:
            for generation in list(self._generations.values()):
                self._swap_in(generation)
        self._end_if_complete()

    def _begin_changes(self) -> None:
        assert self._blueprint is not None
        changes, self._changes = self._changes, {}
        self._changing = set(changes)
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
            text = f"version {failed} could not be loaded"
            reason = Reason.of(Kind.OTHER_VERSION_FAILED, text, versions=failed)
            if version.transition(states.GenerationFailed(), UNLOADED if is_first else reason):
                self._model.publish(version)
            generation.abort(UNLOADED)

    def _on_instances_changed(self, number: int, error: ZmqTritonError | None) -> None:
        if number not in self._changing:
            return  # the model is being unloaded
        self._changing.discard(number)
        version = self._model.versions[number]
        if isinstance(error, NeedsNewGeneration):
            assert version.generation is not None
            self._environment = version.generation.environment
            self._generations[number] = new = self._new_generation(number)
            self._retries[number] = self._context.policy.load_retries
            self._start(number, new)
            return
        if error is not None:
            self._fail(number, error)
            return
        self._unacknowledged_versions.add(number)
        version.transition(states.GenerationServing())
        self._model.publish(version)
        around = self._context
        peers = {around.introductions.broker_serial, *around.serving_frontends()} - {0}
        ended = partial(self._on_version_acknowledged, number, None)
        # a broker that has just taken over would still give requests to the old instances
        then = partial(around.introductions.after_retirements, ended)
        around.acknowledgements.sync(peers, then)
        self._proceed()

    def _new_generation(self, number: int) -> Generation:
        assert self._blueprint is not None
        around = self._context
        parts = (around.plan, around.introductions, self._blueprint, number)
        if self._blueprint.ensemble is None:
            generation = Generation(*parts)
        else:
            generation = EnsembleGeneration(*parts, around.ensemble_members)
            limit = self._blueprint.ensemble.max_inflight_requests
            if limit:
                text = f"Ensemble model '{self._model.name}' configured with max_inflight_requests"
                around.plan.log("I", f"{text}: {limit}")
        generation.owner = self
        around.generations[generation.number] = generation
        return generation

    def _start(self, number: int, generation: Generation) -> None:
        assert self._blueprint is not None
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
                _log_initialization(self._context.plan, generation)
            generation.start(self)

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
        around = self._context
        around.acknowledgements.sync(
            [around.introductions.broker_serial], lambda: self._on_announced(generation)
        )

    def _on_announced(self, generation: Generation) -> None:
        is_wanted = self._generations.get(generation.version) is generation
        if is_wanted and generation.state is GenerationState.SERVING:
            self._loaded.add(generation.version)
            self._proceed()

    def _swap_in(self, generation: Generation) -> None:
        number = generation.version
        del self._generations[number]
        self._unacknowledged_versions.add(number)
        version = self._model.versions[number]
        old, version.generation = version.generation, generation
        generation.owner = self._model
        version.transition(states.GenerationServing())
        self._model.publish(version)
        around = self._context
        around.acknowledgements.sync(
            around.serving_frontends(), lambda: self._on_version_acknowledged(number, old)
        )

    def _on_version_acknowledged(self, number: int, old: Generation | None) -> None:
        if old is not None:
            old.retire()
        self._unacknowledged_versions.discard(number)
        self._end_if_complete()

    def generation_failed(self, generation: Generation, error: ZmqTritonError) -> None:
        number = generation.version
        if self._generations.get(number) is not generation:
            return
        self._loaded.discard(number)
        if self._retries[number]:
            self._retries[number] -= 1
            self._generations[number] = again = self._new_generation(number)
            self._start(number, again)
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
        assert self._blueprint is not None
        self._has_failed |= not self._blueprint.is_tried(number)
        version = self._model.versions[number]
        if version.transition(states.GenerationFailed(), reason):
            self._model.publish(version)
        self._proceed()

    # ----------------------------------------------------------------- the end

    def cancel(self, why: Reason = UNLOADED, *, has_failed: bool = False) -> None:
        """Cancel the load: generations that are not swapped in yet end now.

        Versions of a load that has failed by this are not loaded, so that the next one may begin.
        """
        for number in self._generations if has_failed else ():
            version = self._model.versions[number]
            if version.transition(states.GenerationFailed(), why):
                self._model.publish(version)
        self._context.preparations.cancel(self._preparing)
        self._preparing = 0
        self._inquiry.cancel()
        generations, self._generations = self._generations, {}
        self._changes, self._changing = {}, set()
        for generation in generations.values():
            generation.abort(why)
        name = self._model.name
        numbers = sorted(generations)
        texts = "".join(f"version {n} is at UNAVAILABLE state: {why.text};\n" for n in numbers)
        self.end(Unavailable(f"load failed for model '{name}': {texts or why.text}"))

    def drop_version(self, number: int) -> None:
        """Go on without a version that is being unloaded."""
        has_change = self._changes.pop(number, None) is not None or number in self._changing
        self._changing.discard(number)
        generation = self._generations.pop(number, None)
        if generation is not None:
            generation.abort(UNLOADED)
        if has_change or generation is not None:
            self._failures[number] = UNLOADED
            self._proceed()

    def _end_if_complete(self) -> None:
        is_under_way = self._generations or self._changes or self._changing
        if is_under_way or self._unacknowledged_versions or self._has_ended:
            return
        if not self._failures and self._blueprint is not None:
            self._model.record_loaded(self._blueprint)
            scale = self._request.scale
            if scale is not None:
                self._model.history.record_scale(scale, self._blueprint)
            what = "loaded" if scale is None else "scaled"
            name = self._model.name
            self._context.plan.log("I", f"successfully {what} '{name}'", model=name)
            self.end(None)
            return
        if isinstance(self._combined, ZmqTritonError):
            # The ensemble itself cannot be made, whichever versions it has.
            texts = f"{self._combined.text}\n"
        else:
            texts = "".join(
                f"version {number} is at UNAVAILABLE state: {reason.text};"
                for number, reason in sorted(self._failures.items())
            )
            texts += "\n"
        self.end(InvalidArgument(f"load failed for model '{self._model.name}': {texts}"))

    def end(self, error: ZmqTritonError | None) -> None:
        """End the load, with an error or without. Only the first end counts."""
        if self._has_ended:
            return
        self._has_ended = True
        self._context.load_slots.release(self)
        self._model.loads.load_ended(self)
        for listener in self._context.listeners:
            listener.load_ended(self._model.name)
        self._done(error)


def _record_reading(
    model: LoadTarget, around: ModelContext, request: LoadRequest, blueprint: Blueprint
) -> None:
    """Record the blueprint that is about to be built, and log the warnings of its reading."""
    if request.scale is None:
        model.history.record_attempt(blueprint, request.override)
    for listener in around.listeners:
        listener.load_began(blueprint)
    if blueprint.completed_config_text:
        around.plan.log("V", "Server side auto-completed config: ", blueprint.completed_config_text)
    for warning in blueprint.warnings:
        around.plan.log("W", warning, model=blueprint.name)


def _log_initialization(plan: Plan, generation: Generation) -> None:
    blueprint, final = generation.blueprint, generation.final_config
    largest = json.loads(blueprint.backend_settings).get(_LARGEST_BATCH)
    if largest is not None:
        plan.log("V", f"Adding default backend config setting: {_LARGEST_BATCH},{largest}")
    text = f"{blueprint.name} (version {generation.version})"
    plan.log("V", f"TRITONBACKEND_ModelInitialize: {text}")
    if final is not None:
        plan.log("V", "model configuration:\n", document=final.config)


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
