"""One load of a model, from its request to its end: a story.

A load determines what to build: the model as its files have it, after the models that it calls, or
the serving versions with another number of instances. Then it lets the environment be prepared,
starts a generation of each version, gives unchanged versions their new instances, and swaps in. As
in Triton, all new generations serve or none does: they are swapped in once the last one is loaded,
and the earlier ones stay if one of them fails.

A model's loads run one after the other. Each has one of the server's slots, and gives it back while
it waits for other models, or for files that are being copied. A load that takes very long loses its
slot and continues. Nothing is changed before there is a blueprint and its callees are loaded.

Belongs to a model, which runs at most one load at a time, and owns generations until they serve.
Does no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from zmqtriton.environments.demand import SERVER_ENVIRONMENT, Environment, EnvironmentSpec
from zmqtriton.reading.blueprint import (
    Blueprint,
    EnsembleBlueprint,
    LoadOverride,
    ReadFailure,
    Scale,
)
from zmqtriton.repository.scan import no_version_text
from zmqtriton.supervisor import states
from zmqtriton.supervisor.models.context import LoadedModel, ModelContext
from zmqtriton.supervisor.models.new_versions import NO_ENSEMBLE, CombinedConfig, NewVersions
from zmqtriton.supervisor.models.version import serving
from zmqtriton.supervisor.states import UNLOADED
from zmqtriton.supervisor.story import Promise
from zmqtriton_floor.errors import (
    InternalError,
    InvalidArgument,
    Unavailable,
    ZmqTritonError,
)
from zmqtriton_floor.reasons import Reason

#: Reason that is appended to Triton's text, which gives no reason.
_NOT_THERE = ". No model repository has a directory of this name"
#: Phases, in words.
WAITS_FOR_OTHERS = "it waits until others are loaded"
_READS = "its files are read"
_INITIALIZES = "its code is imported and initialized"
_LOADS_CALLEES = "the models that it calls are loaded first"
_IS_TOLD = "the processes of the server are told of it"


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
    #: Processes are replaced even if nothing has changed.
    renews: bool = False
    #: New number of instances for the versions that serve; nothing is read.
    scale: Scale | None = None


class Load:
    def __init__(self, model: LoadedModel, around: ModelContext, request: LoadRequest) -> None:
        self.ended = Promise[None]()
        self._model = model
        self._context = around
        self._request = request
        self._scope = around.plan.scope()
        #: The versions that it builds; None before.
        self._new: NewVersions | None = None
        self._step = WAITS_FOR_OTHERS
        self._has_begun = False

    @property
    def phase(self) -> str:
        """Return the load's phase, in words: the step that it waits for."""
        around, name = self._context, self._model.name
        # who copies files or makes environments knows the step more precisely
        return around.readings.phase(name) or around.preparations.phase(name) or self._step

    # ---------------------------------------------------------------- the story

    def begin(self) -> None:
        self._has_begun = True
        self._scope.tell(self._tell())

    async def _tell(self) -> None:
        try:
            await self._load()
        except ZmqTritonError as error:
            self._end(error)
        except Exception:  # which the log gets; the next load may begin
            self.cancel(
                InternalError("an error of the server's own; report it with the log").reason,
                has_failed=True,
            )
            raise
        else:
            self._end(None)

    async def _load(self) -> None:
        """Read the model, load the models that it calls, and build it.

        Raises the reason why not all versions serve.
        """
        history, request = self._model.history, self._request
        await self._context.load_slots.acquire(self._model.name)
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
            if self._is_current(reading) if combined.config is not None else was_tried:
                history.is_unchanged = True
            else:
                await self._build(reading, combined)
        elif was_tried:
            history.is_unchanged = True
        elif isinstance(reading, ReadFailure):
            raise self._note_failure(reading)
        elif self._is_current(reading):
            self._note_unchanged(reading)
        else:
            await self._load_callees(reading)
            await self._build(reading)

    async def _build(self, blueprint: Blueprint, combined: CombinedConfig = NO_ENSEMBLE) -> None:
        """Build all versions; an ensemble comes with its configuration, or the error of making it.

        Raises the reason why a version cannot serve.
        """
        self._step = _INITIALIZES
        self._record_reading(blueprint)
        if not blueprint.versions:
            await self._refuse_all(blueprint.name)
        self._new = new = NewVersions(self._model, self._context, blueprint, combined)
        scale = self._request.scale
        words = ("loading", "") if scale is None else ("scaling", f" to {scale.text}")
        new.choose(*words, renews=self._request.renews)

        try:
            new.environment = await self._prepare_environment(blueprint.environment, new)
        except ZmqTritonError as error:
            new.obstacle = new.obstacle or error
        await new.start()
        # last, since instances that were replaced do not come back
        if not new.has_failed:
            await new.change()

        self._step = _IS_TOLD
        if new.has_failed:
            new.drop_loaded()
        # what served before ends once every frontend knows what serves now
        await new.swap_in()
        if new.failures:
            raise self._error(new.failures, combined.problem)
        self._record_success(blueprint)

    # ----------------------------------------------------- what is to be built

    def _scaled(self, scale: Scale) -> Blueprint:
        """Return the serving versions with another number of instances. Raises ZmqTritonError."""
        newest, served = serving(self._model.versions), self._model.versions
        if newest is None:
            raise Unavailable(
                f"model '{self._model.name}' is not loaded, so it cannot be scaled; load it first"
            )
        blueprint = newest.blueprint.scaled(scale)
        versions = {
            n: v for n, v in blueprint.versions.items() if n in served and served[n].is_serving
        }
        # what was said of it when it was loaded need not be said again
        return replace(blueprint, warnings=(), completed_config_text="", versions=versions)

    async def _read(self) -> Blueprint | ReadFailure:
        """Read the model, again and again until its files stay the same."""
        around, request, last_fingerprint = self._context, self._request, ""
        while True:
            self._step = _READS
            reading = await around.readings.read(
                self._model.name,
                request.override,
                # whoever asks for a load has put everything in place
                is_patient=not request.retry_failed_members,
                is_poll=request.is_poll,
                selection=self._model.selection,
            )
            if isinstance(reading, Blueprint):
                reading = self._model.history.keep_scale(reading)
            fingerprint = reading.fingerprint
            is_settled = fingerprint in ("", last_fingerprint) or not request.settle_s
            if is_settled or self._model.history.was_attempted(fingerprint):
                return reading
            last_fingerprint = fingerprint
            around.load_slots.release(self._model.name)
            await around.plan.pause(request.settle_s)
            await around.load_slots.acquire(self._model.name)

    def _is_current(self, blueprint: Blueprint) -> bool:
        model, request = self._model, self._request
        is_current = model.history.is_current(blueprint, request.override, model.versions)
        return is_current and not request.renews

    def _note_failure(self, failure: ReadFailure) -> ZmqTritonError:
        """Record the model as unreadable; return the error for the load's client."""
        self._model.history.record_read_failure(failure)
        text = failure.reason.text
        if not failure.is_duplicate and failure.fingerprint:
            text = f"Poll failed for model directory '{self._model.name}': {text}"
        self._context.plan.log("E", text, model=self._model.name)
        text = f"failed to load '{self._model.name}', failed to poll from model repository"
        why = f": {failure.reason.text}" if failure.fingerprint else _NOT_THERE
        return InternalError(f"{text}{why}")

    def _note_unchanged(self, blueprint: Blueprint) -> None:
        self._model.history.record_unchanged(blueprint)
        for number in blueprint.versions:
            self._model.versions[number].transition(states.GenerationServing())
        if not self._request.is_poll:  # which are many
            text = f"'{blueprint.name}' has not changed since it was loaded; it serves on as it is"
            self._context.plan.log("I", text, model=blueprint.name)

    def _record_dependencies(self, blueprint: Blueprint) -> None:
        self._step = _LOADS_CALLEES
        self._model.history.record_dependencies(blueprint)
        self._context.load_order.break_wait_cycles(self._model.name)

    async def _load_callees(self, blueprint: Blueprint) -> None:
        """Load the models that it names first; continue if some cannot be loaded."""
        self._record_dependencies(blueprint)
        if blueprint.callees:
            around, again = self._context, self._request.retry_failed_members
            around.load_slots.release(self._model.name)
            await around.load_order.load_callees(blueprint.name, blueprint.callees, again=again)
            await around.load_slots.acquire(self._model.name)

    async def _load_members(
        self, blueprint: Blueprint, ensemble: EnsembleBlueprint
    ) -> CombinedConfig:
        """Load an ensemble's members first, which may need the slot."""
        around, members = self._context, self._context.ensemble_members
        around.load_slots.release(self._model.name)
        self._record_dependencies(blueprint)
        try:
            members.check_acyclic(blueprint.name)
            await members.load_members(ensemble, again=self._request.retry_failed_members)
            return CombinedConfig(members.finalize_config(blueprint))
        except ZmqTritonError as error:
            return CombinedConfig(problem=error)

    # ------------------------------------------------------ how it is built

    async def _refuse_all(self, name: str) -> None:
        """Refuse a load without any version; frontends know the model from now on."""
        self._step = _IS_TOLD
        for news in self._model.version_infos():
            self._context.audience.tell_frontends(news)
        await self._context.audience.confirm_frontends()
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

    async def _prepare_environment(
        self, demand: Environment | EnvironmentSpec | None, new: NewVersions
    ) -> Environment:
        """Return the environment. Raises ZmqTritonError if it cannot be prepared."""
        if not isinstance(demand, EnvironmentSpec):
            return demand or SERVER_ENVIRONMENT
        if not new.needs_environment:
            return SERVER_ENVIRONMENT
        return await self._context.preparations.prepare(self._model.name, demand)

    # ----------------------------------------------------------------- the end

    def cancel(self, why: Reason = UNLOADED, *, has_failed: bool = False) -> None:
        """Cancel the load: generations that do not serve yet end now.

        Versions of a load that has failed by this are not loaded, so that the next load may begin.
        """
        self._scope.cancel()
        numbers = self._new.abort(why, has_failed=has_failed) if self._new is not None else []
        texts = "".join(f"version {n} is at UNAVAILABLE state: {why.text};\n" for n in numbers)
        self._end(Unavailable(f"load failed for model '{self._model.name}': {texts or why.text}"))

    def drop_version(self, number: int) -> None:
        """Continue without a version that is being unloaded."""
        new = self._new
        if new is not None and new.drop(number) and not new.needs_environment:
            self._context.preparations.give_up(self._model.name)

    def _record_success(self, blueprint: Blueprint) -> None:
        self._model.record_loaded(blueprint)
        scale, name = self._request.scale, self._model.name
        if scale is not None:
            self._model.history.record_scale(scale, blueprint)
        what = "loaded" if scale is None else "scaled"
        self._context.plan.log("I", f"successfully {what} '{name}'", model=name)

    def _error(
        self, failures: Mapping[int, Reason], problem: ZmqTritonError | None
    ) -> ZmqTritonError:
        """Return the error, in Triton's words, if not all versions serve."""
        texts = "".join(
            f"version {number} is at UNAVAILABLE state: {reason.text};"
            for number, reason in sorted(failures.items())
        )
        # an ensemble that cannot be made fails as a whole, whichever versions it has
        why = problem.text if problem is not None else texts
        return InvalidArgument(f"load failed for model '{self._model.name}': {why}\n")

    def _end(self, error: ZmqTritonError | None) -> None:
        """End the load, with an error or without. Only the first end counts."""
        if not self.ended.is_over:
            if self._has_begun:
                self._context.load_slots.release(self._model.name)
            if error is None:
                self.ended()
            else:
                self.ended.fail(error)
            self._context.listener.load_ended(self._model.name)
