"""Scans models: those in directories, with names, versions and changes, and those in single files.

Runs at start, at each poll and at each load; reads names, sizes and times, never a file's content.
It does not log: messages for the operator are returned as `warnings`. Whether a model can be loaded
is decided later, from its configuration.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from zmqtriton.config.errors import ConfigError, Problem
from zmqtriton.config.files import resolves_inside, special_file_text
from zmqtriton.repository.file_state import file_state
from zmqtriton_floor.errors import InternalError, InvalidArgument, NotFound, closest_match
from zmqtriton_floor.reasons import Kind, Reason

CONFIG_FILE = "config.pbtxt"
CONFIG_FOLDER = "configs"
#: Directory at the root of an ext4 file system, such as a volume of Kubernetes. A repair of the
#: file system puts its findings there.
LOST_AND_FOUND = "lost+found"
_MODEL_FILE = "model.py"
#: Directories of a model that belong to it without being a version.
DATA_FOLDERS = ("warmup", "initial_state")

#: The index entry's reason for a name that two repositories use.
DUPLICATE = Reason.of(Kind.DUPLICATE, "model appears in two or more repositories")

#: Entries of a directory that is an environment, of venv or of conda.
_ENVIRONMENT_MARKS = ("pyvenv.cfg", "conda-meta")

_DIGITS = re.compile(r"[0-9]+")
_MAX_VERSION = 2**63 - 1
#: Number of the only version of a model that is one file.
VERSION = 1


class Promotion(NamedTuple):
    """A version that was tried, and serves."""

    version: int
    #: The fingerprint of its files: changed ones are new.
    contents: str
    #: The version policy at that time; any other policy is newer than the promotion.
    policy: str = ""


class VersionSelection(NamedTuple):
    """Exceptions from the version policy, for versions that are tried."""

    #: Versions that serve while one is tried: it, and the one beside it. No other begins meanwhile.
    kept: frozenset[int] = frozenset()
    #: Versions that are left out unless no other is there, with the fingerprints of their files:
    #: changed ones are new.
    rejected: tuple[tuple[int, str], ...] = ()
    #: Versions that were tried, and serve.
    promoted: tuple[Promotion, ...] = ()

    def available(self, fingerprints: Mapping[int, str]) -> tuple[int, ...]:
        """Return the versions that the policy may choose from."""
        left_out = {n for n, contents in self.rejected if fingerprints.get(n) == contents}
        return tuple(sorted(fingerprints.keys() - left_out or fingerprints))


#: Selection by the policy alone.
NO_EXCEPTIONS = VersionSelection()


@dataclass(frozen=True)
class ScannedModel:
    """One model directory. `problem` is why it cannot be loaded at all, or ""."""

    name: str
    path: Path
    repository: Path
    config_path: Path | None
    versions: tuple[int, ...]
    fingerprint: str
    warnings: tuple[str, ...] = ()
    problem: str = ""
    #: Fingerprints by version. Each covers the version's files and those shared by all, but not the
    #: configuration.
    version_fingerprints: Mapping[int, str] = field(default_factory=dict)
    selection: VersionSelection = NO_EXCEPTIONS
    #: The only file of a model that has no directories of versions.
    code_file: Path | None = None


@dataclass(frozen=True)
class VersionChoice:
    """The versions that the policy selects, ascending."""

    versions: tuple[int, ...]
    warnings: tuple[str, ...] = ()


def scan_repositories(
    repositories: Sequence[Path], config_name: str = ""
) -> dict[str, ScannedModel]:
    """Return all model directories in the order of their names.

    A name in several repositories is one entry, that of the first, with its `problem` set.
    """
    models: dict[str, ScannedModel] = {}
    for repository in repositories:
        for path in subdirectories(repository):
            try:
                model = scan_model(path, repository, config_name)
            except InternalError as error:  # the others serve
                text = error.text
                model = ScannedModel(path.name, path, repository, None, (), "", problem=text)
            if model.name not in models:
                models[model.name] = model
            elif models[model.name].path.resolve() != path.resolve():
                models[model.name] = replace(
                    models[model.name],
                    problem=not_unique_text(model.name),
                )
    return dict(sorted(models.items()))


def not_unique_text(name: str) -> str:
    """Return why a model that two repositories have cannot be loaded."""
    return f"failed to poll model '{name}': not unique across all model repositories"


def not_found_text(name: str) -> str:
    """Return why a model that no repository has cannot be loaded."""
    return f"failed to poll model '{name}': model not found in any model repository."


def not_unique(name: str) -> InternalError:
    """Return the error for a model that is in two repositories."""
    return InternalError(not_unique_text(name)).because(Kind.DUPLICATE)


def not_found(name: str, names: Iterable[str]) -> NotFound:
    """Return the error for a model that no repository has, with the probably meant name."""
    meant = closest_match(name, names)
    text = not_found_text(name) + (f" Did you mean '{meant}'?" if meant else "")
    return NotFound(text).because(Kind.NOT_FOUND, model=name, suggestion=meant)


def scan_model(path: Path, repository: Path, config_name: str = "") -> ScannedModel:
    """Scan a model's directory as it is now. Raises InternalError if it vanishes meanwhile."""
    warnings: list[str] = []
    versions = find_versions(path, repository, warnings)
    config_path = find_config(path, config_name)
    if config_path is None:
        warnings += misnamed_config_warnings(path)
    return ScannedModel(
        name=path.name,
        path=path,
        repository=repository,
        config_path=config_path,
        versions=tuple(sorted(versions)),
        fingerprint=_fingerprint(path, config_path, versions.values()),
        warnings=tuple(warnings),
        version_fingerprints=_version_fingerprints(path, config_path, versions),
    )


