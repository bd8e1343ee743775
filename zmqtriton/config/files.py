"""The files that a configuration names: each must lie inside the model's own directory.

Symbolic links are followed before the test, because a link leaves the repository as well as `..`
does.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple

from zmqtriton import addons
from zmqtriton.config.errors import ConfigError, FieldPath, Problem, raise_first
from zmqtriton.config.parameters import parameter_text
from zmqtriton_floor.errors import InternalError
from zmqtriton_floor.settings.offers import Hook

#: The folder of files for `model_warmup`.
_WARMUP_FOLDER = "warmup"
#: Maximum size of a file of class names, which is sent to every frontend: no set of classes needs
#: more.
_MAX_LABEL_BYTES = 8 << 20
_MAX_FILE_BYTES = 1 << 20


class ClientFile(NamedTuple):
    """A file in a model's directory whose text frontends get with the model."""

    #: The parameter of config.pbtxt that names it, and its name without that.
    parameter: str
    name: str
    #: Name of the file in errors.
    title: str


#: A text file in a model's directory: parameter, name and title of a `ClientFile`. A step finds its
#: content in `model.files`.
FILE = Hook[tuple[str, str, str]]("models.file")


class ClientFiles(NamedTuple):
    """Contents of the model's files that requests of clients need; "" for a missing file."""

    #: The class names of outputs, as JSON.
    labels: str = ""
    #: Texts of files by the parameters that name them, as JSON.
    files: str = ""


def special_file_text(path: Path) -> str:
    """Return why this is not a readable file, such as a pipe or a loop; "" if it is absent."""
    kinds = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device"}
    try:
        kind = kinds.get(stat.S_IFMT(path.stat().st_mode))
    except OSError as error:
        return f"'{path}' is a loop of symbolic links" if error.errno == errno.ELOOP else ""
    return f"'{path}' is {kind}, not a file" if kind else ""


def path_inside(directory: Path, name: str, *boundaries: Path) -> Path | None:
    """Return `directory`/`name`, or None if that is outside all boundaries."""
    if not is_name_inside(name):
        return None
    path = directory / name
    return path if resolves_inside(path, *boundaries) else None


def is_name_inside(name: str) -> bool:
    """True if the name, links not followed, stays below the directory that it is relative to."""
    parts = PurePosixPath(name)
    return not (not name or "\0" in name or parts.is_absolute() or ".." in parts.parts)


def resolves_inside(path: Path, *boundaries: Path) -> bool:
    """True if `path`, links followed, is in or below one of the boundaries."""
    try:
        target = path.resolve()
        return any(target.is_relative_to(boundary.resolve()) for boundary in boundaries)
    except (OSError, RuntimeError):
        # a loop of links leads nowhere
        return False


def check_paths(config: Any, model_dir: Path) -> None:
    """Refuse label, warm-up and initial-state files outside the model's directory."""
    raise_first(path_problems(config, model_dir))


def path_problems(config: Any, model_dir: Path) -> Iterator[Problem]:
    """Return the problems of named files that are outside of their directories."""
    for index, output in enumerate(config.output):
        name = output.label_filename
        if name and path_inside(model_dir, name, model_dir) is None:
            yield Problem(
                f"label file path '{name}' for output '{output.name}' in model '{config.name}' "
                "is outside model directory",
                ("output", index, "label_filename"),
            )
    for folder, name, field in _data_files(config):
        if path_inside(model_dir / folder, name, model_dir) is None:
            yield Problem(
                f"data file path '{name}' in model '{config.name}' is outside the directory "
                f"'{folder}' of the model",
                field,
            )


def read_labels(config: Any, model_dir: Path) -> str:
    """Return the class names of each output that has some, as JSON; "" if none has.

    Raises InternalError for a file that cannot be read, ConfigError for one that is too large.
    """
    labels: dict[str, list[str]] = {}
    for output in config.output:
        path = model_dir / output.label_filename
        if not output.label_filename:
            continue
        data = _read_regular_file(path, _MAX_LABEL_BYTES + 1)
        if len(data) > _MAX_LABEL_BYTES:
            raise ConfigError(f"label file {path} can have at most {_MAX_LABEL_BYTES} bytes")
        labels[output.name] = data.removesuffix(b"\n").decode("utf-8", "replace").split("\n")
    return json.dumps(labels) if labels else ""


