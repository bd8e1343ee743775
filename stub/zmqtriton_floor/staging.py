"""The files of a model that come with a request to load it: their check, and their place.

The process that requests the load, a frontend or a stub, writes them into the server's private
directory, where the supervisor takes them over by their name; so the supervisor never waits for a
large write. Until then they belong to the process whose serial number the name begins with.
"""

from __future__ import annotations

import os
import posixpath
import secrets
import shutil
from pathlib import PurePosixPath
from typing import Any, Dict, Iterable, Mapping

from zmqtriton_floor.errors import InternalError, InvalidArgument

#: The prefix of file names among the parameters of a load.
PREFIX = "file:"
#: Name of the directory for files of all loads, in the runtime directory.
_FOLDER = "files"
#: The supervisor removes them one by one.
_MAX_FILES = 4096
#: Maximum number of parts of a path: enough for any package, and few enough for code that walks
#: through the directories.
_MAX_PARTS = 64
_MAX_PART = 255
_MAX_PATH = 2048


def folder(runtime: str) -> str:
    """Return the path of the directory that has one directory for each load."""
    return os.path.join(runtime, _FOLDER)


def arguments(
    runtime: str, serial: int, model: str, parameters: Mapping[str, str], files: Mapping[str, bytes]
) -> Dict[str, Any]:
    """Write the files and return the arguments of the load's control call.

    The supervisor reports faults of the files, after it has checked whether the load is allowed.
    Raises InternalError if the files cannot be written.
    """
    document: Dict[str, Any] = {"model": model, "parameters": dict(parameters)}
    if files and "config" not in parameters:
        document["files"] = {"refusal": ""}
    elif files:
        try:
            document["files"] = {"staged": stage(runtime, serial, files)}
        except InvalidArgument as error:
            document["files"] = {"refusal": error.text}
    return document


def stage(runtime: str, serial: int, files: Mapping[str, bytes]) -> str:
    """Write the files into a new directory, and return its name.

    Raises InvalidArgument and InternalError.
    """
    paths, root = places(files), ""
    try:
        root = make(runtime, serial)
        made = {""}
        for parameter, content in files.items():
            path = paths[parameter]
            for parent in reversed(_parents(path)):
                if parent not in made:
                    made.add(parent)
                    _make(os.path.join(root, parent))
            _write(os.path.join(root, path), content)
    except OSError as error:
        shutil.rmtree(root, ignore_errors=True)
        raise InternalError(
            f"cannot keep the files of the load, is there room in $TMPDIR? {error.strerror}"
        ) from error
    return os.path.basename(root)


def make(runtime: str, serial: int) -> str:
    """Make a directory, which is removed with the process at the latest. Raises OSError."""
    path = os.path.join(folder(runtime), f"{serial}-{secrets.token_hex(8)}")
    os.makedirs(folder(runtime), mode=0o700, exist_ok=True)
    _make(path)
    return path


def discard(runtime: str, name: str) -> None:
    """Remove the files of a load that was given up."""
    shutil.rmtree(os.path.join(folder(runtime), name), ignore_errors=True)


def places(parameters: Iterable[str]) -> Dict[str, str]:
    """Return the path of each file within the directory, by parameter. Raises InvalidArgument."""
    paths = {parameter: _place(parameter) for parameter in parameters}
    if len(paths) > _MAX_FILES:
        raise InvalidArgument(f"a load can bring at most {_MAX_FILES} files, not {len(paths)}")
    taken: Dict[str, str] = {}
    for parameter, path in paths.items():
        if path in taken:
            raise _clash(parameter, path, taken[path])
        taken[path] = parameter
    for parameter, path in paths.items():
        for parent in _parents(path):
            if parent in taken:
                raise _clash(parameter, path, taken[parent])
    return paths


def _place(parameter: str) -> str:
    name = parameter[len(PREFIX) :]
    try:
        is_long = len(name.encode()) > _MAX_PATH
    except UnicodeEncodeError:
        raise InvalidArgument("Invalid file parameter: its name is no text.") from None
    if is_long or "\0" in name:
        raise _bad_path(parameter, "is too long" if is_long else "must not contain NUL")
    # two slashes in front have a meaning of their own in POSIX
    path = posixpath.normpath(name) if name else "."
    shown = f"Invalid file parameter '{parameter}' with normalized path '{path}'"
    if path == ".." or path.startswith(("../", "/")):
        raise InvalidArgument(f"{shown} must stay within model directory.")
    if path == "." or name.endswith(("/", "/.", "/..")):
        raise InvalidArgument(f"{shown} must name a file.")
    parts = path.encode().split(b"/")
    if len(parts) > _MAX_PARTS or max(map(len, parts)) > _MAX_PART:
        raise _bad_path(parameter, "is too long")
    return path


def _bad_path(parameter: str, reason: str) -> InvalidArgument:
    shown = parameter if len(parameter) <= 100 else f"{parameter[:97]}..."
    return InvalidArgument(f"Invalid file parameter '{shown}': its path {reason}.")


def _clash(parameter: str, path: str, other: str) -> InvalidArgument:
    return InvalidArgument(
        f"Invalid file parameter '{parameter}' with normalized path '{path}' clashes with "
        f"'{other}'."
    )


def _parents(path: str) -> list[str]:
    """Return the parents from the nearest to the first below the root."""
    return [str(parent) for parent in PurePosixPath(path).parents if parent.name]


def _make(path: str) -> None:
    """Make a directory for the server and stubs of other users: only they know its name."""
    os.mkdir(path, 0o700)
    os.chmod(path, 0o777)


def _write(path: str, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "wb") as file:
        os.fchmod(file.fileno(), 0o666)
        file.write(content)
