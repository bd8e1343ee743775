"""A reader: a process that does one task after the other, and answers each.

Whatever touches the files of models is a task, with plain arguments. The process is a copy of the
supervisor without its descriptors. It shows no output: an error is an answer. Files that a stub of
another user has staged for a load, or that another server has, become files of this server first.
"""

from __future__ import annotations

import gc
import os
import shutil
import stat
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from zmqtriton.config.backends import models_in
from zmqtriton.reading.blueprint import LoadOverride, ReadFailure
from zmqtriton.reading.model_reading import ModelReader
from zmqtriton.reading.plain import FoundModel, ModelReading, dumps, loads
from zmqtriton.repository.decisions import KeepDecisions
from zmqtriton.repository.scan import (
    LOST_AND_FOUND,
    ModelPlace,
    VersionSelection,
    list_places,
    place_of_file,
    repository_hint,
    unnamed_directories,
)
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InternalError, InvalidArgument, ZmqTritonError
from zmqtriton_floor.lifeline import Lifeline


class ReaderTasks:
    """The tasks of a reader, which find and read models.

    The place of a model is its folder and its repository, or one file. A repository is a directory
    of models, or a Python file that has several.
    """

    def __init__(self, reader: ModelReader) -> None:
        self._reader = reader
        self.by_name: Mapping[str, Callable[..., Any]] = {
            task.__name__: task
            for task in (
                self.find_model,
                self.read_model,
                self.list_models,
                self.fingerprints,
                self.keep_decisions,
                self.check_directory,
                self.hint,
                self.remove_directory,
            )
        }

    def find_model(
        self,
        name: str,
        place: tuple[str, str],
        override: LoadOverride | None,
        selection: VersionSelection,
    ) -> FoundModel | None:
        """Read a model, if it is there."""
        where = _existing(place)
        if where is None:
            return None
        return FoundModel(_identity(where), self._reader.read(name, where, override, selection))

    def read_model(
        self,
        name: str,
        directory: str,
        override: LoadOverride | None,
        selection: VersionSelection,
        fingerprint: str,
    ) -> ModelReading | ReadFailure:
        """Read a model from a directory that the caller has filled."""
        path = Path(directory)
        if override is not None and override.source:
            _copy_files(Path(override.source), path)
        if override is not None and override.directory:
            _take_over(path)
        return self._reader.read(
            name, ModelPlace(path, path.parent), override, selection, fingerprint
        )

    def list_models(self, repository: str) -> dict[str, str] | None:
        """Return the real path of each model by its folder, or of the file that has it.

        None for a file that shows no models now: it may be half written. Raises InternalError.
        """
        path = Path(repository)
        if not path.is_file():
            return list_places(path)
        return dict.fromkeys(models_in(path)[1], repository) or None

    def fingerprints(
        self, places: Mapping[str, tuple[str, str]]
    ) -> tuple[dict[str, tuple[str, str]], float]:
        """Return the real path and fingerprint of each of these models, and the seconds taken."""
        began_s, seen = time.monotonic(), {}
        for name, place in places.items():
            where = _existing(place)
            if where is not None:
                seen[name] = (_identity(where), self._reader.fingerprint(name, where))
        return seen, time.monotonic() - began_s

    def keep_decisions(self, action: KeepDecisions, places: Sequence[tuple[str, str]]) -> str:
        """Keep and forget decisions about a model's versions; return why not, or ""."""
        different = {_identity(place): place for place in filter(None, map(_existing, places))}
        return self._reader.keep_decisions(action, list(different.values()))

    def check_directory(self, path: str) -> None:
        """Refuse a path to register that leads to no directory. Raises InvalidArgument."""
        if not os.path.isdir(path):
            raise InvalidArgument(f"failed to register '{path}', repository not found")

    def hint(self, repository: str) -> list[str]:
        """Return warnings about a repository itself, as far as it can be read."""
        path, hints = Path(repository), []
        if os.path.isdir(path / LOST_AND_FOUND):
            hints.append(f"'{path / LOST_AND_FOUND}' is left out: it is a file system's")
        hints += unnamed_directories(path)
        with suppress(InternalError):  # the start reports that
            hints.append(repository_hint(path))
        return [text for text in hints if text]

    def remove_directory(self, path: str) -> None:
        shutil.rmtree(path, ignore_errors=True)


