"""The models that a frontend knows: the newest VersionInfo of each version.

The gateway passes on messages from the lifeline. Does no I/O. Texts and codes are Triton's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from zmqtriton_floor.cache_keys import Keys, is_cached
from zmqtriton_floor.datatypes import BY_CONFIG_NAME
from zmqtriton_floor.errors import (
    InvalidArgument,
    NotFound,
    Unavailable,
    ZmqTritonError,
    closest_match,
)
from zmqtriton_floor.routing import inside
from zmqtriton_floor.wire import (
    ForgetModel,
    RepositoryState,
    ServerDraining,
    TrafficSplit,
    VersionInfo,
)
from zmqtriton_frontends.inference.client_regions import Regions
from zmqtriton_frontends.inference.divisions import Divisions
from zmqtriton_frontends.inference.load_on_demand import NotLoaded, OnDemandLoader
from zmqtriton_frontends.inference.model_version import ModelVersion, has_sequences
from zmqtriton_frontends.process.futures import Callbacks

#: The answers to requests under way when the time to stop is up, and to those that come then.
CUT = "Server stops, and this was not complete in time: ask again"
STOPPING = "Server is stopping, scheduler for model has stopped accepting new inference requests"
#: Messages of the supervisor about models, and about the server as far as models depend on it.
CATALOGUE_MESSAGES = (VersionInfo, TrafficSplit, ForgetModel, RepositoryState, ServerDraining)


#: A guess is not worth the time to compare a name with more than these, or a longer one.
_MAX_NAMES, _MAX_SIGNS = 50, 64
#: Sentences behind Triton's text, which clients look for, by the version's state: how to go on.
_WHY_NOT_LOADED = {
    "LOADING": ". It is being loaded, so retry later",
    "UNLOADING": ". It is being unloaded",
    "UNAVAILABLE": ". Its last load has failed, and the index of the repository says why",
}

#: Finds the value of a header of a request, by its name in small letters.
HeaderLookup = Callable[[bytes], str | None]
_T = TypeVar("_T")


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
        #: True while models move from another server to this one; requests wait for them.
        self.is_moving = False
        #: The server drains: it is not ready, though requests are answered; called when it begins
        #: to, or ends.
        self.is_draining = False
        self.on_draining = Callbacks()
        #: True if errors may name other models, because every client may see all of them.
        self.can_name_models = False
        #: Clients' shared memory, which requests name as they name models.
        self.regions = Regions()
        #: Returns the steps of requests to one version; None if there are none.
        self.steps_of: Callable[[ModelVersion], tuple[Any, ...]] | None = None
        #: Number of changes of the catalogue. A copy made of it is stale once the number differs.
        self.changes = 0
        self._models: dict[str, dict[int, ModelVersion]] = {}
        #: The ensembles among them, by name and version.
        self._ensembles: dict[tuple[str, int], ModelVersion] = {}
        #: The models whose requests are divided between two versions.
        self.divisions = Divisions()
        #: The version that an unversioned request gets, kept so that the hot path does one look-up.
        self._newest: dict[str, ModelVersion] = {}

    def apply(self, message: Any) -> None:
        """Apply a message of the types in CATALOGUE_MESSAGES."""
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
            version.steps = self.steps_of(version) if self.steps_of is not None else ()
            versions[news.version] = version
            self._ensembles.pop((news.model, news.version), None)
            if version.is_ensemble:
                self._ensembles[news.model, news.version] = version
        self._choose_newest(news.model)
        self._look_into_ensembles()
        for name in self.divisions:
            self._choose_newest(name)

    def divide(self, split: TrafficSplit) -> None:
        """Divide the requests to a model from now on, or stop dividing them."""
        self.divisions.put(split)
        self._choose_newest(split.model)

    def _choose_newest(self, name: str) -> None:
        versions = self._models.get(name, {})
        newest = self.divisions.choose(name, versions) or max(
            (version for version in versions.values() if version.is_loaded),
            key=lambda version: version.version,
            default=None,
        )
        if newest is not None:
            self._newest[name] = newest
        else:
            self._newest.pop(name, None)

    def _look_into_ensembles(self) -> None:
        """Update the ensembles, which may have other members after a change of versions."""
        for ensemble in self._ensembles.values():
            configs = list(inside(self._config, ensemble.name, ensemble.version))
            ensemble.is_hashed = any(map(is_cached, configs))
            ensemble.has_sequences = any(map(has_sequences, configs))

    def _config(self, name: str, version: int) -> dict[str, Any] | None:
        model = self._models.get(name, {}).get(version) if version > 0 else self._newest.get(name)
        return model.config if model is not None else None

    def forget(self, name: str) -> None:
        for key in [key for key in self._ensembles if key[0] == name]:
            del self._ensembles[key]
        self._models.pop(name, None)
        self.divide(TrafficSplit(name, 0, 0, 0))

    def versions(self) -> dict[str, list[ModelVersion]]:
        """Return all versions of each model, by name; an unreadable model has none."""
        return {
            name: [versions[number] for number in sorted(versions)]
            for name, versions in sorted(self._models.items())
        }

    def newest(self) -> list[ModelVersion]:
        """Return, for each model, the version that requests without a version get, by name."""
        return [self._newest[name] for name in sorted(self._newest)]

    def config_of(self, name: str, version: int) -> dict[str, Any]:
        """Return a configuration; empty for an unknown model."""
        model = self._models.get(name, {}).get(version)
        return model.config if model is not None else {}

    def look_up(self, name: str, version: str = "") -> ModelVersion | None:
        """Return the version that a request would get now; None if no version may be available.

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
        """True if no version is loaded, but a request would load one."""
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
        """Return a sentence with the name that was probably meant; "" if it must not be named."""
        if not self.can_name_models or len(name) > _MAX_SIGNS or len(self._models) > _MAX_NAMES:
            return ""
        meant = closest_match(name, self._models)
        return f". Did you mean '{meant}'?" if meant else ""

    def _version(self, name: str, version: str) -> ModelVersion:
        number = Catalogue.parse_version(version)
        model = self._versions_of(name).get(number)
        if model is None:
            raise NotFound(f"Request for unknown model: '{name}' version {number} is not found")
        return model

    @staticmethod
    async def attempt(step: Callable[[], _T], deadline_ns: int = 0) -> _T:
        """Return the result of a step, if necessary after a model was loaded."""
        try:
            return step()
        except NotLoaded as missing:
            loading = missing.load(deadline_ns)
        await loading
        return step()

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
        """Raise an error if the model is unknown, in the words of statistics; "": all models."""
        self.check_serving()
        if not name:
            return
        number = Catalogue.parse_version(version) if version else 0
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
        """True if clients should send any requests at all."""
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

    @staticmethod
    def parse_version(version: str) -> int:
        """Parse a client's version. Raises InvalidArgument unless it is a non-negative number."""
        if re.fullmatch("-[0-9]{1,18}", version):
            raise InvalidArgument(
                f"invalid model version specified '{version}' , version should be an integral "
                "value > 0"
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
    return ". It was unloaded" if version.is_unloaded else _WHY_NOT_LOADED.get(version.state, "")
