"""The modules of installed packages that this process has imported since its start.

A spare process (spare.py) imports them ahead for the next instance. The model's own modules are not
among them, nor the modules that every stub needs.
"""

from __future__ import annotations

import re
import sys
from typing import Any, Dict, Iterable, List, Set

from zmqtriton_floor.file_marks import mark_of
from zmqtriton_stub.model_code import INSTALLED

_OWN = re.compile(
    r"(numpy|zmq|msgpack|zmqtriton\w*|(c|triton)_python_backend_utils)(\.|$)", re.ASCII
)
_AT_START = frozenset(sys.modules)


def is_installed(path: str) -> bool:
    """Return whether a path is a directory of installed packages, or is in one."""
    return INSTALLED.search(f"{path}/") is not None


def file_of(module: object) -> str:
    """Return the path of a module's file if a package has installed it, else ""."""
    # not getattr(): modules that load their names late would import something
    file = getattr(module, "__dict__", {}).get("__file__")
    return file if isinstance(file, str) and is_installed(file) else ""


def installed_modules() -> List[str]:
    """Return the names of the modules, in the order of their imports."""
    return [
        name
        for name, module in list(sys.modules.items())
        if name not in _AT_START and not _OWN.match(name) and file_of(module)
    ]


def package_paths(modules: Iterable[object]) -> Set[str]:
    """Return the files of modules of packages, and the directories of installed packages."""
    return {*filter(is_installed, sys.path), *map(file_of, modules)}


def states_of(paths: Iterable[str]) -> Dict[str, Any]:
    """Return the state of each path: another one after a change of the file, or of names in it."""
    # without the time of its change: another environment may get a link to the file
    return {path: mark_of(path)[:4] for path in paths}
