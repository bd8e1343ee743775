"""Reads models from disk into blueprints.

Runs in a reader (`reader.py`), since any file system may be slow. Does I/O on small
files only. An error in a model becomes a ReadFailure or the problem of a version, never an
exception. A version has the fingerprints of the files that make it load anew if they change.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import zmqtriton_floor
from zmqtriton.config import known_parameters
from zmqtriton.config.backends import (
    PYTHON,
    backend_places,
    find_backend_environment,
    find_model_file,
    find_runtime,
)
from zmqtriton.config.ensembles import member_steps
from zmqtriton.config.errors import ConfigError, raise_first
from zmqtriton.config.files import (
    ClientFiles,
    check_paths,
    client_files,
    read_client_files,
)
from zmqtriton.config.model_config import ModelHost, check_runnable, load_config, source_of
from zmqtriton.config.parameters import (
    MODEL_SOURCE,
    Quota,
    chosen_user,
    declared_callees,
    load_timeout_s,
    parameter_problems,
    quota_of,
    quota_problems,
)
from zmqtriton.config.pbtxt import to_json
from zmqtriton.config.positions import locate, locate_error
from zmqtriton.config.states import check_states
from zmqtriton.environments.demand import (
    SERVER_ENVIRONMENT,
    Environment,
    EnvironmentSpec,
    ignored_stub_warnings,
    resolve_environment,
)
from zmqtriton.options import Options
from zmqtriton.reading.blueprint import (
    BackendCode,
    Blueprint,
    EnsembleBlueprint,
    FileSource,
    LoadOverride,
    ReadFailure,
    VersionBlueprint,
)
from zmqtriton.reading.blueprints import finish_reading, finished_config
from zmqtriton.reading.instance_slots import are_instances_bound, choose_kind, expected_slots
from zmqtriton.reading.plain import ModelReading, SourceText
from zmqtriton.reading.python_settings import check_settings
from zmqtriton.repository.agents import agent_problems
from zmqtriton.repository.decisions import (
    KeepDecisions,
    TriedVersions,
    choose_with_trial,
    configured_trial,
    policy_versions,
    version_policy,
)
from zmqtriton.repository.scan import (
    NO_EXCEPTIONS,
    ModelPlace,
    ScannedModel,
    VersionSelection,
    code_fingerprint,
)
from zmqtriton_floor.errors import InternalError, Unsupported, ZmqTritonError

#: Directory of the stub's package, next to the floor's. It is started by path, never imported.
STUB_DIRECTORY = Path(zmqtriton_floor.__file__).parent.parent / "zmqtriton_stub"
#: Fields that only decide which versions serve, and with how many instances.
_ONLY_INSTANCES = ("instance_group", "version_policy")


def with_fingerprints(
    versions: Mapping[int, VersionBlueprint],
    config: Any,
    scanned: ScannedModel,
    runs_in: tuple[object, ...],
    of_backend: str,
) -> dict[int, VersionBlueprint]:
    """Return the versions with the fingerprints of their contents.

    `runs_in` is the environment, and the kind of instances.
    """
    return {
        number: _of_changes(
            replace(version, contents=scanned.version_fingerprints[number]),
            config,
            runs_in,
            of_backend,
        )
        for number, version in versions.items()
    }


def _of_changes(
    version: VersionBlueprint,
    config: Any,
    runs_in: tuple[object, ...],
    of_backend: str,
) -> VersionBlueprint:
    """Return the version with fingerprints for changes that need no new generation.

    It has none if a change of instances affects requests: a sequence belongs to an instance, and a
    rate limiter counts instances. Nor may the response cache hold responses of replaced code.
    """
    if are_instances_bound(config):
        return version
    rest = type(config)()
    rest.CopyFrom(config)
    for member in _ONLY_INSTANCES:
        rest.ClearField(member)
    for name in known_parameters.trial_parameters():
        rest.parameters.pop(name, None)
    return replace(
        version,
        fingerprint_without_instances=_fingerprint(rest, version.contents + of_backend, runs_in),
        fingerprint_without_code=""
        if config.response_cache.enable
        else _fingerprint(config, runs_in),
    )


def _fingerprint(config: Any, *more: object) -> str:
    digest = hashlib.blake2b(config.SerializeToString(deterministic=True), digest_size=16)
    for part in more:
        digest.update(f"{part}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


class ModelReader:
    """Reads the models of one server, each from the place that it is given."""

    def __init__(self, options: Options, gpus: Sequence[int] = ()) -> None:
        self._options = options
        self._config_name = options.model_config_name
        self._auto_complete = not options.strict_model_config
        self._files = client_files(options.value)
        self._host = host_of(options, gpus)
        self._backends = backend_places(options.backend_directory)
        self._tried_versions = TriedVersions(options.state_directory)
        self._usual_quota = Quota(
            max_segment_bytes=options.max_model_segment_bytes,
            max_memory_bytes=options.max_model_memory_bytes,
        )

    def keep_decisions(self, action: KeepDecisions, places: Sequence[ModelPlace]) -> str:
        """Keep and forget decisions about versions; return why that is impossible, or "".

        The model is in the only one of the places, or else in the action's directory.
        """
        directory = Path(action.directory)
        place = places[0] if len(places) == 1 else ModelPlace(directory, directory.parent)
        try:
            scanned = replace(place.scan(action.model, self._config_name), name=action.model)
        except (ZmqTritonError, OSError) as error:
            return str(error)
        return self._tried_versions.keep(scanned, action.decisions, action.undecided)

    def fingerprint(self, name: str, place: ModelPlace) -> str:
        """Return a text that changes with the files of a model."""
        try:
            return place.scan(name, self._config_name).fingerprint
        except (ZmqTritonError, OSError) as error:
            return f"unreadable: {error}"

    def read(
        self,
        name: str,
        place: ModelPlace,
        override: LoadOverride | None = None,
        selection: VersionSelection = NO_EXCEPTIONS,
        fingerprint: str = "",
    ) -> ModelReading | ReadFailure:
        """Read a model as a load would build it now.

        A copy of a store comes with the fingerprint of its content. For a model that has files in a
        store, returns a failure with their source.
        """
        copy_fingerprint, fingerprint = fingerprint, fingerprint or "unreadable"
        try:
            scanned = replace(place.scan(name, self._config_name), name=name)
            fingerprint = copy_fingerprint or scanned.fingerprint
            source = None if copy_fingerprint else _source(scanned, override)
            if source is not None:
                text = f"{MODEL_SOURCE} needs the add-on 'storage', which is not installed"
                return ReadFailure(Unsupported(text).reason, fingerprint, source=source)
            scanned = replace(scanned, fingerprint=fingerprint, selection=selection)
            if override is None or not override.directory:
                scanned = self._tried_versions.with_decisions(scanned)
            return finish_reading(self._reading(scanned, override), self._host)
        except ZmqTritonError as error:
            return ReadFailure(error.reason, fingerprint)
        except OSError as error:
            return ReadFailure(InternalError(str(error)).reason, fingerprint)

    def _reading(self, scanned: ScannedModel, override: LoadOverride | None) -> ModelReading:
        completed: list[str] = []
        config = self._config(scanned, override, completed.append)
        source = scanned.config_path if override is None else None
        raise_first(
            locate(problem, source)
            for problem in (
                *agent_problems(config, self._options.repoagent_directory),
                *known_parameters.problems(config, known_parameters.TRIAL.name),
            )
        )
        trial = configured_trial(config, scanned)
        versions, warnings = self._versions(config, scanned, source, trial)
        files = ClientFiles()
        environment: Environment | EnvironmentSpec = SERVER_ENVIRONMENT
        is_ensemble = config.HasField("ensemble_scheduling")
        try:
            files = self._client_files(config, scanned.path, source)
            if not is_ensemble:
                environment = self._environment(config, scanned, source, override)
        except ZmqTritonError as error:
            versions = {n: VersionBlueprint(v.path, error) for n, v in versions.items()}
        ensemble = _ensemble(config) if is_ensemble else None
        runtime = None if config.backend == PYTHON else find_runtime(config, self._backends)
        # its code is the model's: a change of it is one of the model
        of_backend = code_fingerprint(runtime.file.parent) if runtime else ""
        expected = expected_slots(config, self._host)
        of_environment = environment.fingerprint if isinstance(environment, EnvironmentSpec) else ""
        kind, why_no_adopt = choose_kind(config, len(expected), [v.path for v in versions.values()])
        blueprint = Blueprint(
            name=scanned.name,
            directory=str(scanned.path.absolute()),
            fingerprint=scanned.fingerprint + of_environment + of_backend,
            environment=environment,
            config=to_json(config),
            first_slot=expected[0],
            other_slots=expected[1:],
            versions=with_fingerprints(versions, config, scanned, (*environment, kind), of_backend),
            final_config=None
            if ensemble or self._auto_complete
            else finished_config(config, files),
            warnings=(*scanned.warnings, *warnings, *ignored_stub_warnings(scanned.path)),
            completed_config_text="".join(completed),
            can_load_in_parallel=os.environ.get("TRITON_PARALLEL_INSTANCE_LOADING") != "0",
            ensemble=ensemble,
            max_load_s=load_timeout_s(config),
            instances=kind,
            why_no_adopt=why_no_adopt,
            retry_after_s=self._options.instance_retry_secs,
            quota=quota_of(config, self._usual_quota),
            add_on_settings=known_parameters.read(config),
            callees=() if ensemble else declared_callees(config),
            backend=runtime and BackendCode(config.backend, *map(str, runtime)),
            backend_settings=json.dumps(self._options.backend_command_line(config.backend)),
            configured_groups="ensemble" if ensemble else str(config.instance_group),
            policy_versions=policy_versions(config, scanned.versions),
            version_policy=version_policy(config),
            trial=trial,
        )
        return ModelReading(blueprint, config.SerializeToString(), files, _source_text(source))

    def _config(
        self, scanned: ScannedModel, override: LoadOverride | None, tell: Callable[[str], None]
    ) -> Any:
        return load_config(
            scanned.name,
            scanned.path,
            scanned.config_path,
            override=override.config if override is not None else None,
            auto_complete=self._auto_complete,
            host=self._host,
            code_file=scanned.code_file,
            tell=tell,
        )

    def _environment(
        self,
        config: Any,
        scanned: ScannedModel,
        source: Path | None,
        override: LoadOverride | None,
    ) -> Environment | EnvironmentSpec:
        check_settings(self._options.backend_settings("python"))
        raise_first(locate(problem, source) for problem in parameter_problems(config))
        if override is not None and override.host is not None:
            return Environment("", host=override.host)
        environment = resolve_environment(
            config,
            scanned.path.absolute(),
            may_build=self._options.build_environments,
            of_backend=find_backend_environment(config, self._backends),
        )
        try:
            return environment._replace(user=chosen_user(config, self._options.stub_user))
        except ConfigError as error:
            raise locate_error(error, source) from None

    def _client_files(self, config: Any, directory: Path, source: Path | None) -> ClientFiles:
        """Read the files that responses need, after Triton's checks at a model's creation.

        With auto-completion some checks are made later.
        """
        try:
            check_paths(config, directory)
        except ConfigError as error:
            raise locate_error(error, source) from None
        raise_first(
            locate(problem, source)
            for problem in (*quota_problems(config), *known_parameters.problems(config))
        )
        check_states(config, directory)
        if not self._auto_complete:
            check_runnable(config, self._host, source)
        return read_client_files(config, directory, self._files)

    def _versions(
        self,
        config: Any,
        scanned: ScannedModel,
        source: Path | None,
        trial: Any,
    ) -> tuple[dict[int, VersionBlueprint], tuple[str, ...]]:
        try:
            choice = choose_with_trial(config, scanned, trial)
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
        if scanned.code_file is not None and config.backend == PYTHON:
            return VersionBlueprint(str(scanned.code_file))
        try:
            file = find_model_file(config, scanned.path.absolute(), number, self._backends).file
        except ConfigError as error:
            return VersionBlueprint("", locate_error(error, source))
        except ZmqTritonError as error:
            return VersionBlueprint("", error)
        return VersionBlueprint(str(file))


def host_of(options: Options, gpus: Sequence[int]) -> ModelHost:
    """Return the facts of the machine that configurations of models depend on."""
    return ModelHost(gpus, options.min_supported_compute_capability)


def _source(scanned: ScannedModel, override: LoadOverride | None) -> FileSource | None:
    """Return the store with the model's other files. Raises ConfigError and Unsupported."""
    url = source_of(scanned.config_path, override and override.config)
    if not url:
        return None
    if scanned.code_file is not None or (override is not None and override.directory):
        raise Unsupported(
            f"{MODEL_SOURCE} needs a model with a directory in a repository; remove it"
        )
    return FileSource(url, str(scanned.path.absolute()), scanned.fingerprint)


def _ensemble(config: Any) -> EnsembleBlueprint:
    steps, limit = member_steps(config), config.ensemble_scheduling.max_inflight_requests
    return EnsembleBlueprint(tuple(steps), max_inflight_requests=limit)


def _source_text(path: Path | None) -> SourceText | None:
    if path is None:
        return None
    try:
        return SourceText(str(path), path.read_text("utf-8", "replace"))
    except OSError:
        return None  # it has gone meanwhile: errors name no line
