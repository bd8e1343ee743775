"""Finds out which Python a model asks for, and how its instances are started.

Looks at names on disk, runs nothing and makes nothing.
"""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import zmqtriton_floor
from zmqtriton.repository.file_state import file_state
from zmqtriton_floor.errors import InternalError, Unsupported
from zmqtriton_floor.reasons import Kind

_MODEL_DIRECTORY = "$$TRITON_MODEL_DIRECTORY"
ARCHIVE_SUFFIXES = (".tar.gz", ".tgz", ".tar", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst")
#: Files of requirements next to a model, the one that counts first.
REQUIREMENT_FILES = ("requirements.txt", "pyproject.toml")
#: Name of a stub that Triton runs in place of its own.
_TRITON_STUB = "triton_python_backend_stub"
_YES = frozenset({"yes", "true", "on", "1"})
_NO = frozenset({"no", "false", "off", "0"})

DIRECTORY: Final = "directory"
ARCHIVE: Final = "archive"
REQUIREMENTS: Final = "requirements"
INTERPRETER: Final = "interpreter"


class GuestHost(NamedTuple):
    """A guest that runs the instances of a model in its own process."""

    guest: int
    #: The guest's own number for the model.
    binding: int


class Environment(NamedTuple):
    """The interpreter, the packages and the user of an instance's process."""

    python: str
    #: The directory of a virtual or conda environment; "" for a plain interpreter.
    root: str = ""
    #: The modules that stubs need and this Python lacks, or "".
    support_directory: str = ""
    #: The user that the process runs as; "" for the server's own.
    user: str = ""
    #: None unless it is a process that the server has not started.
    host: GuestHost | None = None
    #: True if the directory was made by conda.
    is_conda: bool = False

    @property
    def is_server_environment(self) -> bool:
        """True for the server's interpreter and packages, with nothing added."""
        return self._replace(user="") == SERVER_ENVIRONMENT

    @staticmethod
    def check_directory(root: str) -> None:
        """Check an environment. Raises an error that says what it lacks."""
        if not os.path.exists(os.path.join(root, "bin", "activate")):
            raise InternalError(
                f"Path {root}/bin/activate does not exist. The Python environment should contain "
                "an 'activate' script."
            )
        if not os.access(Environment.interpreter_in(root), os.X_OK):
            raise InternalError(f"The Python environment {root} has no bin/python that can be run.")

    @staticmethod
    def interpreter_in(root: str) -> str:
        """Return the interpreter.

        Not resolved further, as an environment knows itself by its own link.
        """
        return os.path.join(root, "bin", "python")

    def variables(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return all variables of a model's process."""
        merged = {**inherited, **variable_overrides(self, inherited)}
        return {name: value for name, value in merged.items() if value is not None}


SERVER_ENVIRONMENT = Environment(sys.executable)


class EnvironmentSpec(NamedTuple):
    """A description to be checked, unpacked or built before there is an Environment."""

    kind: Literal["directory", "archive", "requirements", "interpreter"]
    #: The directory, archive or requirements file.
    path: str = ""
    #: Interpreter: a path, or a name like python3.11.
    python: str = sys.executable
    #: Mark of what `path` names; it changes when that has changed.
    fingerprint: str = ""
    #: The user that prepares it, which runs programs of the model, and that the model runs as.
    user: str = ""

    def __str__(self) -> str:
        if self.kind == INTERPRETER:
            return f"the interpreter {self.python}"
        if self.kind == REQUIREMENTS:
            return f"an environment for {self.path} with {self.python}"
        return f"the environment {self.path}"


def resolve_environment(
    config: Any, model_dir: Path, *, may_build: bool, of_backend: str = ""
) -> Environment | EnvironmentSpec:
    """Return the environment that the parameters ask for. Raises an error if it is not usable.

    `of_backend` is the archive that the model's backend brings, for models that ask for nothing.
    """
    path = _parameter(config, "EXECUTION_ENV_PATH", model_dir)
    if path:
        return _spec_of_path(path)
    named = _parameter(config, "PYTHON_EXECUTABLE", model_dir)
    if "/" in named and not (os.access(named, os.X_OK) and os.path.isfile(named)):
        missing = InternalError(f"PYTHON_EXECUTABLE '{named}' must be a program that can be run")
        raise missing.because(Kind.INTERPRETER_MISSING, python=named)
    python = named or sys.executable
    requirements = _requirements(config, model_dir, may_build=may_build)
    if requirements:
        return EnvironmentSpec(REQUIREMENTS, requirements, python, _file_fingerprint(requirements))
    if of_backend and not named:
        return _spec_of_path(of_backend)
    if python == sys.executable:
        return SERVER_ENVIRONMENT
    return EnvironmentSpec(INTERPRETER, "", python)


def ignored_stub_warnings(model_dir: Path) -> list[str]:
    """Return a warning if there is a Triton stub beside the model."""
    stub = model_dir / _TRITON_STUB
    if not stub.exists():
        return []
    return [
        f"ignore {stub}: a stub for another Python is not needed; name the Python in "
        "EXECUTION_ENV_PATH or PYTHON_EXECUTABLE"
    ]


def _parameter(config: Any, name: str, model_dir: Path) -> str:
    if name not in config.parameters:
        return ""
    return str(config.parameters[name].string_value).replace(_MODEL_DIRECTORY, str(model_dir))


def _spec_of_path(path: str) -> EnvironmentSpec:
    if path.endswith(".zip"):
        raise Unsupported(
            f"EXECUTION_ENV_PATH '{path}' is a .zip; pack the environment as .tar.gz, or name a "
            "directory"
        )
    if not os.path.exists(path):
        error = InternalError(f"Failed to get the canonical path for {path}.")
        raise error.because(Kind.ENVIRONMENT_MISSING, path=path)
    root = os.path.realpath(path)
    if path.endswith(ARCHIVE_SUFFIXES) and not os.path.isdir(root):
        return EnvironmentSpec(ARCHIVE, root, fingerprint=_file_fingerprint(root))
    Environment.check_directory(root)
    return EnvironmentSpec(DIRECTORY, root)


def _requirements(config: Any, model_dir: Path, *, may_build: bool) -> str:
    """Return the file of requirements, or "" if no environment must be built."""
    value = _parameter(config, "PYTHON_REQUIREMENTS", model_dir)
    if value and value.lower() not in _YES | _NO:
        path = model_dir / value
        if not path.is_file():
            raise InternalError(
                f"PYTHON_REQUIREMENTS '{value}': there is no file {path}; write it, or remove the "
                "parameter"
            )
        return os.path.realpath(path)
    if value.lower() in _NO or not (value or may_build):
        return ""
    for name in REQUIREMENT_FILES:
        if (model_dir / name).is_file():
            return os.path.realpath(model_dir / name)
    if value:
        names = " or ".join(REQUIREMENT_FILES)
        raise InternalError(
            f"PYTHON_REQUIREMENTS is '{value}', but {model_dir} has no {names}; add it"
        )
    return ""


def _file_fingerprint(path: str) -> str:
    return f"{path} {file_state(os.stat(path))}"


def variable_overrides(
    environment: Environment, inherited: Mapping[str, str]
) -> dict[str, str | None]:
    """Return the variables that differ from the server's own; None removes one."""
    if environment.is_server_environment:
        return {}
    # Variables of the environment from which the server was started, if one was active.
    changed: dict[str, str | None] = dict.fromkeys(
        ("VIRTUAL_ENV", "VIRTUAL_ENV_PROMPT", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYTHONHOME")
    )
    own = zmqtriton_floor.__file__
    if site.ENABLE_USER_SITE and own.startswith(f"{site.getusersitepackages()}/"):
        # otherwise its packages would come before those of the environment
        changed["PYTHONNOUSERSITE"] = "1"
    root = environment.root
    if not root:
        return changed
    if environment.is_conda:
        changed |= {"CONDA_PREFIX": root, "CONDA_DEFAULT_ENV": os.path.basename(root)}
    else:
        changed["VIRTUAL_ENV"] = root
    for name, folder in (("PATH", "bin"), ("LD_LIBRARY_PATH", "lib")):
        rest = inherited.get(name, "")
        changed[name] = os.path.join(root, folder) + (f":{rest}" if rest else "")
    return changed
