"""One model: its versions, the load that is under way and those that wait, unloading.

Loads of one model come one after the other; an unload cancels them all, because a model that hangs
in its initialize must be stoppable. Owns generations from the moment that they serve. Does no I/O.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from zmqtriton.supervisor import states
from zmqtriton.supervisor.actions import LoadOverride
from zmqtriton.supervisor.models.blueprint import Blueprint, ReadFailure
from zmqtriton.supervisor.models.context import ModelContext
from zmqtriton.supervisor.models.generation import Generation
from zmqtriton.supervisor.models.load_inquiry import LoadRequest
from zmqtriton.supervisor.models.loading import LoadCallback, ModelLoad, ignore_result
from zmqtriton.supervisor.models.version import LAST_LOAD_FAILED, ModelVersion
from zmqtriton.supervisor.states import UNLOADED, ModelState
from zmqtriton_floor import wire

#: What the table of models says of one without a version.
NO_VERSION = "Not loaded: No model version was found"


class Model:
    def __init__(self, name: str, around: ModelContext) -> None:
        self.name = name
        self.versions: dict[int, ModelVersion] = {}
        #: Its directory is gone: it is forgotten once it has ended.
        self.is_directory_gone = False
        #: Why it could not even be read the last time, or "".
        self.read_problem = ""
        self._context = around
        self._loading: ModelLoad | None = None
        self._waiting: deque[ModelLoad] = deque()
        #: What is on disk of what is served, and of what was tried last; "" with an override.
        self._served_fingerprint = ""
        self._attempted_fingerprint = ""
        self._override: LoadOverride | None = None
        self._has_no_version = False
        #: Somebody wanted it, not only an ensemble that calls it.
        self.was_explicitly_loaded = False
        #: Somebody wanted it gone, so requests do not bring it back.
        self._was_explicitly_unloaded = False
        #: What its last blueprint calls, where that is an ensemble.
        self._tried_members: tuple[str, ...] = ()
        #: What its last blueprint says that it asks.
        self._tried_callees: tuple[str, ...] = ()
        self._load_end_callbacks: list[Callable[[], None]] = []

    # ------------------------------------------------------- what is asked

    def load(
        self,
        done: LoadCallback,
        *,
        override: LoadOverride | None = None,
        again: bool = False,
    ) -> None:
        """`again` tries even members of an ensemble that have failed."""
        self.was_explicitly_loaded, self._was_explicitly_unloaded = True, False
        self._enqueue_load(
            ModelLoad(self, self._context, done, LoadRequest(override, retry_failed_members=again))
        )

    def load_on_demand(self, done: LoadCallback) -> None:
        """For the sake of requests: it may be evicted."""
        self._enqueue_load(
            ModelLoad(self, self._context, done, LoadRequest(retry_failed_members=True))
        )

    def poll(self, settle_s: float) -> None:
        """Loads what has changed and then stayed the same for so long; what has failed and has
        not changed is not tried."""
        self.was_explicitly_loaded = True
        wanted = LoadRequest(is_poll=True, settle_s=settle_s)
        self._enqueue_load(ModelLoad(self, self._context, ignore_result, wanted))

    def _enqueue_load(self, loading: ModelLoad) -> None:
        self._waiting.append(loading)
        self._start_next_load()

    def load_as_dependency(self, then: Callable[[], None], *, again: bool) -> None:
        """For an ensemble: calls `then` when it is loaded, or was tried."""
        if self._loading is not None:
            self._load_end_callbacks.append(then)
        elif any(version.is_serving for version in self.versions.values()):
            then()
        else:
            self._was_explicitly_unloaded = False
            wanted = LoadRequest(is_poll=not again, retry_failed_members=again)
            self._enqueue_load(ModelLoad(self, self._context, lambda _: then(), wanted))

    def _start_next_load(self) -> None:
        if self._loading is None and self._waiting:
            self._loading = self._waiting.popleft()
            self._loading.begin()

    @property
    def is_loading(self) -> bool:
        return self._loading is not None

    def cancel_loads(self, why: str = UNLOADED) -> None:
        loads = [*([self._loading] if self._loading else []), *self._waiting]
        self._waiting.clear()
        for loading in loads:
            loading.cancel(why)

    def unload(self, done: LoadCallback) -> None:
        """`done` hears when nobody can ask for it any more; requests under way go on."""
        self.was_explicitly_loaded, self._was_explicitly_unloaded = False, True
        self.cancel_loads()
        self.evict(UNLOADED)
        around = self._context
        if self._has_no_version and not self.versions:
            self._has_no_version = False
            around.publish(wire.ForgetModel(self.name))
        peers = {around.introductions.broker_serial, *around.serving_frontends()} - {0}
        around.acknowledgements.sync(peers, lambda: done(None))

    def evict(self, why: str) -> None:
        """Unloads what serves, in order; the reason is for the index."""
        self._served_fingerprint = ""
        for version in self.versions.values():
            self._unload_version(version, why)

    def _unload_version(self, version: ModelVersion, why: str = UNLOADED) -> None:
        generation = version.generation
        if version.transition(states.UnloadStarted(), why):
            self.publish(version)
        if generation is not None:
            self._context.retirements.retire_after_callers(generation)
        elif version.state is ModelState.UNLOADING:
            self._finish_unload(version)

    def _finish_unload(self, version: ModelVersion) -> None:
        version.transition(states.UnloadFinished(), version.reason)
        self.publish(version)

    # ------------------------------------------------------ what loads tell

    def is_current(self, blueprint: Blueprint, override: LoadOverride | None) -> bool:
        return (
            override is None
            and self._served_fingerprint == blueprint.fingerprint
            and bool(blueprint.versions)
            and all(n in self.versions and self.versions[n].is_serving for n in blueprint.versions)
        )

    def was_attempted(self, fingerprint: str) -> bool:
        return self._attempted_fingerprint == fingerprint

    def set_dependencies(self, blueprint: Blueprint) -> None:
        ensemble = blueprint.ensemble
        self._tried_members = ensemble.member_names if ensemble is not None else ()
        self._tried_callees = blueprint.callees
        self._context.load_order.break_wait_cycles(self.name)

    def record_read_failure(self, found: ReadFailure) -> None:
        self._attempted_fingerprint, self.read_problem = found.fingerprint, found.reason
        self.is_directory_gone = not found.fingerprint
        if found.is_duplicate or not found.fingerprint:
            self._context.plan.log("E", found.reason)
        else:
            text = f"Poll failed for model directory '{self.name}': {found.reason}"
            self._context.plan.log("E", text)

    def record_attempt(self, blueprint: Blueprint, override: LoadOverride | None) -> None:
        self._attempted_fingerprint, self._override, self.read_problem = (
            blueprint.fingerprint,
            override,
            "",
        )
        self.is_directory_gone = False
        self._has_no_version = not blueprint.versions

    def record_unchanged(self, blueprint: Blueprint) -> None:
        self._attempted_fingerprint, self.read_problem = blueprint.fingerprint, ""
        for number in blueprint.versions:
            self.versions[number].transition(states.GenerationServing())

    def record_loaded(self, blueprint: Blueprint) -> None:
        self._served_fingerprint = blueprint.fingerprint if self._override is None else ""
        for number, version in self.versions.items():
            if number not in blueprint.versions:
                self._unload_version(version)

    def load_ended(self, loading: object) -> None:
        if self._loading is loading:
            self._loading = None
            self._start_next_load()
        if self._loading is None:
            waiting, self._load_end_callbacks = self._load_end_callbacks, []
            for then in waiting:
                then()

    def publish(self, version: ModelVersion) -> None:
        self._context.publish(self._news_of(version))
        self._context.ensemble_members.notify_ensembles(self.name)

    def member_changed(self, name: str) -> None:
        """It may be one that this ensemble calls."""
        for version in self.versions.values():
            if name in _members(version):
                self.publish(version)

    # ------------------------------------------ what becomes of a generation

    def generation_loaded(self, generation: Generation) -> None:
        """Told to the load that built it."""

    def generation_failed(self, generation: Generation, code: int, text: str) -> None:
        """Told to the load that built it."""

    def generation_changed(self, generation: Generation) -> None:
        version = self.versions[generation.version]
        if version.generation is generation:
            self.publish(version)

    def generation_given_up(self, generation: Generation) -> None:
        version = self.versions[generation.version]
        if version.generation is generation and version.state is ModelState.READY:
            version.transition(states.GenerationGivenUp(), generation.why_not_ready)
            self.publish(version)

    def generation_ended(self, generation: Generation) -> None:
        number = generation.version
        self._context.plan.log("I", f"successfully unloaded '{self.name}' version {number}")
        version = self.versions[number]
        if version.generation is generation:
            version.generation = None
            if version.state is ModelState.UNLOADING:
                self._finish_unload(version)

    # ----------------------------------------------------------- ensembles

    @property
    def served_members(self) -> set[str]:
        """The models that it calls, if it is an ensemble that serves."""
        return {name for version in self.versions.values() for name in _members(version)}

    @property
    def members(self) -> list[str]:
        """Those that it would call too."""
        return sorted({*self._tried_members, *self.served_members})

    @property
    def dependencies(self) -> list[str]:
        """Those that are loaded before it."""
        return [*self.members, *self._tried_callees]

    @property
    def callees(self) -> set[str]:
        """Those that it calls, or may call."""
        generations = [version.generation for version in self.versions.values()]
        called = {callee for g in generations if g is not None for callee in g.callees}
        return called | set(self.members)

    @property
    def why_not_loaded(self) -> str:
        """Of each version that does not serve, or cannot now."""
        shown = {
            number: version.reported_state for number, version in sorted(self.versions.items())
        }
        texts = [
            f"version {number} is at {state.value} state: {reason};"
            for number, (state, reason) in shown.items()
            if state is not ModelState.READY
        ]
        return "\n".join(texts) or self.read_problem or NO_VERSION

    # ------------------------------------------------------- what is shown

    def is_ready(self, version: int) -> bool:
        """Whether this one can execute now; -1: any."""
        meant = [one for number, one in self.versions.items() if version in (-1, number)]
        return any(one.reported_state[0] is ModelState.READY for one in meant)

    def serving_config(self, version: int) -> dict[str, Any]:
        """Of the version that serves, with -1 of the highest; empty where none does."""
        serving = [n for n, one in self.versions.items() if one.is_serving and version in (-1, n)]
        generation = self.versions[max(serving)].generation if serving else None
        finished = generation.final_config if generation is not None else None
        config: dict[str, Any] = {} if finished is None else json.loads(finished.config)
        return config

    @property
    def has_ended(self) -> bool:
        """Nothing of it is loaded, loading or ending."""
        return not self.is_loading and all(
            version.generation is None for version in self.versions.values()
        )

    @property
    def was_unloaded(self) -> bool:
        """Somebody wanted it gone, and it is."""
        reasons = {version.reason for version in self.versions.values()}
        return self.has_ended and (reasons == {UNLOADED} or self.is_on_demand)

    @property
    def is_on_demand(self) -> bool:
        """Requests have it loaded; else somebody has said that it is to be there, or not."""
        return self._context.has_on_demand_loading and not (
            self.was_explicitly_loaded or self._was_explicitly_unloaded
        )

    @property
    def can_be_evicted(self) -> bool:
        return self.is_on_demand and not self.is_loading and bool(self.serving_configs)

    @property
    def serving_configs(self) -> list[str]:
        """The configurations of what requests go to."""
        generations = [v.generation for v in self.versions.values() if v.is_serving]
        return [
            g.final_config.config
            for g in generations
            if g is not None and g.final_config is not None
        ]

    @property
    def is_loaded(self) -> bool:
        """Every version that was wanted serves."""
        return bool(self.versions) and all(
            version.is_serving or version.reason == UNLOADED for version in self.versions.values()
        )

    def version_infos(self) -> list[wire.VersionInfo]:
        """All that frontends must know of it."""
        if self._has_no_version and not self.versions:
            state = ModelState.UNAVAILABLE.value
            return [wire.VersionInfo(0, self.name, 0, state, NO_VERSION, 0, "", b"")]
        return [self._news_of(version) for version in self.versions.values()]

    def _news_of(self, version: ModelVersion) -> wire.VersionInfo:
        news = version.version_info()
        return news._replace(is_on_demand=1) if self.is_on_demand else news

    def index_entries(self) -> Iterator[dict[str, Any]]:
        """Its entries in the repository index."""
        for number, version in sorted(self.versions.items()):
            state, reason = version.reported_state
            if state is ModelState.READY and self.read_problem:
                reason = f"{LAST_LOAD_FAILED}: {self.read_problem}"
            entry = {"name": self.name, "version": str(number), "state": state.value}
            yield {**entry, "reason": reason} if reason else entry
        if not self.versions:
            entry = {"name": self.name}
            if self.read_problem:
                entry |= {"state": ModelState.UNAVAILABLE.value, "reason": self.read_problem}
            yield entry

    def table_rows(self) -> list[tuple[str, str, str]]:
        """Its lines in the table that the server prints at start."""
        rows = []
        for number, version in self.versions.items():
            state, reason = version.reported_state
            rows.append((self.name, str(number), _status(state, reason)))
        if self.read_problem:
            rows.append((self.name, "-", _status(ModelState.UNAVAILABLE, self.read_problem)))
        elif not rows:
            rows.append((self.name, "-", NO_VERSION))
        return rows


def _members(version: ModelVersion) -> tuple[str, ...]:
    generation = version.generation if version.is_serving else None
    ensemble = generation.blueprint.ensemble if generation else None
    return ensemble.member_names if ensemble else ()


def _status(state: ModelState, reason: str) -> str:
    return f"{state.value}: {reason}" if reason else state.value