def client_files(value_of: Callable[[str], Any]) -> list[ClientFile]:
    """Return the files of models that add-ons read; `value_of` returns an option by its field."""
    return [ClientFile(*row) for row in FILE.all_of(addons.offers_in_use(value_of))]


def read_client_files(config: Any, model_dir: Path, declared: Iterable[ClientFile]) -> ClientFiles:
    """Return labels, and the texts of files. Raises the errors of both readers."""
    files = {
        each.parameter: text
        for each in declared
        if (text := read_client_file(config, model_dir, each))
    }
    return ClientFiles(read_labels(config, model_dir), json.dumps(files) if files else "")


def read_client_file(config: Any, model_dir: Path, declared: ClientFile) -> str:
    """Return the text of a file, or "" without one.

    Raises InternalError for a file that cannot be read, ConfigError for one that is too large, no
    text, or outside of the model's directory.
    """
    name = parameter_text(config, declared.parameter)
    path = model_dir / (name or declared.name)
    if not name and not path.exists():
        return ""
    if path_inside(model_dir, name or declared.name, model_dir) is None:
        raise ConfigError(f"{declared.title} '{path}' is outside model directory")
    data = _read_regular_file(path, _MAX_FILE_BYTES + 1)
    if len(data) > _MAX_FILE_BYTES:
        raise ConfigError(f"{declared.title} {path} can have at most {_MAX_FILE_BYTES} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{declared.title} {path} must be UTF-8") from None


def unreadable_file_problems(config: Any, model_dir: Path) -> Iterator[Problem]:
    """Return problems of named files that are missing or may not be read."""
    labels = [
        (model_dir / output.label_filename, ("output", index, "label_filename"))
        for index, output in enumerate(config.output)
        if output.label_filename
    ]
    samples = [
        (model_dir / folder / name, field)
        for folder, name, field in _data_files(config)
        if folder == _WARMUP_FOLDER  # `states` reads the initial values of states
    ]
    for path, field in [*labels, *samples]:
        try:
            _read_regular_file(path, 0)
        except InternalError as error:
            yield Problem(error.text, field, error_number=error.number)


def open_regular_file(path: Path) -> BinaryIO:
    """Open a regular file without waiting for a pipe. Raises OSError for anything else."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it must be a regular file")
    return open(descriptor, "rb")


def _read_regular_file(path: Path, max_bytes: int) -> bytes:
    """Return the beginning of a file. Raises InternalError."""
    try:
        with open_regular_file(path) as file:
            return file.read(max_bytes)
    except OSError as error:
        why = os.strerror(error.errno or 0)
        raise InternalError(f"failed to open text file for read {path}: {why}") from None


def inherit_labels(config: Any, own: str, members: Mapping[str, str]) -> str:
    """Let an ensemble's outputs without labels have the labels of the step that makes them.

    All texts are as read_labels() returns them.
    """
    labels = json.loads(own) if own else {}
    outputs = {output.name for output in config.output}
    for step in config.ensemble_scheduling.step:
        theirs = json.loads(members[step.model_name] or "{}")
        for name, tensor in step.output_map.items():
            if tensor in outputs and name in theirs:
                labels.setdefault(tensor, theirs[name])
    return json.dumps(labels) if labels else ""


def _data_files(config: Any) -> Iterator[tuple[str, str, FieldPath]]:
    """Return the folder, the name in it, and the place in the configuration of each file."""
    for index, warmup in enumerate(config.model_warmup):
        for key, sample in sorted(warmup.inputs.items()):
            if sample.HasField("input_data_file"):
                yield _WARMUP_FOLDER, sample.input_data_file, ("model_warmup", index, "inputs", key)
    for index, state in enumerate(config.sequence_batching.state):
        field: FieldPath = ("sequence_batching", "state", index, "initial_state")
        for number, initial in enumerate(state.initial_state):
            if initial.HasField("data_file"):
                yield "initial_state", initial.data_file, (*field, number, "data_file")
