"""The modules that stubs need and a model's Python lacks.

There is a directory for each kind of Python and each set of such modules. It comes last on the
module path, so whatever the environment has comes first. For Pythons like the server's own it is a
copy of what the server uses. For others it is installed, which needs the network once, or uv's
cache: by uv, or where there is none by the environment's own pip or the server's.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from zmqtriton.environments import programs
from zmqtriton.environments.cache import SUPPORT, EnvironmentCache
from zmqtriton.environments.interpreters import Interpreter, server_interpreter
from zmqtriton.long_steps import Reporter, StepProgress
from zmqtriton_floor.errors import InternalError

#: module -> project
_PROJECTS = {"zmq": "pyzmq", "msgpack": "msgpack", "numpy": "numpy"}
_TIMEOUT_S = 600
#: Its pip installs where there is no other.
SERVER_PYTHON = sys.executable
_QUIETLY = ("--no-warn-script-location", "--disable-pip-version-check", "--no-input")


def prepare_support_directory(
    interpreter: Interpreter, cache: EnvironmentCache, reporter: Reporter
) -> str:
    """Return the directory, or "" if nothing is missing.

    Raises an error that says what to do if it cannot be made.
    """
    if not interpreter.missing_modules:
        return ""
    kind = _kind(interpreter)
    name = "-".join((kind, *interpreter.missing_modules))
    source = f"{', '.join(_projects(interpreter))} for {kind}"
    if not cache.is_ready(SUPPORT, name):
        lacking = ", ".join(interpreter.missing_modules)
        reporter.log("I", f"{interpreter.path} lacks {lacking}; preparing them once for {kind}")

    def fill(tree: Path) -> None:
        reporter.progress(StepProgress(f"Copying {source}"))
        if not _copy_server_packages(interpreter, tree):
            _install(interpreter, tree, reporter)

    return str(cache.get_or_create(SUPPORT, name, source, fill, reporter))


def _projects(interpreter: Interpreter) -> list[str]:
    return [_PROJECTS[module] for module in interpreter.missing_modules]


def _kind(interpreter: Interpreter) -> str:
    number = "{}.{}".format(*interpreter.version)
    name = f"{interpreter.implementation}-{number}-{interpreter.abi}-{interpreter.platform}"
    return "".join(c if c.isalnum() or c in "-._" else "_" for c in name)


def _copy_server_packages(interpreter: Interpreter, tree: Path) -> bool:
    """Copy the server's own modules, without its other packages; False if they do not fit."""
    own = server_interpreter()
    if own.missing_modules or _kind(own) != _kind(interpreter):
        return False
    try:
        distributions = [distribution(project) for project in _projects(interpreter)]
    except PackageNotFoundError:
        return False
    return all([_copy_distribution(one, tree) for one in distributions])


def _copy_distribution(project: Distribution, tree: Path) -> bool:
    copied = 0
    for file in project.files or ():
        source = Path(str(project.locate_file(file)))
        is_plain = ".." not in file.parts and "__pycache__" not in file.parts
        if is_plain and not file.is_absolute() and source.is_file():
            target = tree / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
            copied += file.suffix == ".py"
    return copied > 0


def _install(interpreter: Interpreter, tree: Path, reporter: Reporter) -> None:
    failures: list[str] = []
    for install in _installers(interpreter, tree, reporter):
        try:
            install()
            return
        except InternalError as error:
            failures.append(error.text)
            for left in tree.iterdir():
                shutil.rmtree(left) if left.is_dir() else left.unlink()
    raise InternalError(_refusal(interpreter, failures))


def _refusal(interpreter: Interpreter, failures: list[str]) -> str:
    text = (
        f"The Python environment of {interpreter.path} lacks the module "
        f"'{interpreter.missing_modules[0]}', which every model needs. Install it with: "
        f"{interpreter.path} -m pip install {' '.join(_projects(interpreter))}"
    )
    if any(map(programs.is_unreachable, failures)):
        text += (
            "; no package index can be reached, and they were not installed in advance, which "
            "'zmqtriton-ctl env prepare' does where there is a network. UV_FIND_LINKS or "
            "PIP_FIND_LINKS can name a directory of wheels"
        )
    return f"{text} ({'; '.join(failures)})"


def _installers(
    interpreter: Interpreter, tree: Path, reporter: Reporter
) -> Iterator[Callable[[], None]]:
    """Return what installs into a directory, the best first."""
    projects = _projects(interpreter)
    what = f"Installing {', '.join(projects)}"
    more: dict[str, Any] = {"directory": str(tree), "within_s": _TIMEOUT_S}
    wheels = ["--target", str(tree), "--only-binary", ":all:"]
    uv = programs.find_uv()
    if uv is not None:
        arguments = ["--python", interpreter.path, *wheels, "--no-config", *projects]
        yield partial(programs.install_with_uv, uv, arguments, what, reporter, **more)
        return
    for pip, tags in (
        ([interpreter.path, "-I", "-m", "pip"], []),
        ([SERVER_PYTHON, "-m", "pip"], _tags(interpreter)),
    ):
        command = [*pip, "install", *wheels, *_QUIETLY, *tags, *projects]
        yield partial(programs.run, command, what, reporter, **more)


def _tags(interpreter: Interpreter) -> list[str]:
    """Return pip's options for another Python than its own."""
    machine = interpreter.platform.partition("-")[2].replace("-", "_")
    platforms = [f"linux_{machine}"]
    if interpreter.abi.endswith("-musl"):
        platforms += [f"musllinux_1_{minor}_{machine}" for minor in (1, 2)]
    else:
        platforms.append(f"manylinux2014_{machine}")
        platforms += [f"manylinux_2_{minor}_{machine}" for minor in range(17, _glibc_minor() + 1)]
    number = "{}.{}".format(*interpreter.version)
    abis = ["cp" + number.replace(".", ""), "abi3", "none"]
    return [
        *("--python-version", number, "--implementation", "cp"),
        *(part for abi in abis for part in ("--abi", abi)),
        *(part for platform in platforms for part in ("--platform", platform)),
    ]


def _glibc_minor() -> int:
    """Return the second number of the C library's version, or the oldest that wheels are for."""
    try:
        library = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (OSError, ValueError):
        library = ""
    match = re.search(r"2\.(\d+)", library)
    return int(match[1]) if match else 17
