"""Builds a virtual environment of a file of requirements with uv, once for the same content.

What was built for a content stays, so a load with a full cache needs neither uv nor the network.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from zmqtriton.environments import programs
from zmqtriton.environments.cache import BUILT, Cache, Report
from zmqtriton.environments.demand import interpreter_of
from zmqtriton.environments.interpreters import Interpreter
from zmqtriton_floor.errors import InternalError

_INCLUDED = re.compile(r"^\s*(?:-r|-c|--requirement|--constraint)[\s=]+(\S+)", re.M)
_LOCK = "uv.lock"


def build(requirements: str, base: Interpreter, cache: Cache, report: Report) -> str:
    """The root of the environment."""
    name = _digest(requirements, base)
    tree = cache.tree(BUILT, name)
    if cache.is_ready(BUILT, name) and not os.access(interpreter_of(str(tree)), os.X_OK):
        cache.forget(BUILT, name)  # the interpreter that it was built on is gone
    source = f"{requirements} with {base.executable}"
    return str(
        cache.make(BUILT, name, source, lambda new: _fill(new, requirements, base, report), report)
    )


def _digest(requirements: str, base: Interpreter) -> str:
    digest = hashlib.sha256(base.identity.encode(errors="surrogateescape"))
    for path in _files(Path(requirements), set()):
        content = path.read_bytes()
        digest.update(f"\n{path.name} {len(content)}\n".encode(errors="surrogateescape"))
        digest.update(content)
    return digest.hexdigest()[:32]


def _files(path: Path, seen: set[Path]) -> Iterator[Path]:
    """The file and those that it includes; what is at a web address counts by its name."""
    if path in seen or not path.is_file():
        return
    seen.add(path)
    yield path
    if path.suffix == ".toml":
        yield from _files(path.with_name(_LOCK), seen)
        return
    for name in _INCLUDED.findall(path.read_text(errors="replace")):
        yield from _files((path.parent / name).resolve(), seen)


def _fill(tree: Path, requirements: str, base: Interpreter, report: Report) -> None:
    uv = programs.find_uv()
    if uv is None:
        raise InternalError(
            f"Building an environment for {requirements} needs uv. Install it with: "
            f"{sys.executable} -m pip install uv"
        )
    report("I", f"Building an environment for {requirements} with {base.python}")
    what = f"Building an environment for {requirements}"
    folder = os.path.dirname(requirements)
    venv = [uv, "venv", "--quiet", "--no-project", "--allow-existing", "--python", base.python]
    programs.run([*venv, str(tree)], what, report, directory=folder)
    python = interpreter_of(str(tree))
    locked = os.path.join(folder, _LOCK)
    if requirements.endswith(".toml") and os.path.exists(locked):
        exported = str(tree / "exported-requirements.txt")
        command = [uv, "export", "--quiet", "--frozen", "--no-emit-project", "--no-dev"]
        command += ["--python", python, "--output-file", exported]
        programs.run(command, what, report, directory=folder)
        requirements = exported
    install = [uv, "pip", "install", "--python", python, "--requirement", requirements]
    programs.run(install, what, report, directory=folder)
