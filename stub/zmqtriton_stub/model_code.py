"""Compiles a model's own files from their present content, not from `__pycache__` next to them.

Python uses cached bytecode if the size of a file and the whole second of its last change agree: a
file that is saved twice within a second, or that is reached through a redirected link, would run in
its old version. Here bytecode is cached by a hash of the source, in a directory of the generation,
so that its instances compile each file once; nothing is written next to the model. Installed
packages keep Python's own cache. Must import nothing of the model.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import marshal
import os
import re
import stat
import sys
import threading
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import ModuleType
from typing import Any, Dict, Iterable, Tuple

#: Tells processes that a model starts by multiprocessing's spawn, which import its files, too.
_VARIABLE = "ZMQTRITON_MODEL_CODE"
#: Finds a directory of installed packages in a path.
INSTALLED = re.compile(r"/(site|dist)-packages/")
_standard_get_code = SourceFileLoader.get_code


def begin(directories: Iterable[str], kept_in: str) -> ModelCode:
    """Compile files below these directories here, in this process and in those that it spawns.

    `kept_in` is the directory of cached bytecode; it need not exist, and "" means no cache.
    """
    os.environ[_VARIABLE] = json.dumps([*directories, kept_in])
    return _follow()


def follow() -> None:
    """Compile files as this process's parent does, if a variable says how."""
    if _VARIABLE in os.environ:
        _follow()


def _follow() -> ModelCode:
    *directories, kept_in = json.loads(os.environ[_VARIABLE])
    code = ModelCode(directories, kept_in)

    def get_code(loader: SourceFileLoader, fullname: str) -> Any:
        path = loader.get_filename(fullname)
        return (
            code.compile(loader, path) if code.has(path) else _standard_get_code(loader, fullname)
        )

    # Not a finder of our own: models also load files by their path, with the loader of Python.
    SourceFileLoader.get_code = get_code  # type: ignore[assignment, method-assign]
    # a module that is loaded again keeps its namespace: objects that stay look up names in it
    SourceFileLoader.create_module = code.create_module  # type: ignore[assignment, method-assign]
    return code


class ModelCode:
    """The files below the model's directories, and their bytecode."""

    def __init__(self, directories: Iterable[str], kept_in: str) -> None:
        places = {place(d) for d in directories for place in (os.path.abspath, os.path.realpath)}
        self._roots = tuple(os.path.join(place, "") for place in places)
        self._library = os.path.join(os.path.dirname(os.__file__), "")
        self._kept_in = kept_in if kept_in and _is_private(kept_in) else ""
        #: The content of each file as it was compiled last, by its path.
        self.sources: Dict[str, bytes] = {}
        #: Code to run instead of a file's, and modules to run it in with their first names, once.
        self.renewed_code: Dict[str, Any] = {}
        self.renewed_modules: Dict[str, Tuple[ModuleType, Dict[str, Any]]] = {}

    def has(self, path: str) -> bool:
        """Return whether a file is the model's own, not one of a Python installed inside it."""
        path = os.path.abspath(path)
        is_below = path.startswith(self._roots) and not path.startswith(self._library)
        return is_below and INSTALLED.search(path) is None

    def compile(self, loader: SourceFileLoader, path: str) -> Any:
        """Return the code of the file's present content. Raises OSError and errors of compile()."""
        source = self.sources[path] = loader.get_data(path)
        if path in self.renewed_code:
            return self.renewed_code.pop(path)
        if not self._kept_in or type(loader) is not SourceFileLoader:
            return loader.source_to_code(source, path)  # a loader may change what it compiles
        kept = os.path.join(self._kept_in, _name(path, source))
        try:
            with open(kept, "rb") as file:
                return marshal.loads(file.read())  # noqa: S302 - only this user can write there
        except (OSError, EOFError, ValueError, TypeError):
            code = loader.source_to_code(source, path)
        if not sys.dont_write_bytecode:
            _keep(kept, marshal.dumps(code))
        return code

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Return the module that is loaded again, with the names that stay; None for others."""
        if spec.name not in self.renewed_modules:
            return None
        module, names = self.renewed_modules.pop(spec.name)
        vars(module).clear()
        vars(module).update(names, __doc__=None)
        return module


def _is_private(directory: str) -> bool:
    """Make a private directory; False if that fails, or if another user could put code there."""
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        status = os.lstat(directory)
    except OSError:
        return False
    return (
        stat.S_ISDIR(status.st_mode)
        and status.st_uid == os.geteuid()
        and not status.st_mode & 0o022
    )


def _name(path: str, source: bytes) -> str:
    # Tracebacks show the path, which is part of the code.
    about = f"{sys.flags.optimize} {path}\0".encode("utf-8", "surrogateescape")
    return hashlib.sha256(importlib.util.MAGIC_NUMBER + about + source).hexdigest()


def _keep(path: str, data: bytes) -> None:
    """Write the file as a whole, or not at all; only the next instance needs it."""
    draft = f"{path}.{threading.get_native_id()}"  # several may load a file by its path
    try:
        with open(draft, "wb") as file:
            file.write(data)
        os.replace(draft, path)
    except OSError:
        return  # the disk is full, or the server is removing the directory
