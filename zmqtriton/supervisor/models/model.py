"""One model: its versions, its loads and its unloading.

Owns generations once they serve; before that their load owns them. Does no I/O.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from functools import partial
from typing import Any

from zmqtriton.reading.blueprint import Blueprint, LoadOverride, Scale
from zmqtriton.repository.scan import NO_EXCEPTIONS
from zmqtriton.supervisor import states
from zmqtriton.supervisor.models.context import ModelContext
from zmqtriton.supervisor.models.generation import Generation, GenerationOwner
from zmqtriton.supervisor.models.load import Load, LoadRequest
from zmqtriton.supervisor.models.load_history import Dependencies, LoadHistory, members_of
from zmqtriton.supervisor.models.version import ServedVersion
from zmqtriton.supervisor.states import UNLOADED, ModelState
from zmqtriton.supervisor.story import Promise
from zmqtriton_floor import wire
from zmqtriton_floor.reasons import Kind, Reason

#: Reason for a model without a version, in the table of models.
NO_VERSION = Reason.of(Kind.NO_VERSION, "Not loaded: No model version was found")
#: The reason of loads that the end of the server cancels.
SERVER_STOPS = Reason.of(Kind.SERVER_STOPS, "Server exiting")


class ServedModel(GenerationOwner):
    def __init__(self, name: str, around: ModelContext) -> None:
        self.name = name
        self.versions: dict[int, ServedVersion] = {}
        self._context = around
        self.history = LoadHistory()
        self.dependencies = Dependencies(self.versions, self.history)
        #: The running load, and those that wait for their turn.
        self._loads: deque[Load] = deque()
        #: Promise that is kept when the model has no load any more.
        self._loads_ended = Promise[None]()
        #: Exceptions from its version policy, for a version that is tried.
        self.selection = NO_EXCEPTIONS
        #: True if it was loaded on request, not only for an ensemble that calls it.
        self.was_explicitly_loaded = False
        #: Reasons for clients to avoid the model: it counts as not ready, though it answers.
        self.avoidances: list[Reason] = []
        #: True if it was unloaded on request, so that it is not loaded on demand.
        self.was_explicitly_unloaded = False

    # ------------------------------------------------------- what is asked

    def load(
        self, override: LoadOverride | None = None, *, again: bool = False, renews: bool = False
    ) -> Promise[None]:
        """Load the model; `again` retries even failed members of an ensemble.

        `renews` replaces its processes even if nothing has changed.
        """
        self.was_explicitly_loaded, self.was_explicitly_unloaded = True, False
        return self._request(LoadRequest(override, retry_failed_members=again, renews=renews))

    def load_on_demand(self) -> Promise[None]:
        """Load the model for requests that wait; it may be evicted."""
        return self._request(LoadRequest(retry_failed_members=True))

    def poll(self, settle_s: float) -> Promise[None]:
        """Load a model that has changed and then stayed the same for this long.

        A failed load is retried only if the files have changed, or a process was lost.
        """
        return self._request(LoadRequest(is_poll=True, settle_s=settle_s))

    def load_as_dependency(self, *, again: bool) -> Promise[Any]:
        """Load the model for an ensemble, if it is not loaded."""
        if self.is_loading:
            return self._loads_ended
        if any(version.is_serving for version in self.versions.values()):
            return Promise.kept(None)
        self.was_explicitly_unloaded = False
        return self._request(LoadRequest(is_poll=not again, retry_failed_members=again))

    def scale(self, instances: int, group: str = "") -> Promise[None]:
        """Give the serving versions this number of instances, also after reloads."""
        return self._request(LoadRequest(scale=Scale(instances, group)))

    def _request(self, request: LoadRequest) -> Promise[None]:
        load = Load(self, self._context, request)
        load.ended.at_end(partial(self._load_ended, load))
        self._loads.append(load)
        if len(self._loads) == 1:
            load.begin()
        return load.ended

    def _load_ended(self, load: Load) -> None:
        if self._loads and self._loads[0] is load:
            self._loads.popleft()
            if self._loads:
                self._loads[0].begin()
        if not self._loads:
            ended, self._loads_ended = self._loads_ended, Promise()
            ended()

    def cancel_loads(self, why: Reason) -> None:
        """Cancel every load: a model that hangs in its initialize must be stoppable."""
        loads, self._loads = self._loads, deque(list(self._loads)[:1])
        for load in loads:
            load.cancel(why)

    def cancel_load(self, why: Reason) -> bool:
        """Let the running load fail, if one runs, and begin the next; return whether one ran."""
        is_loading = self.is_loading
        if is_loading:
            self._loads[0].cancel(why, has_failed=True)
        return is_loading

    def unload(self) -> Promise[None]:
        """Unload the model; its requests are finished.

        Resolved when clients cannot use it any more.
        """
        self.was_explicitly_loaded, self.was_explicitly_unloaded = False, True
        self.cancel_loads(UNLOADED)
        self.evict(UNLOADED)
        around = self._context
        if self.history.has_no_version and not self.versions:
            self.history.has_no_version = False
            around.audience.tell_frontends(wire.ForgetModel(self.name))
        return around.audience.confirm()

    def evict(self, why: Reason) -> None:
        """Unload the serving versions, in order; the index shows the reason."""
        self.history.record_unloaded()
        for version in self.versions.values():
            self.unload_version(version, why)

    def unload_version(self, version: ServedVersion, why: Reason = UNLOADED) -> None:
        """Unload a version; its instances first finish their requests."""
        generation = version.generation
        is_given_up = (
            generation is not None
            and version.state is ModelState.UNAVAILABLE
            and not generation.readiness.ready_count  # else a load has failed while it ended
        )
        if version.transition(states.UnloadStarted(), why):
            self.publish(version)
        if self._loads:
            self._loads[0].drop_version(version.number)
        if generation is not None and is_given_up:
            generation.retire()  # nobody can call it, and it must not come back
        elif generation is not None:
            around = self._context
            around.retirements.retire_after_callers(generation, around.audience.confirm_frontends())
        elif version.state is ModelState.UNLOADING:
            self._finish_unload(version)

    def _finish_unload(self, version: ServedVersion) -> None:
        version.transition(states.UnloadFinished(), version.reason)
        self.publish(version)

    # ------------------------------------------------------ what loads tell

    def record_loaded(self, blueprint: Blueprint) -> None:
        self.history.record_loaded(blueprint)
        for number, version in self.versions.items():
            if number not in blueprint.versions:
                self.unload_version(version)
        self._context.listener.load_succeeded(blueprint)

    def publish(self, version: ServedVersion) -> None:
        self._context.audience.tell_frontends(self._news_of(version))
        self._context.ensemble_members.notify_ensembles(self.name)

    def member_changed(self, name: str) -> None:
        """Publish the versions that are ensembles with a member that has changed."""
        for version in self.versions.values():
            if name in members_of(version):
                self.publish(version)

    # ------------------------------------------ what becomes of a generation

    def generation_changed(self, generation: Generation) -> None:
        version = self.versions[generation.version]
        if version.generation is generation:
            self.publish(version)

    def generation_given_up(self, generation: Generation) -> None:
        version = self.versions[generation.version]
        if version.generation is generation and version.state in (
            ModelState.READY,
            ModelState.UNAVAILABLE,
        ):
            version.transition(states.GenerationGivenUp(), generation.readiness.why_not_ready)
            self.publish(version)

    def generation_revived(self, generation: Generation) -> None:
        self._context.plan.tell(self._serve_again(generation))

    async def _serve_again(self, generation: Generation) -> None:
        # the broker first, so that it knows the requests that will come
        await self._context.audience.confirm_broker()
        version = self.versions[generation.version]
        can_serve = generation.is_serving and generation.readiness.ready_count
        is_free = version.state in (ModelState.UNAVAILABLE, ModelState.LOADING)
        if version.generation is generation and can_serve and is_free:
            version.transition(states.GenerationServing())
            self.publish(version)

    def generation_ended(self, generation: Generation) -> None:
        number = generation.version
        text = f"successfully unloaded '{self.name}' version {number}"
        self._context.plan.log("I", text, model=self.name, version=number)
        version = self.versions[number]
        if version.generation is generation:
            version.generation = None
            if version.state is ModelState.UNLOADING:
                self._finish_unload(version)

    @property
    def serving_generations(self) -> list[Generation]:
        """The serving generations, in the order of their versions."""
        return [
            version.generation
            for version in self.versions.values()
            if version.is_serving and version.generation is not None
        ]

    @property
    def why_not_loaded(self) -> Reason:
        """Return the reason of the first version that does not serve, or cannot now.

        The text has all versions' reasons.
        """
        shown = [(n, *version.reported_state) for n, version in sorted(self.versions.items())]
        missing = [each for each in shown if each[1] is not ModelState.READY]
        if not missing:
            return self.history.read_problem or NO_VERSION
        texts = [
            f"version {number} is at {state.value} state: {reason.text if reason else ''};"
            for number, state, reason in missing
        ]
        return (missing[0][2] or Reason.of(Kind.OTHER, ""))._replace(text="\n".join(texts))

    # ------------------------------------------------------- what is shown

    @property
    def is_loading(self) -> bool:
        return bool(self._loads)

    @property
    def _is_unloaded(self) -> bool:
        """True if none of it is loaded or loading; versions may still be ending."""
        return not self.is_loading and all(
            version.generation is None or version.state is ModelState.UNLOADING
            for version in self.versions.values()
        )

    def is_gone_from(self, listing: Container[str]) -> bool:
        """Return whether its directory has been removed.

        False for a model that was found gone before and is unloaded, and for one with files from a
        client.
        """
        override = self.history.override
        return not (
            self.name in listing
            or (self.history.is_directory_gone and self._is_unloaded)
            or self.guests
            or (override and override.directory)
        )

    @property
    def load_phase(self) -> str:
        """Return the phase of the running load, in words, or ""."""
        return self._loads[0].phase if self._loads else ""

    @property
    def has_ended(self) -> bool:
        """True if no version of it is loaded, loading or ending."""
        return not self.is_loading and all(
            version.generation is None for version in self.versions.values()
        )

    @property
    def was_unloaded(self) -> bool:
        """True if it was unloaded on request."""
        is_unloaded = bool(self.versions) and all(
            version.reason == UNLOADED for version in self.versions.values()
        )
        return self.has_ended and (is_unloaded or self.is_on_demand)

    @property
    def is_on_demand(self) -> bool:
        """True if it is loaded on demand, and was neither loaded nor unloaded on request."""
        return self._context.policy.load_on_demand and not (
            self.was_explicitly_loaded or self.was_explicitly_unloaded
        )

    @property
    def guests(self) -> set[int]:
        """Return the processes of users that run versions of it."""
        hosts = [
            version.generation.environment.host
            for version in self.versions.values()
            if version.generation is not None
        ]
        return {host.guest for host in hosts if host is not None}

    @property
    def serving_configs(self) -> list[str]:
        """Return the configurations of the serving versions."""
        finals = [each.final_config for each in self.serving_generations]
        return [final.config for final in finals if final is not None]

    def version_infos(self) -> list[wire.VersionInfo]:
        """Return the messages about the model that frontends need."""
        if self.history.has_no_version and not self.versions:
            state = ModelState.UNAVAILABLE.value
            return [wire.VersionInfo(0, self.name, 0, state, NO_VERSION, 0, "", b"")]
        return [self._news_of(version) for version in self.versions.values()]

    def _news_of(self, version: ServedVersion) -> wire.VersionInfo:
        news = version.version_info()._replace(is_draining=int(bool(self.avoidances)))
        return news._replace(is_on_demand=1) if self.is_on_demand else news
