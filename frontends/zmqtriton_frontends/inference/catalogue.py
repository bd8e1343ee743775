"""The models as a frontend knows them: the newest VersionInfo of each version.

Fed by the gateway from the lifeline. Does no I/O. Texts and codes are Triton's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from copy import copy
from functools import cached_property
from typing import Any, NamedTuple

from zmqtriton_floor import lazy_names
from zmqtriton_floor.cache_keys import Keys, is_cached
from zmqtriton_floor.datatypes import BY_CONFIG_NAME
from zmqtriton_floor.errors import (
    InvalidArgument,
    NotFound,
    Unavailable,
    ZmqTritonError,
    closest_match,
)
from zmqtriton_floor.reasons import Kind
from zmqtriton_floor.routing import inside
from zmqtriton_floor.settings.frontends import FrontendSettings
from zmqtriton_floor.signature import Signature
from zmqtriton_floor.wire import (
    ForgetModel,
    RepositoryState,
    ServerDraining,
    TrafficSplit,
    VersionInfo,
)
from zmqtriton_frontends.inference.client_regions import Regions
from zmqtriton_frontends.inference.load_on_demand import Call, NotLoaded, OnDemandLoader

#: The answers to requests under way when the time to stop is up, and to those that come then.
CUT = "Server stops, and this was not complete in time: ask again"
STOPPING = "Server is stopping, scheduler for model has stopped accepting new inference requests"
#: What the supervisor tells of models, and of the server as far as models depend on it.
CATALOGUE_MESSAGES = (VersionInfo, TrafficSplit, ForgetModel, RepositoryState, ServerDraining)
_READY = "READY"


#: A guess is not worth the time to compare a name with more than these, or a longer one.
_MAX_NAMES, _MAX_SIGNS = 50, 64
#: Behind the text of Triton, which is also what clients look for: what is to be done.
_WHY_NOT_LOADED = {
    "LOADING": ". It is being loaded, so retry later",
    "UNLOADING": ". It is being unloaded",
    "UNAVAILABLE": ". Its last load has failed, and the index of the repository says why",
}

#: Finds the value of a header of a request, by its name in small letters.
HeaderLookup = Callable[[bytes], str | None]


class Trial(NamedTuple):
    """A version that is tried, and how it shares requests that name no version."""

    split: TrafficSplit
    version: ModelVersion
    #: The names of the headers that choose it, and that keep a client's choice, as requests have
    #: them.
    header: bytes
    sticky: bytes


#: What is made of a configuration at its first use: it may be large, and all clients wait for it.
_READ_LATE = ("config", "signature")


class ModelVersion:
    """One version of a model; replaced as a whole by the next VersionInfo."""

    def __init__(self, news: VersionInfo, before: ModelVersion | None = None) -> None:
        """Take the news; a configuration is read when it is needed, an equal one not again."""
        self.name = news.model
        self.version = news.version
        self.generation = news.generation
        self.state = news.state
        #: Why it is not ready, or a newer one is not.
        self.reason = news.reason
        self.ready_instances = news.ready_instances
        #: Its model has an is_ready.
        self.is_asked = bool(news.has_is_ready)
        #: It is loaded on demand, so it need not be loaded.
        self.is_on_demand = bool(news.is_on_demand)
        self.config_text = news.config
        self.config_proto = news.config_proto
        if before is not None and before.config_text == news.config:
            read = {name: vars(before)[name] for name in _READ_LATE if name in vars(before)}
            vars(self).update(read)
        #: By output, the names of its classes.
        self.labels: dict[str, list[str]] = json.loads(news.labels) if news.labels else {}
        #: Clients are to avoid it, though it answers.
        self.is_draining = bool(news.is_draining)
        #: Makes a prompt of a chat; "" if it has none.
        self.chat_template = news.chat_template
        #: Its answers are kept for equal requests.
        self.is_cached = self._mentions("response_cache") and is_cached(self.config)
        #: Inputs of requests to it may be looked up: in its own cache, or for a member.
        self.is_hashed = self.is_cached
        #: The version that gets a part of the requests to this one; None unless those that name
        #: no version are divided.
        self.trial: Trial | None = None
        #: Requests to it may be parts of sequences: its own, or a member's.
        self.has_sequences = self._mentions("sequence_batching") and has_sequences(self.config)
        #: Steps of requests to it alone.
        self.steps: tuple[Any, ...] = ()

    def _mentions(self, field: str) -> bool:
        """Return False if the configuration has no such field for sure."""
        return field in self.config_text

    @cached_property
    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = json.loads(self.config_text) if self.config_text else {}
        return config

    @cached_property
    def signature(self) -> Signature:
        return Signature(self.config or {"name": self.name})

    @property
    def is_ensemble(self) -> bool:
        return self._mentions("ensemble_scheduling") and "ensemble_scheduling" in self.config

    @property
    def is_loaded(self) -> bool:
        """True if requests are taken; they may have to wait for an instance."""
        return self.state == _READY and self.generation != 0

    @property
    def reason_text(self) -> str:
        return self.reason.text if self.reason else ""

    @property
    def is_given_up(self) -> bool:
        """True if it has served, and its instances died too often."""
        return not self.is_loaded and self.reason is not None and self.reason.has(Kind.GIVEN_UP)

    @property
    def is_unloaded(self) -> bool:
        """True if it was unloaded on request."""
        return self.reason is not None and self.reason.kind == Kind.UNLOADED

    @property
    def may_be_missing(self) -> bool:
        """True if the server is ready without it."""
        is_meant = self.is_unloaded or (self.is_on_demand and not self.is_loaded)
        return is_meant or self.is_draining

    @property
    def is_ready(self) -> bool:
        """True if an instance could execute now, and clients should ask."""
        return self.is_loaded and self.ready_instances > 0 and not self.is_draining


class Catalogue:
    """All models by name and version."""

    def __init__(self) -> None:
        #: The server is ready only while all models are.
        self.strict_readiness = True
        #: Makes keys of requests to models with a cache; None if the server has none.
        self.keys: Keys | None = None
        #: Loads models on demand; None if only operators load.
        self.demand: OnDemandLoader | None = None
        #: Without a broker nothing is ready, though requests may be made: they wait.
        self.has_broker = True
        #: Nothing can be served, because the server waits for its repository.
        self.is_repository_missing = False
        #: Models move from another server to this one; requests wait for them.
        self.is_moving = False
        #: The server drains: it is not ready, though requests are answered; called when it begins
        #: to, or ends.
        self.is_draining = False
        self.on_draining: Callable[[], None] = lambda: None
        #: Errors may name other models, since nobody is kept from seeing them.
        self.can_name_models = False
        #: Clients' shared memory, which requests name as they name models.
        self.regions = Regions()
        #: Returns the steps of requests to one version.
        self.steps_of: Callable[[ModelVersion], tuple[Any, ...]] = lambda version: ()
        #: How often any of this has changed, for those who keep what they have made of it.
        self.changes = 0
        self._models: dict[str, dict[int, ModelVersion]] = {}
        #: Those of these that are ensembles, by name and version.
        self._ensembles: dict[tuple[str, int], ModelVersion] = {}
        #: The models whose requests are divided between two versions.
        self._splits: dict[str, TrafficSplit] = {}
        self.is_divided = False
        #: Called when there is a first one of these, or none any more.
        self.on_division: list[Callable[[], None]] = []
        #: The version that an unversioned request gets, kept so that the hot path does one look-up.
        self._newest: dict[str, ModelVersion] = {}

    def apply(self, message: Any) -> None:
        """Take one of CATALOGUE_MESSAGES."""
        self.changes += 1
        if isinstance(message, VersionInfo):
            self.update(message)
        elif isinstance(message, TrafficSplit):
            self.divide(message)
        elif isinstance(message, ForgetModel):
            self.forget(message.model)
        elif isinstance(message, RepositoryState):
            self.is_repository_missing = bool(message.is_missing)
            self.is_moving = bool(message.is_moving)
        elif isinstance(message, ServerDraining):
            self.is_draining = bool(message.is_draining)
            self.on_draining()

    def update(self, news: VersionInfo) -> None:
        versions = self._models.setdefault(news.model, {})
        if news.version:
            version = ModelVersion(news, versions.get(news.version))
            version.steps = self.steps_of(version)
            versions[news.version] = version
            self._ensembles.pop((news.model, news.version), None)
            if version.is_ensemble:
                self._ensembles[news.model, news.version] = version
        self._choose_newest(news.model)
        self._look_into_ensembles()
        for name in self._splits:
            self._replace_newest(name)

    def divide(self, split: TrafficSplit) -> None:
        """Divide the requests to a model from now on, or no longer."""
        if split.stable:
            self._splits[split.model] = split
        else:
            self._splits.pop(split.model, None)
            self._choose_newest(split.model)
        self._replace_newest(split.model)
        if self.is_divided != bool(self._splits):
            self.is_divided = not self.is_divided
            for tell in self.on_division:
                tell()

    def _choose_newest(self, name: str) -> None:
        loaded = [v for v in self._models.get(name, {}).values() if v.is_loaded]
        if loaded:
            self._newest[name] = max(loaded, key=lambda v: v.version)
        else:
            self._newest.pop(name, None)

    def _replace_newest(self, name: str) -> None:
        """Replace the newest version of a divided model: by the stable one, which has a trial.

        That is a copy, since requests that name the version are not divided.
        """
        split, versions = self._splits.get(name), self._models.get(name, {})
        if split is None:
            return
        stable, tried = versions.get(split.stable), versions.get(split.tried)
        if stable is not None and stable.is_loaded:
            divided = self._newest[name] = copy(stable)
            if tried is not None and tried.is_loaded:
                divided.trial = Trial(split, tried, split.header.encode(), split.sticky.encode())
        elif tried is not None and tried.is_loaded:
            self._newest[name] = tried

    def _look_into_ensembles(self) -> None:
        """Update the ensembles, which may have other members after a change of versions."""
        for ensemble in self._ensembles.values():
            configs = list(inside(self._config, ensemble.name, ensemble.version))
            ensemble.is_hashed = any(map(is_cached, configs))
            ensemble.has_sequences = any(map(has_sequences, configs))

    def _config(self, name: str, version: int) -> dict[str, Any] | None:
        newest = self._newest.get(name)
        model = self._models.get(name, {}).get(version) if version > 0 else newest
        return model.config if model is not None else None

    def forget(self, name: str) -> None:
        for key in [key for key in self._ensembles if key[0] == name]:
            del self._ensembles[key]
        self._models.pop(name, None)
        self.divide(TrafficSplit(name, 0, 0, 0))

    def versions(self) -> dict[str, list[ModelVersion]]:
        """Return all versions of each model, by name; a model that cannot be read has none."""
        return {
            name: [versions[number] for number in sorted(versions)]
            for name, versions in sorted(self._models.items())
        }

    def newest(self) -> list[ModelVersion]:
        """Return what requests without a version go to, by the models' names."""
        return [self._newest[name] for name in sorted(self._newest)]

    def config_of(self, name: str, version: int) -> dict[str, Any]:
        """Return a configuration; empty for an unknown model."""
        model = self._models.get(name, {}).get(version)
        return model.config if model is not None else {}

    def look_up(self, name: str, version: str = "") -> ModelVersion | None:
        """Return the version that a request would get now; None if there may be none.

        Other threads may call this.
        """
        if not version:
            return self._newest.get(name)
        return self._models.get(name, {}).get(int(version)) if version.isdecimal() else None

    def find(self, name: str, version: str = "") -> ModelVersion:
        """Find the version for a request.

        Raises InvalidArgument for an unknown model or a version that is not a number, NotFound for
        an unknown version, Unavailable for one that is not loaded; NotLoaded in place of these if
        models are loaded on demand.
        """
        if not version:
            newest = self._newest.get(name)
            if newest is not None:
                return newest
        try:
            return self._find(name, version)
        except ZmqTritonError as error:
            if self.demand is None or not self._is_on_demand(name):
                raise
            raise NotLoaded(error, name, self.demand) from None

    def _find(self, name: str, version: str) -> ModelVersion:
        if not version:
            for model in self._versions_of(name).values():
                if model.is_given_up:
                    raise Unavailable(model.reason_text)
            text = f"Request for unknown model: '{name}' has no available versions"
            versions = self._models[name].values()
            # one that has failed, since the others do not serve for that reason
            candidate = max(versions, key=lambda v: (not v.is_unloaded, v.version), default=None)
            raise NotFound(text + (_why_not_loaded(candidate) if candidate is not None else ""))
        entry = self._version(name, version)
        if entry.is_given_up:
            raise Unavailable(entry.reason_text)
        if not entry.is_loaded:
            text = (
                f"Request for unknown model: '{name}' version {entry.version} is not at ready state"
            )
            raise Unavailable(text + _why_not_loaded(entry))
        return entry

    def _is_on_demand(self, name: str) -> bool:
        """True if nothing of it is loaded, though not on request."""
        versions = self._models.get(name, {}).values()
        return all((v.is_on_demand or self.is_moving) and not v.is_loaded for v in versions)

    def _versions_of(self, name: str) -> dict[int, ModelVersion]:
        self.check_serving()
        versions = self._models.get(name)
        if versions is None:
            text = f"Request for unknown model: '{name}' is not found"
            raise InvalidArgument(text + self._guess(name))
        return versions

    def _guess(self, name: str) -> str:
        """Return a sentence with the name that was meant; "" without one, or without permission."""
        if not self.can_name_models or len(name) > _MAX_SIGNS or len(self._models) > _MAX_NAMES:
            return ""
        meant = closest_match(name, self._models)
        return f". Did you mean '{meant}'?" if meant else ""

    def _version(self, name: str, version: str) -> ModelVersion:
        number = parse_version(version)
        model = self._versions_of(name).get(number)
        if model is None:
            raise NotFound(f"Request for unknown model: '{name}' version {number} is not found")
        return model

    def metadata(self, name: str, version: str = "") -> dict[str, Any]:
        """Return the answer of the metadata extension."""
        model = self.find(name, version)
        config = model.config
        versions = [model.version]
        if not version:
            versions = sorted(v.version for v in self._models[name].values() if v.is_loaded)
        return {
            "name": name,
            "versions": [str(v) for v in versions],
            "platform": config.get("platform") or config.get("backend", ""),
            "inputs": [_tensor(entry, config) for entry in config.get("input", [])],
            "outputs": [_tensor(entry, config) for entry in config.get("output", [])],
        }

    def check_serving(self) -> None:
        """Raise Unavailable while the server waits for its repository."""
        if self.is_repository_missing:
            raise Unavailable("Server not ready")

    def check_counted(self, name: str, version: str = "") -> None:
        """Raise, in words of their own, if there are no statistics of it; "" is of all."""
        self.check_serving()
        if not name:
            return
        number = parse_version(version) if version else 0
        versions = self._models.get(name)
        if versions is None:
            raise InvalidArgument(f"requested model '{name}' is not available")
        if number and number not in versions:
            raise InvalidArgument(f"requested model version is not available for model '{name}'")

    def is_model_ready(self, name: str, version: str = "") -> bool:
        """Return the readiness of a model. Raises as find() does for an unknown one."""
        if not version:
            self._versions_of(name)
            newest = self._newest.get(name)
            return newest is not None and newest.is_ready and self.may_be_asked
        return self._version(name, version).is_ready and self.may_be_asked

    @property
    def may_be_asked(self) -> bool:
        """True if clients should ask for anything at all."""
        return self.has_broker and not self.is_draining

    def generations_with_is_ready(self) -> set[int]:
        """Return the generations whose models have an is_ready."""
        return {
            version.generation
            for versions in self._models.values()
            for version in versions.values()
            if version.is_asked and version.is_loaded and self.strict_readiness
        }

    def is_ready(self) -> bool:
        """Return the strict readiness.

        Every version of every model can execute, or was unloaded on request.
        """
        if not self.may_be_asked or self.is_repository_missing or self.is_moving:
            return False
        if not self.strict_readiness:
            return True
        return all(
            versions and all(v.is_ready or v.may_be_missing for v in versions.values())
            for versions in self._models.values()
        )


