"""Halves the start time of Python in environments with editable installations of our packages.

setuptools finds such packages by a module that imports pathlib and importlib.util, which imports
re, urllib and contextlib: before the program begins, in each of the thousands of processes that
tests start. This program replaces that module by one that needs only modules which every Python has
loaded.

    python tools/editable_finder.py

Runs in the environment after each installation, and does nothing a second time.
"""

from __future__ import annotations

import importlib
import py_compile
import shutil
import sys
import sysconfig
from pathlib import Path

_MODULE = '''"""Finds the packages of a source tree; see tools/editable_finder.py."""

import sys
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import PathFinder, _NamespacePath

#: By name, the directory of each package.
MAPPING = {mapping!r}


class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        directory = MAPPING.get(name)
        if directory is None:
            return None
        parent, _, last = directory.rpartition("/")
        if last == name:
            return PathFinder.find_spec(name, [parent], target)
        # files alone, in a directory of another name
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = _NamespacePath(name, [directory], _find_nothing)
        return spec


def _find_nothing(name, path):
    return None


def install():
    if Finder not in sys.meta_path:
        sys.meta_path.append(Finder)
'''


def rewrite(site_packages: Path) -> list[Path]:
    """Rewrite the finders of editable packages in this directory; return the changed ones."""
    rewritten = []
    sys.path.insert(0, str(site_packages))
    for path in sorted(site_packages.glob("__editable___*_finder.py")):
        module = importlib.import_module(path.stem)
        text = _MODULE.replace("{mapping!r}", repr(dict(module.MAPPING)))
        if path.read_text("utf-8") != text:
            path.unlink()  # it may be a link into the cache of the installer
            path.write_text(text, "utf-8")
            py_compile.compile(str(path))
            rewritten.append(path)
    sys.path.remove(str(site_packages))
    return rewritten


def remove_leftovers(root: Path) -> None:
    """Remove directories without any file, which Python takes for packages.

    A checkout keeps the directories of a package that has moved, because of the bytecode in them.
    """
    # CPython 3.10 finds files by "*/", too
    for folder in sorted(filter(Path.is_dir, root.rglob("*")), reverse=True):
        if folder.name == "__pycache__":
            if not any(folder.parent.glob("*.py")):
                shutil.rmtree(folder)
        elif not any(folder.iterdir()):
            folder.rmdir()


if __name__ == "__main__":
    for name in ("zmqtriton", "stub", "frontends", "standard", "extras"):
        remove_leftovers(Path(__file__).resolve().parents[1] / name)
    rewrite(Path(sysconfig.get_path("purelib")))
