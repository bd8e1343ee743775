"""From what a model asks for to what its instances are started with; may take minutes.

Called in the child process of the supervisor and by `zmqtriton-ctl env prepare`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

from zmqtriton.environments import programs
from zmqtriton.environments.build import build
from zmqtriton.environments.cache import ARCHIVES, Cache, Report
from zmqtriton.environments.demand import (
    ARCHIVE,
    DIRECTORY,
    REQUIREMENTS,
    Environment,
    EnvironmentSpec,
    applied,
    check_directory,
    interpreter_of,
)
from zmqtriton.environments.interpreters import ask, find
from zmqtriton.environments.support import supply
from zmqtriton.environments.unpack import Bounds, root_of, unpack
from zmqtriton_floor.errors import InternalError

#: conda-unpack rewrites every file that holds a path.
_ADAPT_WITHIN_S = 600


def prepare(demand: EnvironmentSpec, cache: Cache, report: Report) -> Environment:
    """Raises ZmqTritonError that names cause and cure."""
    if demand.kind == DIRECTORY:
        report(
            "I",
            "Returning canonical path since EXECUTION_ENV_PATH does not contain compressed path. "
            f"Path: {demand.path}",
        )
        environment = _in_root(demand.path)
    elif demand.kind == ARCHIVE:
        environment = _in_root(_unpacked(demand.path, cache, report))
    else:
        environment = Environment(find(demand.python))
    if demand.kind == REQUIREMENTS:
        environment = _in_root(build(demand.path, ask(environment), cache, report))
    if environment.root:
        report("I", f"Using Python execution env {environment.root}")
        _warn_of_scripts(environment.root, report)
    interpreter = ask(environment)
    return environment._replace(support=supply(interpreter, cache, report))


def _warn_of_scripts(root: str, report: Report) -> None:
    folder = Path(root, "etc", "conda", "activate.d")
    names = sorted(path.name for path in folder.glob("*.sh"))
    if names:
        report(
            "W",
            f"the scripts in {folder} are not run: {', '.join(names)}. What they set must be in "
            "the server's environment",
        )


def _in_root(root: str) -> Environment:
    return Environment(interpreter_of(root), root)


def _unpacked(path: str, cache: Cache, report: Report) -> str:
    """The root of an archive's environment."""
    with _opened(path) as file:
        before = os.fstat(file.fileno())
        name = cache.digest_of(file, path, report)

        def fill(tree: Path) -> None:
            report("I", f"Extracting Python execution env {path}")
            unpack(path, file, tree, report, Bounds())
            after = os.fstat(file.fileno())
            if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
                raise InternalError(f"The archive {path} was changed while it was unpacked")
            _adapt(root_of(tree), report)

        tree = cache.make(ARCHIVES, name, path, fill, report)
    root = str(root_of(tree))
    if not os.access(interpreter_of(root), os.X_OK):
        cache.forget(ARCHIVES, name)  # the interpreter that it leads to is gone
    check_directory(root)
    return root


def _opened(path: str) -> IO[bytes]:
    try:
        return open(path, "rb")
    except OSError as error:
        raise InternalError(f"The archive {path} cannot be read: {error.strerror}") from error


def _adapt(root: Path, report: Report) -> None:
    """Conda's own program puts the new place in where files hold the old one."""
    check_directory(str(root))
    program = root / "bin" / "conda-unpack"
    if not program.is_file():
        return
    environment = _in_root(str(root))
    programs.run(
        [environment.python, str(program)],
        f"Running {program}",
        report,
        variables=applied(environment, os.environ),
        within_s=_ADAPT_WITHIN_S,
    )
