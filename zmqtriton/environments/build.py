"""Builds a virtual environment from a requirements file with uv, once for the same content.

The result stays, so a load that finds it needs neither uv nor the network.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from zmqtriton.environments import programs
from zmqtriton.environments.cache import BUILT, EnvironmentCache
from zmqtriton.environments.demand import interpreter_path
from zmqtriton.environments.interpreters import Interpreter
from zmqtriton.long_steps import Reporter
from zmqtriton_floor.errors import InternalError

_INCLUDE_LINE = re.compile(r"^\s*(?:-r|-c|--requirement|--constraint)[\s=]+(\S+)", re.M)
_LOCK_FILE = "uv.lock"


def build_environment(
    requirements: str, base: Interpreter, cache: EnvironmentCache, reporter: Reporter
) -> str:
    """Return the root of the environment."""
    name = _digest(requirements, base)
    tree = cache.tree_path(BUILT, name)
    if cache.is_ready(BUILT, name) and not os.access(interpreter_path(str(tree)), os.X_OK):
        cache.invalidate(BUILT, name)  # the interpreter that it was built on is gone
    source = f"{requirements} with {base.executable}"
    return str(
        cache.get_or_create(
            BUILT,
            name,
            source,
            lambda new: _install_requirements(new, requirements, base, reporter),
            reporter,
        )
    )


def _digest(requirements: str, base: Interpreter) -> str:
    digest = hashlib.sha256(base.identity.encode(errors="surrogateescape"))
    for path in _requirement_files(Path(requirements), set()):
        content = path.read_bytes()
        digest.update(f"\n{path.name} {len(content)}\n".encode(errors="surrogateescape"))
        digest.update(content)
    return digest.hexdigest()[:32]


def _requirement_files(path: Path, seen: set[Path]) -> Iterator[Path]:
    """Return the file and those that it includes; a web address counts by its name."""
    if path in seen or not path.is_file():
        return
    seen.add(path)
    yield path
    if path.suffix == ".toml":
        yield from _requirement_files(path.with_name(_LOCK_FILE), seen)
        return
    for name in _INCLUDE_LINE.findall(path.read_text(errors="replace")):
        yield from _requirement_files((path.parent / name).resolve(), seen)


def _install_requirements(
    tree: Path, requirements: str, base: Interpreter, reporter: Reporter
) -> None:
    uv = programs.find_uv()
    if uv is None:
        raise InternalError(
            f"Building an environment for {requirements} needs uv. Install it with: "
            f"{sys.executable} -m pip install uv"
        )
    reporter.log("I", f"Building an environment for {requirements} with {base.path}")
    what = f"Building an environment for {requirements}"
    folder = os.path.dirname(requirements)
    venv = [uv, "venv", "--quiet", "--no-project", "--allow-existing", "--python", base.path]
    programs.run([*venv, str(tree)], what, reporter, directory=folder)
    python = interpreter_path(str(tree))
    locked = os.path.join(folder, _LOCK_FILE)
    if requirements.endswith(".toml") and os.path.exists(locked):
        exported = str(tree / "exported-requirements.txt")
        command = [uv, "export", "--quiet", "--frozen", "--no-emit-project", "--no-dev"]
        command += ["--python", python, "--output-file", exported]
        programs.run(command, what, reporter, directory=folder)
        requirements = exported
    install = ["--python", python, "--requirement", requirements]
    programs.install_with_uv(uv, install, what, reporter, directory=folder)
