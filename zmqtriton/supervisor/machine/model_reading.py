"""Reads models from the repositories into blueprints.

Does I/O on small files only. An error in a model becomes a ReadFailure or the problem of a version,
never an exception.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import zmqtriton_floor
from zmqtriton.config.autoscale import autoscale_limits_of, autoscale_problems
from zmqtriton.config.backends import (
    PYTHON,
    backend_places,
    find_backend_environment,
    find_model_file,
    find_runtime,
)
from zmqtriton.config.canaries import CanarySettings, canary_problems
from zmqtriton.config.document import to_json
from zmqtriton.config.ensemble_members import complete_ensemble
from zmqtriton.config.ensembles import member_steps
from zmqtriton.config.errors import ConfigError, Problem, raise_first
from zmqtriton.config.files import ClientFiles, check_paths, inherit_labels, read_client_files
from zmqtriton.config.model_config import Host, check_runnable, load_config, merge_completion
from zmqtriton.config.parameters import (
    chosen_user,
    declared_callees,
    load_timeout_s,
    parameter_problems,
)
from zmqtriton.config.positions import locate, locate_error
from zmqtriton.config.quotas import Quota, quota_of, quota_problems
from zmqtriton.config.states import check_states
from zmqtriton.environments.demand import (
    SERVER_ENVIRONMENT,
    Environment,
    EnvironmentSpec,
    ignored_stub_warnings,
    resolve_environment,
)
from zmqtriton.options import Options
from zmqtriton.repository.agents import agent_problems
from zmqtriton.repository.place import ModelPlace, place_of_file
from zmqtriton.repository.scan import (
    DUPLICATE,
    LOST_AND_FOUND,
    NO_EXCEPTIONS,
    ScannedModel,
    VersionSelection,
    code_fingerprint,
    not_found,
    not_unique,
    repository_hint,
    subdirectories,
)
from zmqtriton.repository.tried_versions import (
    TriedVersions,
    choose_with_canary,
    configured_canary,
    policy_versions,
    version_policy,
)
from zmqtriton.storage.places import is_remote
from zmqtriton.supervisor.actions import (
    KeepDecisions,
    LoadOverride,
    LocalCopy,
    RepositoryNames,
)
from zmqtriton.supervisor.machine.directories.staged import take_over
from zmqtriton.supervisor.machine.fingerprints import with_fingerprints
from zmqtriton.supervisor.machine.instance_slots import (
    expected_slots,
    instance_slots,
    scaled_config,
)
from zmqtriton.supervisor.machine.python_settings import check_settings
from zmqtriton.supervisor.models.blueprint import (
    BackendCode,
    Blueprint,
    EnsembleBlueprint,
    FinalConfig,
    ReadFailure,
    Scale,
    VersionBlueprint,
)
from zmqtriton_floor.errors import (
    AlreadyExists,
    InternalError,
    InvalidArgument,
    NotFound,
    ZmqTritonError,
)

#: The stub lies beside the floor package; it is started by path and imported by nobody.
STUB_DIRECTORY = Path(zmqtriton_floor.__file__).parent.parent / "zmqtriton_stub"

#: No directory has this name.
_NO_FOLDER = "\0"


class ModelReader:
    """Reads all repositories of the command line."""

    def __init__(self, options: Options, gpus: Sequence[int] = ()) -> None:
        self._paths = [Path(path) for path in options.model_repository if not is_remote(path)]
        self._files = {name: Path(path).absolute() for name, path in options.model_file}
        #: Names of models that are not those of their folders, by repository and folder.
        self._names: dict[Path, dict[str, str]] = {}
        self._remote_urls = tuple(filter(is_remote, options.model_repository))
        self._config_name = options.model_config_name
        self._auto_complete = not options.strict_model_config
        self._python_settings = options.backend_settings("python")
        self._may_build_environments = options.build_environments
        self._users = options.stub_user
        self._has_chats = options.allow_openai
        self._host = Host(gpus, options.min_supported_compute_capability)
        self._agents = options.repoagent_directory
        self._backends = backend_places(options.backend_directory)
        self._settings_of_backend = options.backend_command_line
        self._retry_after_s = options.instance_retry_secs
        self._tried_versions = TriedVersions(options.state_directory)
        self._usual_quota = Quota(
            max_segment_bytes=options.max_model_segment_bytes,
            max_memory_bytes=options.max_model_memory_bytes,
        )

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the directories in use."""
        return (*(os.path.abspath(path) for path in self._paths), *self._remote_urls)

    def find_warnings(self) -> list[str]:
        """Return warnings about the repositories themselves, as far as they can be read."""
        hints = []
        for path in self._paths:
            if os.path.isdir(path / LOST_AND_FOUND):
                hints.append(f"'{path / LOST_AND_FOUND}' is left out: it is a file system's")
            try:
                hints.append(repository_hint(path))
            except InternalError:
                pass  # the start reports that
        return [text for text in hints if text]

    def register(self, path: str, names: Mapping[str, str] | None = None) -> None:
        """Add a directory, with other names for some of its models, by their folders.

        Raises InvalidArgument and AlreadyExists.
        """
        if not os.path.isdir(path):
            raise InvalidArgument(f"failed to register '{path}', repository not found")
        if os.path.abspath(path) in self.paths:
            raise AlreadyExists(f"model repository '{path}' has already been registered")
        taken = {name for by_folder in self._names.values() for name in by_folder.values()}
        for name in (names or {}).values():
            if name in taken:
                raise AlreadyExists(
                    f"failed to register '{name}', there is a conflicting mapping for '{name}'"
                )
        self._paths.append(Path(path))
        self._names[Path(path)] = dict(names or {})

    def unregister(self, path: str) -> None:
        """Remove a directory; models that were loaded from it stay. Raises NotFound."""
        directory = os.path.abspath(path)
        if directory not in self.paths:
            raise NotFound(f"failed to unregister '{path}', repository not found")
        self._names.pop(self._paths.pop(self.paths.index(directory)), None)

    def list_names(self, remote: Iterable[tuple[str, str]] = ()) -> RepositoryNames:
        """List every model directory and the models of object stores, each with its problem.

        Raises InternalError.
        """
        listing: RepositoryNames = {}
        places: dict[str, Path] = {}
        for repository in self._paths:
            for path in subdirectories(repository):
                name = self._names.get(repository, {}).get(path.name, path.name)
                place = path.resolve()
                if places.setdefault(name, place) != place:
                    listing[name] = DUPLICATE
                else:
                    listing.setdefault(name, None)
        for name, problem in (*remote, *((name, "") for name in self._files)):
            stated = InternalError(problem).reason if problem else None
            listing[name] = DUPLICATE if name in listing else stated
        return dict(sorted(listing.items()))

    def read_model(
        self,
        name: str,
        override: LoadOverride | None = None,
        copied: LocalCopy | None = None,
        selection: VersionSelection = NO_EXCEPTIONS,
    ) -> Blueprint | ReadFailure:
        """Return the blueprint that a load of this model would build now."""
        if override is not None and override.directory:
            directory = Path(override.directory)
            return self._read(name, ModelPlace(directory, directory.parent), override, selection)
        places = self.find_places(name)
        copied = copied or LocalCopy()
        urls = copied.repository_urls
        if not places and not urls:
            if copied.problem:
                return self._read_stored_copy(name, copied, override, selection)
            return ReadFailure(not_found(name, self._known_names()).reason)
        if len(places) + len(urls) > 1:
            return ReadFailure(not_unique(name).reason, "duplicate", is_duplicate=True)
        if urls:
            return self._read_stored_copy(name, copied, override, selection)
        (place,) = places
        return self._read(name, place, override, selection)

    def find_places(self, name: str) -> list[ModelPlace]:
        """Return the places of a model on this machine; a model that can be loaded has one."""
        places: dict[Path, ModelPlace] = {}
        if "/" not in name and "\0" not in name and name not in ("", ".", ".."):
            for repository in self._paths:
                path = repository / self._folder(repository, name)
                # Path.is_dir() raises if a name is longer than the file system allows.
                if os.path.isdir(path):
                    places.setdefault(path.resolve(), ModelPlace(path, repository))
        files = [place_of_file(self._files[name])] if name in self._files else []
        return [*places.values(), *files]

    def _folder(self, repository: Path, name: str) -> str:
        """Return the folder of a model in a repository; none if it has another name there."""
        names = self._names.get(repository, {})
        folders = [folder for folder, named in names.items() if named == name]
        return folders[0] if folders else _NO_FOLDER if name in names else name

    def _known_names(self) -> list[str]:
        """Return names for suggestions; a repository that cannot be listed has none."""
        try:
            return list(self.list_names())
        except InternalError:
            return []

    def keep_decisions(self, action: KeepDecisions) -> str:
        """Keep and forget decisions about versions; return why that is impossible, or ""."""
        places = self.find_places(action.model)
        directory = Path(action.directory)
        place = places[0] if len(places) == 1 else ModelPlace(directory, directory.parent)
        try:
            scanned = replace(place.scan(action.model, self._config_name), name=action.model)
        except (ZmqTritonError, OSError) as error:
            return str(error)
        return self._tried_versions.keep(scanned, action.decisions, action.undecided)

    def _read_stored_copy(
        self,
        name: str,
        copied: LocalCopy,
        override: LoadOverride | None,
        selection: VersionSelection,
    ) -> Blueprint | ReadFailure:
        if copied.problem:
            return ReadFailure(InternalError(copied.problem).reason, copied.digest)
        path = Path(copied.directory)
        place = ModelPlace(path, path.parent)
        return self._read(name, place, override, selection, copied.digest)

    def _read(
        self,
        name: str,
        place: ModelPlace,
        override: LoadOverride | None,
        selection: VersionSelection,
        fingerprint: str = "",
    ) -> Blueprint | ReadFailure:
        """Read a model, with the fingerprint of the content if it is a copy."""
        copy_fingerprint, fingerprint = fingerprint, fingerprint or "unreadable"
        try:
            if override is not None and override.directory:
                take_over(place.directory)
            scanned = replace(place.scan(name, self._config_name), name=name)
            fingerprint = copy_fingerprint or scanned.fingerprint
            scanned = replace(scanned, fingerprint=fingerprint, selection=selection)
            if override is None or not override.directory:
                scanned = self._tried_versions.with_decisions(scanned)
            return self._blueprint(scanned, override)
        except ZmqTritonError as error:
            return ReadFailure(error.reason, fingerprint)
        except OSError as error:
            return ReadFailure(InternalError(str(error)).reason, fingerprint)

    def _blueprint(self, scanned: ScannedModel, override: LoadOverride | None) -> Blueprint:
        completed: list[str] = []
        config = load_config(
            *(scanned.name, scanned.path, scanned.config_path),
            override=override.config if override is not None else None,
            auto_complete=self._auto_complete,
            host=self._host,
            code_file=scanned.code_file,
            tell=completed.append,
        )
        source = scanned.config_path if override is None else None
        raise_first(locate(problem, source) for problem in agent_problems(config, self._agents))
        raise_first(locate(problem, source) for problem in canary_problems(config))
        canary = configured_canary(config, scanned)
        versions, warnings = self._versions(config, scanned, source, canary)
        files = ClientFiles()
        environment: Environment | EnvironmentSpec = SERVER_ENVIRONMENT
        is_ensemble = config.HasField("ensemble_scheduling")
        try:
            files = self._client_files(config, scanned.path, source)
            if not is_ensemble:
                environment = self._environment(config, scanned, source, override)
        except ZmqTritonError as error:
            versions = {n: VersionBlueprint(v.path, error) for n, v in versions.items()}
        ensemble = _ensemble(config, files, source) if is_ensemble else None
        runtime = None if config.backend == PYTHON else find_runtime(config, self._backends)
        # its code is the model's: a change of it is one of the model
        of_backend = code_fingerprint(runtime.file.parent) if runtime else ""
        expected = expected_slots(config, self._host)
        of_environment = environment.fingerprint if isinstance(environment, EnvironmentSpec) else ""
        blueprint = Blueprint(
            name=scanned.name,
            directory=str(scanned.path.absolute()),
            fingerprint=scanned.fingerprint + of_environment + of_backend,
            environment=environment,
            config=to_json(config),
            first_slot=expected[0],
            other_slots=expected[1:],
            versions=with_fingerprints(versions, config, scanned, environment, of_backend),
            final_config=None
            if ensemble or self._auto_complete
            else _finished_config(config, files),
            finalize_config=partial(_finish, config, self._host, files, source),
            warnings=(*scanned.warnings, *warnings, *ignored_stub_warnings(scanned.path)),
            completed_config_text="".join(completed),
            can_load_in_parallel=os.environ.get("TRITON_PARALLEL_INSTANCE_LOADING") != "0",
            ensemble=ensemble,
            max_load_s=load_timeout_s(config),
            retry_after_s=self._retry_after_s,
            quota=quota_of(config, self._usual_quota),
            autoscale=autoscale_limits_of(config),
            callees=() if ensemble else declared_callees(config),
            backend=runtime and BackendCode(config.backend, *map(str, runtime)),
            backend_settings=json.dumps(self._settings_of_backend(config.backend)),
            configured_groups="ensemble" if ensemble else str(config.instance_group),
            policy_versions=policy_versions(config, scanned.versions),
            version_policy=version_policy(config),
            canary=canary,
        )
        return replace(blueprint, scaled=partial(self._scaled, blueprint, config, files, source))

    def _scaled(
        self,
        blueprint: Blueprint,
        config: Any,
        files: ClientFiles,
        source: Path | None,
        scale: Scale,
    ) -> Blueprint:
        """Return a blueprint with another number of instances."""
        if isinstance(blueprint.environment, Environment) and blueprint.environment.host:
            text = "is run by the process that has bound it, which decides about its instances"
            raise InvalidArgument(f"model '{blueprint.name}' {text}")
        scaled = scaled_config(config, scale)
        expected = expected_slots(scaled, self._host)
        return replace(
            blueprint,
            config=to_json(scaled),
            first_slot=expected[0],
            other_slots=expected[1:],
            final_config=blueprint.final_config and _finished_config(scaled, files),
            finalize_config=partial(_finish, scaled, self._host, files, source),
            scaled=partial(self._scaled, blueprint, config, files, source),
        )

    def _environment(
        self,
        config: Any,
        scanned: ScannedModel,
        source: Path | None,
        override: LoadOverride | None,
    ) -> Environment | EnvironmentSpec:
        check_settings(self._python_settings)
        raise_first(locate(problem, source) for problem in parameter_problems(config))
        if override is not None and override.host is not None:
            return Environment("", host=override.host)
        environment = resolve_environment(
            config,
            scanned.path.absolute(),
            may_build=self._may_build_environments,
            of_backend=find_backend_environment(config, self._backends),
        )
        try:
            return environment._replace(user=chosen_user(config, self._users))
        except ConfigError as error:
            raise locate_error(error, source) from None

    def _client_files(self, config: Any, directory: Path, source: Path | None) -> ClientFiles:
        """Read what clients are told, after the checks that Triton makes when it creates a model.

        With auto-completion some of them come later.
        """
        try:
            check_paths(config, directory)
        except ConfigError as error:
            raise locate_error(error, source) from None
        problems = (*quota_problems(config), *autoscale_problems(config))
        raise_first(locate(problem, source) for problem in problems)
        check_states(config, directory)
        if not self._auto_complete:
            check_runnable(config, self._host, source)
        return read_client_files(config, directory, has_chats=self._has_chats)

    def _versions(
        self,
        config: Any,
        scanned: ScannedModel,
        source: Path | None,
        canary: CanarySettings | None,
    ) -> tuple[dict[int, VersionBlueprint], tuple[str, ...]]:
        try:
            choice = choose_with_canary(config, scanned, canary)
        except ConfigError:
            return {}, ()
        return {
            n: self._version(config, scanned, n, source) for n in choice.versions
        }, choice.warnings

    def _version(
        self, config: Any, scanned: ScannedModel, number: int, source: Path | None
    ) -> VersionBlueprint:
        if config.HasField("ensemble_scheduling"):
            return VersionBlueprint("")
        if scanned.code_file is not None:
            return VersionBlueprint(str(scanned.code_file))
        try:
            file = find_model_file(config, scanned.path.absolute(), number, self._backends)
        except ConfigError as error:
            return VersionBlueprint("", locate_error(error, source))
        except ZmqTritonError as error:
            return VersionBlueprint("", error)
        return VersionBlueprint(str(file))


