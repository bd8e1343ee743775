"""The place of a model: its directory in a repository, or a single file."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from zmqtriton.repository.scan import (
    DATA_FOLDERS,
    ScannedModel,
    entry_fingerprint,
    find_config,
    list_files,
    misnamed_config_warnings,
    scan_model,
    subdirectories,
)
from zmqtriton_floor.errors import InternalError
from zmqtriton_floor.reasons import Kind

#: The version that the file is.
VERSION = 1


def scan_single_file(name: str, file: Path, config_name: str = "") -> ScannedModel:
    """Scan a file and the files beside it as they are now. Raises InternalError.

    What the directory of a model would have may lie beside it: a configuration, other modules,
    data.
    """
    if not file.is_file():
        error = InternalError(f"Python model file not found in '{file}'")
        raise error.because(Kind.FILE_MISSING, path=str(file))
    directory = file.parent
    config_path = find_config(directory, config_name)
    code = _fingerprint(directory, [file, *_files_beside(directory, config_path)])
    return ScannedModel(
        name=name,
        path=directory,
        repository=directory,
        config_path=config_path,
        versions=(VERSION,),
        fingerprint=f"{code} {_fingerprint(directory, [config_path] if config_path else [])}",
        warnings=() if config_path else tuple(misnamed_config_warnings(directory)),
        version_fingerprints={VERSION: code},
        code_file=file,
    )


def _files_beside(directory: Path, config_path: Path | None) -> Iterator[Path]:
    """Return the modules and packages that the file may import, and the data of its configuration.

    Nothing else: it may be somebody's home, where each moment a log grows.
    """
    yield from _modules(list_files(directory, recursive=False))
    for inner in subdirectories(directory):
        if (inner / "__init__.py").is_file():
            yield from _modules(list_files(inner, recursive=True))
        elif config_path is not None and inner.name in DATA_FOLDERS:
            yield from list_files(inner, recursive=True)


def _modules(files: Iterator[Path]) -> Iterator[Path]:
    return (file for file in files if file.suffix == ".py")


def _fingerprint(directory: Path, files: list[Path]) -> str:
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