def has_sequences(config: Mapping[str, Any]) -> bool:
    """True if requests to a model belong together; each of an iterative one is on its own."""
    batching = config.get("sequence_batching")
    return batching is not None and not batching.get("iterative_sequence")


def parse_version(version: str) -> int:
    """Parse a client's version. Raises InvalidArgument unless it is a non-negative number."""
    if re.fullmatch("-[0-9]{1,18}", version):
        raise InvalidArgument(
            f"invalid model version specified '{version}' , version should be an integral value > 0"
        )
    if not re.fullmatch("[0-9]{1,18}", version):
        raise InvalidArgument(
            f"failed to get model version from specified version string '{version}', version "
            "should be an integral value > 0"
        )
    return int(version)


def _tensor(entry: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    batch = [-1] if config.get("max_batch_size", 0) else []
    return {
        "name": entry["name"],
        "datatype": BY_CONFIG_NAME[entry["data_type"]].name,
        "shape": batch + list(entry["dims"]),
    }


def _why_not_loaded(version: ModelVersion) -> str:
    """Return a second sentence for an error about a version that is not loaded."""
    if version.is_unloaded:
        return ". It was unloaded"
    return _WHY_NOT_LOADED.get(version.state, "")


def apply_settings(catalogue: Catalogue, settings: FrontendSettings, call: Call) -> None:
    """Apply the settings of a Bootstrap; `call` asks the supervisor to load a model."""
    catalogue.strict_readiness = settings.models.strict_readiness
    catalogue.can_name_models = not (settings.access.tokens or settings.access.restrictions)
    on_demand = settings.models.on_demand
    catalogue.demand = OnDemandLoader(call, on_demand.timeout_s) if on_demand.is_on else None
    if settings.models.steps:
        catalogue.steps_of = lazy_names.load_reference(settings.models.steps)