def find_config(model_dir: Path, config_name: str = "") -> Path | None:
    """Return `configs/<name>.pbtxt` if that is asked for and exists, else config.pbtxt or None."""
    if config_name:
        if "/" in config_name or "\0" in config_name:
            raise InvalidArgument(f"invalid model config name '{config_name}'")
        custom = model_dir / CONFIG_FOLDER / f"{config_name}.pbtxt"
        if custom.is_file():
            return custom
    path = model_dir / CONFIG_FILE
    return path if path.is_file() else None


def misnamed_config_warnings(model_dir: Path) -> list[str]:
    """Return a warning of each file that was probably meant to be the configuration."""
    with os.scandir(model_dir) as entries:
        names = [entry.name for entry in entries if entry.name != CONFIG_FILE]
    matches = difflib.get_close_matches(CONFIG_FILE, {name.lower() for name in names}, 3, 0.8)
    return [
        f"'{model_dir / name}' is not read; did you mean '{CONFIG_FILE}'?"
        for name in names
        if name.lower() in matches
    ]


def choose_versions(config: Any, present: Iterable[int]) -> VersionChoice:
    """Apply the version policy; it is an error if no version is left."""
    policy = config.version_policy
    available = set(present)
    warnings: list[str] = []
    if policy.HasField("specific"):
        numbers = set(policy.specific.versions)
        warnings = [
            f"version {version} is specified for model '{config.name}', but the version directory "
            "is not present"
            for version in sorted(numbers - available)
        ]
        chosen = numbers & available
    elif policy.HasField("latest"):
        chosen = set(sorted(available, reverse=True)[: policy.latest.num_versions])
    else:
        chosen = available
    if not chosen:
        raise ConfigError(Problem(no_version_text(config.name), kind=Kind.NO_VERSION))
    return VersionChoice(tuple(sorted(chosen)), tuple(warnings))


def no_version_text(name: str) -> str:
    """Return the error text for a model without a version to serve."""
    return (
        f"at least one version must be available under the version policy of model '{name}'. "
        f"A version is a directory such as {name}/1, and version_policy may leave it out"
    )


def subdirectories(path: Path) -> list[Path]:
    """Return directories by name, without those of tools (.git), mounts (..data), file systems."""
    return [path / entry.name for entry in _list_directories(path)]


def list_places(path: Path) -> dict[str, str]:
    """Return the path of each directory by its name, links followed. Raises InternalError."""
    here = os.path.realpath(path)
    return {
        entry.name: os.path.realpath(entry.path)
        if entry.is_symlink()
        else os.path.join(here, entry.name)
        for entry in _list_directories(path)
    }


def _list_directories(path: Path) -> list[os.DirEntry[str]]:
    """Return the entries of directories by name, without ignored ones.

    Most file systems say in the listing what is a directory.
    """
    try:
        with os.scandir(path) as entries:
            inside = sorted((e for e in entries if not _is_ignored(e.name)), key=lambda e: e.name)
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            is_home = str(path).startswith("~")
            hint = "no shell has made a home of the ~" if is_home else "there is no such directory"
            raise InternalError(f"failed to stat file {path}: {hint}") from error
        raise InternalError(f"failed to open directory {path}: {error.strerror}") from error
    return [entry for entry in inside if _is_directory(entry)]


def _is_ignored(name: str) -> bool:
    is_tools = name.startswith(".") or name in ("__pycache__", LOST_AND_FOUND)
    return is_tools or not is_utf8_name(name)


