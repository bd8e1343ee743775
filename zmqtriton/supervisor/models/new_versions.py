"""The versions that a load brings up: their new generations, and those whose instances change.

Owns generations until they serve. As in Triton all of them serve or none does: they are swapped in
together. A generation that fails is loaded again as often as the options say. Does no I/O.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

from zmqtriton.environments.demand import SERVER_ENVIRONMENT, Environment
from zmqtriton.reading.blueprint import Blueprint, FinalConfig
from zmqtriton.supervisor import states
from zmqtriton.supervisor.models.context import LoadedModel, ModelContext
from zmqtriton.supervisor.models.ensembles import EnsembleGeneration
from zmqtriton.supervisor.models.generation import Generation, GenerationOwner
from zmqtriton.supervisor.models.instance import ProcessLost, describe_error
from zmqtriton.supervisor.models.instance_changes import NeedsNewGeneration
from zmqtriton.supervisor.models.version import ServedVersion
from zmqtriton.supervisor.states import UNLOADED, GenerationState
from zmqtriton.supervisor.story import Change, Promise, Result, all_of, kept, tell
from zmqtriton_floor.errors import InternalError, ZmqTritonError, from_number
from zmqtriton_floor.reasons import Kind, Reason

#: Name of a backend setting that each backend gets by default.
_LARGEST_BATCH = "default-max-batch-size"
#: Changes the instances of a serving generation to those of the blueprint. Raises ZmqTritonError.
InstanceChange = Callable[[Blueprint], Result]


class NewVersions(GenerationOwner):
    """An ensemble comes with its configuration, or why it cannot be served."""

    def __init__(
        self,
        model: LoadedModel,
        around: ModelContext,
        blueprint: Blueprint,
        combined: FinalConfig | ZmqTritonError | None = None,
    ) -> None:
        self._model = model
        self._context = around
        self._blueprint = blueprint
        self._combined = combined
        #: The environment, or why there is none.
        self._environment: Environment | ZmqTritonError = SERVER_ENVIRONMENT
        #: The generations that do not serve yet, by version.
        self._generations: dict[int, Generation] = {}
        #: The changes of versions that keep their generation.
        self._changes: dict[int, InstanceChange] = {}
        #: The versions whose generation is being loaded, or whose instances are being changed.
        self._outstanding: set[int] = set()
        #: Promises that every frontend knows of a version that serves what is new.
        self._told: list[Promise[None]] = []
        #: A version is not outstanding any more.
        self._news = Change()
        self._retries: dict[int, int] = {}
        self.failures: dict[int, Reason] = {}
        #: True once the load has failed: none of the new generations will serve.
        self.has_failed = False

    def choose(self, verb: str, aim: str, *, renews: bool = False) -> None:
        """Choose for each version whether its instances change, or a new generation is loaded."""
        blueprint = self._blueprint
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
            version = self._model.versions.setdefault(number, ServedVersion(blueprint.name, number))
            text = f"{verb}: {blueprint.name}:{number}{aim}"
            self._context.plan.log("I", text, model=blueprint.name, version=number)
            if version.transition(states.LoadStarted()):
                self._model.publish(version)
            change = None if renews else _change_in_place(blueprint, version, can_roll=can_roll)
            if change is not None:
                self._changes[number] = change
            else:
                self._add_generation(number)

    @property
    def needs_environment(self) -> bool:
        """True if a process must be started."""
        return any(not self._blueprint.versions[number].problem for number in self._generations)

    @property
    def has_changes(self) -> bool:
        """True if instances are still to be changed."""
        return bool(self._changes)

    async def start(self, environment: Environment | ZmqTritonError) -> None:
        """Start the new generations; go on when each is loaded and announced, or has failed."""
        self._environment = environment
        for number, generation in list(self._generations.items()):
            self._start(number, generation)
        await self._news.until(lambda: not self._outstanding)

    async def change(self) -> None:
        """Change the instances of versions that keep their generation."""
        changes, self._changes = self._changes, {}
        self._outstanding = set(changes)
        for number, change in changes.items():
            try:
                changed = change(self._blueprint)
            except ZmqTritonError as error:
                changed = kept(error)
            changed.then(partial(self._on_instances_changed, number))
        await self._news.until(lambda: not self._outstanding)

    async def swap_in(self) -> None:
        """Have the new generations serve; go on when every frontend knows."""
        for generation in list(self._generations.values()):
            self._swap_in(generation)
        await all_of(self._told)

    def _swap_in(self, generation: Generation) -> None:
        number = generation.version
        del self._generations[number]
        version = self._model.versions[number]
        old, version.generation = version.generation, generation
        generation.owner = self._model
        version.transition(states.GenerationServing())
        self._model.publish(version)
        frontends_know = self._context.audience.confirm_frontends()
        if old is not None:
            frontends_know.then(partial(_retire, old))
        self._told.append(frontends_know)

    def drop_loaded(self) -> None:
        """End the generations that will not serve, since another version cannot."""
        generations, self._generations, self._changes = self._generations, {}, {}
        failed = ", ".join(map(str, sorted(self.failures)))
        for number, generation in generations.items():
            is_first = self._model.versions[number].generation is None
            # the first time in Triton's words
            text = UNLOADED.text if is_first else f"version {failed} could not be loaded"
            reason = Reason.of(Kind.OTHER_VERSION_FAILED, text, versions=failed)
            self._refuse(number, reason)
            generation.abort(UNLOADED)

    def drop(self, number: int) -> bool:
        """Go on without a version that is being unloaded; return whether there was something."""
        has_change = self._changes.pop(number, None) is not None or number in self._outstanding
        self._outstanding.discard(number)
        generation = self._generations.pop(number, None)
        if generation is not None:
            generation.abort(UNLOADED)
        if has_change or generation is not None:
            self.failures[number] = UNLOADED
            self._news()
            return True
        return False

    def abort(self, why: Reason, *, has_failed: bool) -> list[int]:
        """End the generations that do not serve yet, and return their versions.

        Those of a load that has failed are not loaded, so that the next one may begin.
        """
        for number in self._generations if has_failed else ():
            self._refuse(number, why)
        generations, self._generations = self._generations, {}
        self._changes, self._outstanding = {}, set()
        for generation in generations.values():
            generation.abort(why)
        return sorted(generations)

    def _refuse(self, number: int, why: Reason) -> None:
        version = self._model.versions[number]
        if version.transition(states.GenerationFailed(), why):
            self._model.publish(version)

    # ---------------------------------------------------- how each one proceeds

    def _on_instances_changed(self, number: int, error: ZmqTritonError | None) -> None:
        if number not in self._outstanding:
            return  # the model is being unloaded
        version = self._model.versions[number]
        if isinstance(error, NeedsNewGeneration):
            assert version.generation is not None
            self._environment = version.generation.environment
            self._start(number, self._add_generation(number))
            return
        if error is not None:
            self._fail(number, error)
            return
        self._outstanding.discard(number)
        version.transition(states.GenerationServing())
        self._model.publish(version)
        self._told.append(tell(self._confirm_change()))
        self._news()

    async def _confirm_change(self) -> None:
        await self._context.audience.confirm()
        # a broker that has just taken over would still give requests to the old instances
        await self._context.introductions.after_retirements()

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
        """Fail a version whose instances cannot be started."""
        self._fail(generation.version, error)
        generation.abort(error.reason)

    # ------------------------------------- what becomes of a new generation

    def generation_loaded(self, generation: Generation) -> None:
        """Announce the generation to the broker first.

        So that it knows the requests that will come.
        """
        generation.announce()
        broker_knows = self._context.audience.confirm_broker()
        broker_knows.then(lambda _: self._on_announced(generation))

    def _on_announced(self, generation: Generation) -> None:
        is_wanted = self._generations.get(generation.version) is generation
        if is_wanted and generation.state is GenerationState.SERVING:
            self._outstanding.discard(generation.version)
            self._news()

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
        self.failures[number] = reason
        self._generations.pop(number, None)
        self._outstanding.discard(number)
        self.has_failed |= not self._blueprint.is_on_trial(number)
        self._refuse(number, reason)
        self._news()


def _retire(generation: Generation, _: None) -> None:
    generation.retire()


def _serving_generation(version: ServedVersion) -> Generation | None:
    generation = version.generation if version.is_serving else None
    is_steady = generation is not None and generation.state is GenerationState.SERVING
    return generation if is_steady else None


def _differs_in_instances_only(blueprint: Blueprint, version: ServedVersion) -> bool:
    generation = _serving_generation(version)
    return generation is not None and blueprint.differs_in_instances_only(
        generation.blueprint, version.number
    )


def _change_in_place(
    blueprint: Blueprint, version: ServedVersion, *, can_roll: bool
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
