"""The versions that a load makes: their new generations, or changed instances.

Owns generations until they serve. As in Triton all of them serve or none does: they are swapped in
together. A generation that fails is loaded again as often as the options allow. Does no I/O.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, NamedTuple

from zmqtriton.environments.demand import SERVER_ENVIRONMENT
from zmqtriton.reading.blueprint import Blueprint, FinalConfig
from zmqtriton.supervisor import states
from zmqtriton.supervisor.models.context import LoadedModel, ModelContext
from zmqtriton.supervisor.models.ensembles import EnsembleGeneration
from zmqtriton.supervisor.models.generation import Generation
from zmqtriton.supervisor.models.instance import ProcessLost, describe_error
from zmqtriton.supervisor.models.instance_changes import NeedsNewGeneration
from zmqtriton.supervisor.models.version import ServedVersion, serving
from zmqtriton.supervisor.states import UNLOADED
from zmqtriton.supervisor.story import All, Promise, Story
from zmqtriton_floor.errors import InternalError, ZmqTritonError, from_number
from zmqtriton_floor.reasons import Kind, Reason

#: Name of a backend setting that each backend gets by default.
_LARGEST_BATCH = "default-max-batch-size"
#: Changes the instances of a serving generation to those of the blueprint. Raises ZmqTritonError.
InstanceChange = Callable[[Blueprint], Awaitable[None]]


class CombinedConfig(NamedTuple):
    """The configuration of an ensemble, or the reason why it cannot be served; else neither."""

    config: FinalConfig | None = None
    problem: ZmqTritonError | None = None


NO_ENSEMBLE = CombinedConfig()


class NewVersions:
    def __init__(
        self,
        model: LoadedModel,
        around: ModelContext,
        blueprint: Blueprint,
        combined: CombinedConfig,
    ) -> None:
        self._model = model
        self._context = around
        self._blueprint = blueprint
        self._combined = combined.config
        #: Why no version can be started.
        self.obstacle = combined.problem
        self.environment = SERVER_ENVIRONMENT
        #: True if nothing that earlier processes have loaded may be kept.
        self._renews = False
        #: The generations that do not serve yet, by version.
        self._generations: dict[int, Generation] = {}
        #: The changes of versions that keep their generation.
        self._changes: dict[int, InstanceChange] = {}
        #: The load of a generation, or the change of instances, by version.
        self._stories: dict[int, Story[None]] = {}
        #: Promises that every frontend knows of a version that serves what is new.
        self._told: list[Promise[None]] = []
        self._scope = around.plan.scope()
        self.failures: dict[int, Reason] = {}
        #: True once the load has failed: none of the new generations will serve.
        self.has_failed = False

    def choose(self, verb: str, aim: str, *, renews: bool = False) -> None:
        """Choose for each version: its instances change, or a new generation is loaded."""
        blueprint, self._renews = self._blueprint, renews
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
            self._context.plan.log(
                "I", f"{verb}: {blueprint.name}:{number}{aim}", model=blueprint.name, version=number
            )
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

    async def start(self) -> None:
        """Load the new generations; return when each is announced, or has failed."""
        await self._all({number: self._bring(number) for number in self._generations})

    async def change(self) -> None:
        """Change the instances of versions that keep their generation."""
        changes, self._changes = self._changes, {}
        await self._all({number: self._change(number, changes[number]) for number in changes})

    async def _all(self, steps: Mapping[int, Coroutine[Any, None, None]]) -> None:
        for number, each in steps.items():
            self._stories[number] = self._scope.tell(each)
        stories = {number: self._stories[number] for number in steps}
        await All(stories.values())
        for number, story in stories.items():
            if number not in self.failures:
                await story

    async def swap_in(self) -> None:
        """Let the new generations serve; return when every frontend knows."""
        for number, generation in [*self._generations.items()]:
            del self._generations[number]
            version = self._model.versions[number]
            old, version.generation = version.generation, generation
            generation.owner = self._model
            version.transition(states.GenerationServing())
            self._model.publish(version)
            frontends_know = self._context.audience.confirm_frontends()
            if old is not None:
                frontends_know.at_end(old.retire)
            self._told.append(frontends_know)
        await All(self._told)

    def drop_loaded(self) -> None:
        """End the generations that will not serve, since another version cannot."""
        generations, self._generations, self._changes = self._generations, {}, {}
        failed = ", ".join(map(str, sorted(self.failures)))
        for number, generation in generations.items():
            is_first = self._model.versions[number].generation is None
            # the first time in Triton's words
            text = UNLOADED.text if is_first else f"version {failed} could not be loaded"
            self._refuse(number, Reason.of(Kind.OTHER_VERSION_FAILED, text, versions=failed))
            generation.abort(UNLOADED)

    def drop(self, number: int) -> bool:
        """Continue without a version that is being unloaded; return whether it was in the load."""
        story, generation = self._stories.get(number), self._generations.pop(number, None)
        has_change = self._changes.pop(number, None) is not None
        is_running = story is not None and not story.is_over
        is_in_load = has_change or is_running or generation is not None
        if is_in_load:
            self.failures[number] = UNLOADED
        if story is not None:
            story.cancel()
        if generation is not None:
            generation.abort(UNLOADED)
        return is_in_load

    def abort(self, why: Reason, *, has_failed: bool) -> list[int]:
        """End the generations that do not serve yet, and return their versions.

        Generations of a failed load are not loaded, so that the next load may begin.
        """
        for number in self._generations if has_failed else ():
            self._refuse(number, why)
        generations, self._generations = self._generations, {}
        self._scope.cancel()
        for generation in generations.values():
            generation.abort(why)
        return sorted(generations)

    def _refuse(self, number: int, why: Reason) -> None:
        version = self._model.versions[number]
        if version.transition(states.GenerationFailed(), why):
            self._model.publish(version)

    # ---------------------------------------------------- how each one proceeds

    async def _change(self, number: int, change: InstanceChange) -> None:
        version = self._model.versions[number]
        try:
            await change(self._blueprint)
        except NeedsNewGeneration:
            assert version.generation is not None
            self.environment = version.generation.environment
            self._add_generation(number)
            await self._bring(number)
        except ZmqTritonError as error:
            self._fail(number, error)
        else:
            version.transition(states.GenerationServing())
            self._model.publish(version)
            self._told.append(self._scope.tell(self._confirm_change()))

    async def _confirm_change(self) -> None:
        await self._context.audience.confirm()
        # a broker that has just taken over would still give requests to the old instances
        await self._context.introductions.after_retirements()

    def _add_generation(self, number: int) -> None:
        around = self._context
        parts = (around.plan, around.introductions, self._blueprint, number)
        if self._blueprint.ensemble is None:
            generation = Generation(*parts)
        else:
            generation = EnsembleGeneration(*parts, around.ensemble_members)
            limit = self._blueprint.ensemble.max_inflight_requests
            if limit:
                around.plan.log(
                    "I",
                    f"Ensemble model '{self._model.name}' configured with max_inflight_requests: "
                    f"{limit}",
                )
        generation.predecessor = None if self._renews else self._predecessor(number)
        around.generations[generation.number] = self._generations[number] = generation

    def _predecessor(self, number: int) -> Generation | None:
        """Return the serving generation of this version, or else of the newest that serves."""
        served = self._model.versions[number]
        return served.generation if served.is_serving else serving(self._model.versions)

    async def _bring(self, number: int) -> None:
        """Load a version's generation, with other ones in its place as the options allow."""
        obstacle = self._blueprint.versions[number].problem or self.obstacle
        if obstacle is not None:
            generation = self._generations[number]
            self._fail(number, obstacle)
            generation.abort(obstacle.reason)
            return
        for left in reversed(range(1 + self._context.policy.load_retries)):
            try:
                return await self._load(self._generations[number])
            except ZmqTritonError as error:
                if not left:
                    return self._fail(number, error)
            self._add_generation(number)

    async def _load(self, generation: Generation) -> None:
        """Load a generation; return once the broker knows it."""
        generation.environment = self.environment
        generation.final_config = self._combined or generation.final_config
        if self._blueprint.ensemble is None:
            self._log_initialization(generation)
        await generation.start()
        await generation.loaded
        # the broker first, so that it knows the generation before requests for it arrive
        generation.announce()
        confirmed, readiness = self._context.audience.confirm_broker(), generation.readiness
        await self._context.plan.until(lambda: confirmed.is_over or readiness.have_all_failed)
        if readiness.have_all_failed:
            reason = readiness.why_not_ready
            generation.abort(reason)
            raise from_number(InternalError.number, reason.text if reason else "", reason)

    def _log_initialization(self, generation: Generation) -> None:
        plan, blueprint = self._context.plan, self._blueprint
        largest = json.loads(blueprint.backend_settings).get(_LARGEST_BATCH)
        if largest is not None:
            plan.log("V", f"Adding default backend config setting: {_LARGEST_BATCH},{largest}")
        plan.log(
            "V", f"TRITONBACKEND_ModelInitialize: {blueprint.name} (version {generation.version})"
        )
        if generation.final_config is not None:
            plan.log("V", "model configuration:\n", document=generation.final_config.config)

    def _fail(self, number: int, error: ZmqTritonError) -> None:
        reason = describe_error(error)
        if isinstance(error, ProcessLost):
            self._model.history.record_lost_process()
        name = self._model.name
        text = f"failed to load '{name}' version {number}: {reason.text}"
        self._context.plan.log("E", text, model=name, version=number)
        self.failures[number] = reason
        self._generations.pop(number, None)
        self.has_failed |= not self._blueprint.is_on_trial(number)
        self._refuse(number, reason)


def _serving_generation(version: ServedVersion) -> Generation | None:
    generation = version.generation if version.is_serving else None
    return generation if generation and generation.is_serving else None


def _differs_in_instances_only(blueprint: Blueprint, version: ServedVersion) -> bool:
    generation = _serving_generation(version)
    return generation is not None and blueprint.differs_in_instances_only(
        generation.blueprint, version.number
    )


def _change_in_place(
    blueprint: Blueprint, version: ServedVersion, *, can_roll: bool
) -> InstanceChange | None:
    """Return the change of the serving generation's instances; None if a new one is needed."""
    generation = _serving_generation(version)
    if generation is None:
        return None
    if blueprint.differs_in_instances_only(generation.blueprint, version.number):
        return generation.change_instance_groups
    new = blueprint.versions[version.number]
    served = generation.blueprint.versions[version.number]
    is_same_place = blueprint.directory == generation.blueprint.directory
    is_code_alone = new.fingerprint_without_code == served.fingerprint_without_code != ""
    can_stay = is_code_alone and can_roll and is_same_place and not new.problem
    return generation.roll if can_stay else None
