"""Makes the environment that a model asks for; may take minutes.

Called in the child process of the supervisor and by `zmqtriton-ctl env prepare`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

from zmqtriton.environments import programs
from zmqtriton.environments.build import build_environment
from zmqtriton.environments.cache import ARCHIVES, EnvironmentCache
from zmqtriton.environments.demand import (
    ARCHIVE,
    DIRECTORY,
    REQUIREMENTS,
    Environment,
    EnvironmentSpec,
    check_directory,
    interpreter_path,
    process_variables,
)
from zmqtriton.environments.interpreters import find_interpreter, probe
from zmqtriton.environments.support import prepare_support_directory
from zmqtriton.environments.unpack import ArchiveLimits, environment_root, unpack
from zmqtriton.long_steps import Reporter
from zmqtriton_floor.errors import InternalError

#: conda-unpack rewrites every file that holds a path.
_CONDA_UNPACK_TIMEOUT_S = 600


def prepare_environment(
    demand: EnvironmentSpec, cache: EnvironmentCache, reporter: Reporter
) -> Environment:
    """Prepare an environment. Raises a ZmqTritonError that names cause and cure."""
    if demand.kind == DIRECTORY:
        reporter.log(
            "I",
            "Returning canonical path since EXECUTION_ENV_PATH does not contain compressed path. "
            f"Path: {demand.path}",
        )
        environment = _environment_at(demand.path)
    elif demand.kind == ARCHIVE:
        environment = _environment_at(_unpack_archive(demand.path, cache, reporter))
    else:
        environment = Environment(find_interpreter(demand.python))
    if demand.kind == REQUIREMENTS:
        environment = _environment_at(
            build_environment(demand.path, probe(environment), cache, reporter)
        )
    if environment.root:
        reporter.log("I", f"Using Python execution env {environment.root}")
        _warn_of_scripts(environment.root, reporter)
    interpreter = probe(environment)
    support = prepare_support_directory(interpreter, cache, reporter)
    return environment._replace(support_directory=support, user=demand.user)


def _warn_of_scripts(root: str, reporter: Reporter) -> None:
    folder = Path(root, "etc", "conda", "activate.d")
    names = sorted(path.name for path in folder.glob("*.sh"))
    if names:
        reporter.log(
            "W",
            f"the scripts in {folder} are not run: {', '.join(names)}. What they set must be in "
            "the server's environment",
        )


def _environment_at(root: str) -> Environment:
    is_conda = os.path.isdir(os.path.join(root, "conda-meta"))
    return Environment(interpreter_path(root), root, is_conda=is_conda)


def _unpack_archive(path: str, cache: EnvironmentCache, reporter: Reporter) -> str:
    """Unpack an archive and return the root of its environment."""
    with _open_archive(path) as file:
        before = os.fstat(file.fileno())
        name = cache.file_digest(file, path, reporter)

        def fill(tree: Path) -> None:
            reporter.log("I", f"Extracting Python execution env {path}")
            unpack(path, file, tree, reporter, ArchiveLimits())
            after = os.fstat(file.fileno())
            if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
                raise InternalError(f"The archive {path} was changed while it was unpacked")
            _run_conda_unpack(environment_root(tree), reporter)

        tree = cache.get_or_create(ARCHIVES, name, path, fill, reporter)
    root = str(environment_root(tree))
    if not os.access(interpreter_path(root), os.X_OK):
        cache.invalidate(ARCHIVES, name)  # the interpreter that it leads to is gone
    check_directory(root)
    return root


def _open_archive(path: str) -> IO[bytes]:
    try:
        return open(path, "rb")
    except OSError as error:
        raise InternalError(f"The archive {path} cannot be read: {error.strerror}") from error


def _run_conda_unpack(root: Path, reporter: Reporter) -> None:
    """Run conda-unpack, which replaces the old path in files by the new one."""
    check_directory(str(root))
    program = root / "bin" / "conda-unpack"
    if not program.is_file():
        return
    environment = _environment_at(str(root))
    programs.run(
        [environment.python, str(program)],
        f"Running {program}",
        reporter,
        variables=process_variables(environment, os.environ),
        within_s=_CONDA_UNPACK_TIMEOUT_S,
    )