def is_utf8_name(name: str) -> bool:
    """True if the name can be sent to clients: on disk it is bytes, perhaps not UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def find_versions(path: Path, repository: Path, warnings: list[str]) -> dict[int, Path]:
    """Return the version directories by number; warn about the others."""
    versions: dict[int, Path] = {}
    for directory in subdirectories(path):
        name = directory.name
        if name in DATA_FOLDERS or name == CONFIG_FOLDER:
            continue
        is_number = _DIGITS.fullmatch(name) is not None
        if is_number and len(name) > 1 and name.startswith("0"):
            warnings.append(
                f"ignore version directory '{name}' which contains leading zeros in its "
                "directory name"
            )
        elif not is_number or int(name) > _MAX_VERSION:
            warnings.append(
                f"ignore version directory '{name}' which fails to convert to integral number"
            )
        elif not resolves_inside(directory, path, repository):
            warnings.append(
                f"ignore version directory '{name}' which leads outside the model repository"
            )
        else:
            versions[int(name)] = directory
    if not versions and (path / _MODEL_FILE).is_file():
        warnings.append(
            f"'{path / _MODEL_FILE}' must lie in the directory of a version: "
            f"'{path / '1' / _MODEL_FILE}'"
        )
    return versions


def unnamed_directories(repository: Path) -> list[str]:
    """Return a warning of each directory that no client could name."""
    try:
        names = os.listdir(repository)
    except OSError:
        return []  # the listing of the models reports that
    return [
        f"{os.fsencode(repository / name)!r} is left out: its name is not UTF-8"
        for name in sorted(names)
        if not is_utf8_name(name) and (repository / name).is_dir()
    ]


def repository_hint(repository: Path) -> str:
    """Return the probable meaning of a directory without models, or "". Raises InternalError."""
    inside = subdirectories(repository)
    if is_model_directory(repository, inside):
        return (
            f"'{repository}' looks like a model, not like a directory of models; "
            f"did you mean --model-repository={repository.absolute().parent}?"
        )
    return "" if inside else no_model_text(repository)


def no_model_text(repository: Path) -> str:
    return f"there is no model in '{repository}'"


def is_model_directory(directory: Path, inside: Sequence[Path] | None = None) -> bool:
    """True for a model, False for a repository.

    A model may be called 1, and a version has no versions.
    """
    return (
        os.path.lexists(directory / CONFIG_FILE)
        or (directory / CONFIG_FOLDER).is_dir()
        or (directory / _MODEL_FILE).is_file()
        or any(
            path.name.isdecimal() and not _has_versions(path)
            for path in (subdirectories(directory) if inside is None else inside)
        )
    )


def _has_versions(path: Path) -> bool:
    if os.path.lexists(path / CONFIG_FILE):
        return True
    try:
        return any(inner.name.isdecimal() for inner in subdirectories(path))
    except InternalError:
        return False


def _fingerprint(path: Path, config_path: Path | None, versions: Iterable[Path]) -> str:
    """Return a fingerprint that changes when a file of the model does.

    Directories themselves are left out, because importing a model creates __pycache__ in one. Of
    other subdirectories only the name counts: an environment has tens of thousands of files.
    """
    digest = hashlib.blake2b(digest_size=16)
    roots = [path / folder for folder in DATA_FOLDERS] + sorted(versions)
    if config_path is not None:
        digest.update(f"config {config_path}\n".encode(errors="surrogateescape"))
        if config_path.parent != path:
            digest.update(entry_fingerprint(config_path, path))
    for directory in subdirectories(path):
        digest.update(f"{directory.name}\n".encode(errors="surrogateescape"))
    own = list_files(path, recursive=False)
    for file in chain(own, *(list_files(root, recursive=True) for root in roots)):
        digest.update(entry_fingerprint(file, path))
    return digest.hexdigest()


def _version_fingerprints(
    path: Path, config_path: Path | None, versions: Mapping[int, Path]
) -> dict[int, str]:
    """Return fingerprints of what each version loads, except for the configuration."""
    shared = hashlib.blake2b(f"{path}\n".encode(errors="surrogateescape"), digest_size=16)
    for file in _shared_files(path, config_path):
        shared.update(entry_fingerprint(file, path))
    contents = {}
    for number, directory in versions.items():
        digest = shared.copy()
        for file in list_files(directory, recursive=True):
            digest.update(entry_fingerprint(file, path))
        contents[number] = digest.hexdigest()
    return contents


def version_files(path: Path, config_path: Path | None, version: int) -> Iterator[Path]:
    """Return the files that a version loads, except for the configuration."""
    yield from _shared_files(path, config_path)
    yield from list_files(path / str(version), recursive=True)


def _shared_files(path: Path, config_path: Path | None) -> Iterator[Path]:
    """Return the files of all versions."""
    yield from (file for file in list_files(path, recursive=False) if file != config_path)
    for folder in DATA_FOLDERS:
        yield from list_files(path / folder, recursive=True)


def code_fingerprint(directory: Path) -> str:
    """Return a fingerprint that changes when a file of a backend's folder does.

    Environments in it are left out, since they have tens of thousands of files.
    """
    files = list_files(
        directory,
        recursive=True,
        skips=lambda path: any(os.path.exists(f"{path}/{mark}") for mark in _ENVIRONMENT_MARKS),
    )
    return _fingerprint_of(directory, files)


def list_files(
    directory: Path, *, recursive: bool, skips: Callable[[str], bool] = lambda path: False
) -> Iterator[Path]:
    """Return the files in order of their names.

    Linked directories may form circles and are skipped.

    Not by os.walk, which recurses for each level, and a tree may have thousands.
    """
    waiting = [os.fspath(directory)]
    while waiting:
        inner = []
        for entry in _sorted_entries(waiting.pop()):
            if _is_directory(entry):
                inner.append(entry.path)
            else:
                yield Path(entry.path)
        if recursive:
            waiting += [p for p in reversed(inner) if not (os.path.islink(p) or skips(p))]


def _sorted_entries(directory: str) -> list[os.DirEntry[str]]:
    """Return entries by name; none of a directory that was removed or may not be read."""
    try:
        with os.scandir(directory) as entries:
            return sorted((e for e in entries if not _is_ignored(e.name)), key=lambda e: e.name)
    except OSError:
        return []


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # a link that leads to itself, or a name that may not be looked at


def entry_fingerprint(file: Path, base: Path) -> bytes:
    try:
        state = file_state(file.stat())
    except OSError:
        # deleted since it was listed, or a link to nowhere: that is its state
        state = "gone"
    return f"{file.relative_to(base)} {state}\n".encode(errors="surrogateescape")


def scan_single_file(name: str, file: Path, config_name: str = "") -> ScannedModel:
    """Scan a file and the files beside it as they are now. Raises InternalError.

    What the directory of a model would have may lie beside it: a configuration, other modules,
    data.
    """
    if not file.is_file():
        special = special_file_text(file)
        error = InternalError(special or f"Python model file not found in '{file}'")
        kind = Kind.FILE_SPECIAL if special else Kind.FILE_MISSING
        raise error.because(kind, path=str(file))
    directory = file.parent
    config_path = find_config(directory, config_name)
    code = _fingerprint_of(directory, [file, *_files_beside(directory, config_path)])
    return ScannedModel(
        name=name,
        path=directory,
        repository=directory,
        config_path=config_path,
        versions=(VERSION,),
        fingerprint=f"{code} {_fingerprint_of(directory, [config_path] if config_path else [])}",
        warnings=() if config_path else tuple(misnamed_config_warnings(directory)),
        version_fingerprints={VERSION: code},
        code_file=file,
    )


def _files_beside(directory: Path, config_path: Path | None) -> Iterator[Path]:
    """Return the modules and packages that the file may import, and the data of its configuration.

    Nothing else: the directory may be a user's home, where each moment a log grows.
    """
    yield from _modules(list_files(directory, recursive=False))
    for inner in subdirectories(directory):
        if (inner / "__init__.py").is_file():
            yield from _modules(list_files(inner, recursive=True))
        elif config_path is not None and inner.name in DATA_FOLDERS:
            yield from list_files(inner, recursive=True)


def _modules(files: Iterator[Path]) -> Iterator[Path]:
    return (file for file in files if file.suffix == ".py")


def _fingerprint_of(directory: Path, files: Iterable[Path]) -> str:
    digest = hashlib.blake2b(os.fsencode(directory), digest_size=16)
    for file in files:
        digest.update(entry_fingerprint(file, directory))
    return digest.hexdigest()


class ModelPlace(NamedTuple):
    """The files of a model, before they are looked at."""

    directory: Path
    repository: Path
    #: The model, if it is this file alone.
    code_file: Path | None = None

    def scan(self, name: str, config_name: str = "") -> ScannedModel:
        """Scan the model as it is now. Raises if it vanishes meanwhile."""
        if self.code_file is not None:
            return scan_single_file(name, self.code_file, config_name)
        return scan_model(self.directory, self.repository, config_name)


def place_of_file(file: Path) -> ModelPlace:
    return ModelPlace(file.parent, file.parent, file)