def _finished_config(config: Any, files: ClientFiles) -> FinalConfig:
    slots = instance_slots(config)
    return FinalConfig(to_json(config), config.SerializeToString(), slots, *files)


def _finish(
    config: Any, host: Host, files: ClientFiles, source: Path | None, reply: str
) -> FinalConfig:
    return _finished_config(merge_completion(config, reply, host=host, path=source), files)


def _ensemble(config: Any, files: ClientFiles, source: Path | None) -> EnsembleBlueprint:
    return EnsembleBlueprint(
        tuple(member_steps(config)),
        partial(_finish_ensemble, config, files, source),
        config.ensemble_scheduling.max_inflight_requests,
        partial(_refuse_step, source),
    )


def _refuse_step(source: Path | None, index: int, text: str) -> ConfigError:
    field = ("ensemble_scheduling", "step", index, "model_name")
    return ConfigError(locate(Problem(text, field), source))


def _finish_ensemble(
    config: Any, files: ClientFiles, source: Path | None, members: Mapping[str, FinalConfig]
) -> FinalConfig:
    protos = {name: one.proto for name, one in members.items()}
    complete = complete_ensemble(config, protos, path=source)
    member_labels = {name: one.labels for name, one in members.items()}
    labels = inherit_labels(config, files.labels, member_labels)
    return _finished_config(complete, files._replace(labels=labels))
