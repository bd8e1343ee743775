"""Which Python runs a model: the one that its parameters name, else the server's.

Looks at names on disk and runs nothing. Called while a model is read.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from zmqtriton_floor.errors import InternalError, Unsupported

_MODEL_DIRECTORY = "$$TRITON_MODEL_DIRECTORY"
_ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip", ".tar.zst", ".tar.bz2", ".tar.xz")


def find_interpreter(config: Any, model_dir: Path) -> str:
    """Its path. Raises what is wrong with what the parameters name."""
    environment = _parameter(config, "EXECUTION_ENV_PATH", model_dir)
    if environment:
        return _of_environment(environment)
    named = _parameter(config, "PYTHON_EXECUTABLE", model_dir)
    if not named:
        return sys.executable
    if not os.access(named, os.X_OK) or os.path.isdir(named):
        raise InternalError(f"PYTHON_EXECUTABLE '{named}' is no program that can be run")
    return named


def _parameter(config: Any, name: str, model_dir: Path) -> str:
    if name not in config.parameters:
        return ""
    value = str(config.parameters[name].string_value)
    return value.replace(_MODEL_DIRECTORY, str(model_dir))


def _of_environment(path: str) -> str:
    if path.endswith(_ARCHIVES):
        raise Unsupported(
            f"EXECUTION_ENV_PATH '{path}' is an archive, which is not supported yet; unpack it "
            "and name the directory"
        )
    if not os.path.exists(path):
        raise InternalError(f"Failed to get the canonical path for {path}.")
    root = os.path.realpath(path)
    if not os.path.exists(os.path.join(root, "bin", "activate")):
        raise InternalError(
            f"Path {root}/bin/activate does not exist. The Python environment should contain an "
            "'activate' script."
        )
    # Not resolved further: an environment knows itself by the path of its own link.
    python = os.path.join(root, "bin", "python")
    if not os.access(python, os.X_OK):
        raise InternalError(f"The Python environment {root} has no bin/python that can be run.")
    return python
