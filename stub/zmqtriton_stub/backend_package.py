"""The package of an add-on's backend: imported by its name, from where the backend lies.

The model's interpreter may have none of it, or another edition. Nothing that lies beside the
package comes onto the path, which may be all that the server has installed.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import NamedTuple, Optional, Sequence

from zmqtriton_stub.api import errors


class PackageFinder(NamedTuple):
    """Finds one package, whose submodules Python then finds by itself."""

    name: str
    #: The directory that the package lies in.
    root: str

    def find_spec(
        self,
        fullname: str,
        path: Optional[Sequence[str]] = None,
        target: Optional[ModuleType] = None,
    ) -> Optional[ModuleSpec]:
        return PathFinder.find_spec(fullname, [self.root]) if fullname == self.name else None


def provide(package: str, directory: str) -> None:
    """Make a backend's package importable that lies in this directory, with those around it.

    What this process has imported under that name stays: it is one that has the server itself.
    """
    name, *inner = package.split(".")
    home = os.path.abspath(directory)
    for folder in reversed(inner):
        if os.path.basename(home) != folder:
            return  # its files lie elsewhere than its name says, and only the environment knows
        home = os.path.dirname(home)
    errors.leave_out_frames_below(home)
    finder = PackageFinder(name, os.path.dirname(home))
    if name not in sys.modules and finder not in sys.meta_path:
        sys.meta_path.insert(0, finder)