def _existing(place: tuple[str, str]) -> ModelPlace | None:
    """Return the place if it has a model; any single file counts as a model."""
    path, repository = place
    if not repository:
        return place_of_file(Path(path))
    if os.path.isfile(repository):
        names = models_in(Path(repository))[1]
        # without any, the load says what is wrong with the file
        is_there = os.path.basename(path) in (names or [os.path.basename(path)])
        return place_of_file(Path(repository)) if is_there else None
    # Path.is_dir() raises if a name is longer than the file system allows
    return ModelPlace(Path(path), Path(repository)) if os.path.isdir(path) else None


def _identity(place: ModelPlace) -> str:
    """Return a text that two names of one place have in common."""
    return str(place.code_file or place.directory.resolve())


# A stub of another user owns the directory that it has staged for a load. Between a check of a
# file and its opening, the stub could replace it by a link to a file that only the server may
# read. So the files are linked into directories of the server's own; the stub can still change
# their content. A server that is replaced removes its files at its end, so they are copied.


def _take_over(directory: Path) -> None:
    """Replace the directory by one of our own, unless it is one already.

    Raises InvalidArgument if there is anything but files and directories in it, and OSError.
    """
    if directory.lstat().st_uid == os.geteuid():
        return
    ours = directory.with_name(f"{directory.name}-taken")
    try:
        _link_tree(directory, ours)
        shutil.rmtree(directory)
        ours.rename(directory)
    except BaseException:
        shutil.rmtree(ours, ignore_errors=True)
        raise


def _link_tree(source: Path, target: Path) -> None:
    for place, _, files, descriptor in os.fwalk(source, follow_symlinks=False):
        folder = target / os.path.relpath(place, source)
        folder.mkdir()
        folder.chmod(0o755)
        for name in files:
            os.link(name, folder / name, src_dir_fd=descriptor, follow_symlinks=False)
            if not stat.S_ISREG((folder / name).lstat().st_mode):
                raise InvalidArgument(f"the files of a load must be files: '{name}' is not")


def _copy_files(source: Path, directory: Path) -> None:
    """Copy the files of another server, unless they were copied already. Raises OSError."""
    if directory.exists():
        return
    unfinished = directory.with_name(f"{directory.name}-copied")
    shutil.rmtree(unfinished, ignore_errors=True)
    directory.parent.mkdir(mode=0o700, exist_ok=True)
    for place, _, files, descriptor in os.fwalk(source, follow_symlinks=False):
        folder = unfinished / os.path.relpath(place, source)
        folder.mkdir()
        folder.chmod(0o755)
        for name in files:
            # not what a link leads to, which perhaps only the server may read
            number = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=descriptor)
            with open(number, "rb") as file, (folder / name).open("xb") as copy:
                shutil.copyfileobj(file, copy)
            (folder / name).chmod(0o644)
    unfinished.rename(directory)


def serve(line: Lifeline, tasks: Mapping[str, Callable[..., Any]]) -> None:
    """Do each task that comes, until the supervisor closes its end or is dead."""
    # otherwise a collection would write to every object, and copy its page
    gc.freeze()
    while not line.ended:
        line.wait()
        for message, _ in line.receive():
            line.send(answer(message, tasks))


def answer(call: wire.Call, tasks: Mapping[str, Callable[..., Any]]) -> wire.CallResult:
    """Do a task; return its result or error, and for an unexpected error its traceback."""
    try:
        result = dumps(tasks[call.verb](*loads(call.arguments)))
    except ZmqTritonError as error:
        return wire.CallResult(call.id, error.number, error.text, "", error.reason)
    except OSError as error:
        return wire.CallResult(call.id, InternalError.number, str(error), "")
    except Exception as error:  # noqa: BLE001 - the edge: the supervisor logs it
        return wire.CallResult(call.id, InternalError.number, str(error), traceback.format_exc())
    return wire.CallResult(call.id, 0, "", result)
