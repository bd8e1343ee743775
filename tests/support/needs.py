"""Needs of tests beyond the package: where things lie, and tools that may be missing."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import pytest
from _pytest.outcomes import Skipped

ROOT = Path(__file__).resolve().parent.parent.parent
#: The folders that have tests: of core and standard, and of each extra beside its sources.
TEST_FOLDERS = (ROOT / "tests", ROOT / "extras")


def file_of(name: str) -> Path:
    """Return the file of tests of a name as marks have it: below tests/, or `extras/NAME/FILE`."""
    if not name.startswith("extras/"):
        return ROOT / "tests" / name
    _, extra, rest = name.split("/", 2)
    return ROOT / "extras/zmqtriton_extras" / extra / "tests" / rest


def mark_of(path: Path) -> str:
    """Return the name of a file of tests as marks have it."""
    words = path.relative_to(ROOT).parts
    if words[0] == "tests":
        return "/".join(words[1:])
    return "/".join(("extras", words[2], *words[4:]))


def files_of_tests(pattern: str = "test_*.py") -> list[Path]:
    """Return the files of tests of core, standard and extras."""
    return sorted(path for folder in TEST_FOLDERS for path in folder.rglob(pattern))


def name_of(path: Path) -> str:
    """Return the name of a folder or file of tests, from the root of the tree."""
    return path.relative_to(ROOT).as_posix()


def room_of(path: Path) -> tuple[str, ...]:
    """Return the folders around a file of tests, or a folder of them, within what it tests."""
    words = path.relative_to(ROOT).parts
    if words[0] == "extras":
        return words[words.index("tests") + 1 :] if "tests" in words else ()
    return words[3:] if words[1:2] == ("standard",) else words[1:]


@cache
def is_of_extra(path: Path) -> bool:
    """True for a file below extras/."""
    return TEST_FOLDERS[-1] in path.parents


@cache
def is_of_tests(path: Path) -> bool:
    """True for a folder or file below one of TEST_FOLDERS."""
    return any(folder in path.parents for folder in TEST_FOLDERS)


class LeftOut(Skipped):
    """A test is skipped, even where everything must run: this machine or copy cannot run it."""


def skip_missing(tool: str) -> NoReturn:
    """Skips the test that needs this tool; where everything must run, fails it."""
    if os.environ.get("ZT_CI"):
        pytest.fail(f"{tool} is missing, and ZT_CI says that everything must run")
    pytest.skip(f"{tool} is missing", allow_module_level=True)


def import_or_skip(name: str) -> Any:
    """Return a module; a test or a file is skipped without it, or without a library it needs."""
    try:
        return importlib.import_module(name)
    except (ImportError, OSError) as error:
        skip_missing(f"{name}: {error}")


class Later:
    """A module that takes long to be imported: when a test first uses one of its names."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):  # pytest looks for marks in each name of a file
            raise AttributeError(attribute)
        return getattr(importlib.import_module(self._name), attribute)


def find_tool(*names: str, package: str = "") -> str:
    """Return where a program is that has any of these names; a test without it is skipped.

    Daemons may be out of a user's path, and some programs come with the packages of the tests.
    """
    places = (os.environ.get("PATH", os.defpath), "/usr/sbin", os.path.dirname(sys.executable))
    for name in names:
        if path := shutil.which(name, path=os.pathsep.join(places)):
            return path
    skip_missing(" or ".join(names) + (f" (Debian's package {package})" if package else ""))


def environment_program(environment: str, name: str = "python") -> Path:
    """Return a program of an environment of the Makefile; a test without it is skipped."""
    folder = ROOT / environment
    program = folder / "bin" / name
    if not program.exists():
        if (folder / "left_out").exists():
            raise LeftOut((folder / "left_out").read_text().rstrip("\n"))
        skip_missing(str(program.relative_to(ROOT)))
    return program
