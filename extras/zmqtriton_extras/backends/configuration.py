"""The settings of a model as backends of frameworks read them, with Triton's rules.

Knows no framework. Faults raise TritonModelException, whose text is the load's reason.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import triton_python_backend_utils as pb_utils


def require(backend: str, module: str, packages: str, error: ImportError) -> Any:
    """Return the error for a module that this interpreter lacks; raise any other error."""
    if error.name is not None and error.name.partition(".")[0] != module:
        raise error
    return pb_utils.TritonModelException(
        f"backend '{backend}' needs the module '{module}', which {sys.executable} lacks ({error}); "
        f"install it with: {sys.executable} -m pip install {packages}"
    )


def parameter(config: dict[str, Any], name: str, default: str = "") -> str:
    """Return a parameter of the configuration, or else the command line's value, or the default."""
    parameter = (config.get("parameters") or {}).get(name)
    if parameter is not None:
        return str(parameter.get("string_value", ""))
    settings = pb_utils.get_backend_settings()
    return str(settings.get(name, settings.get(name.replace("_", "-"), default)))


def number(config: dict[str, Any], name: str, default: int, least: int = 0) -> int:
    """Return a parameter that is an integer."""
    text = parameter(config, name)
    if not text:
        return default
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise pb_utils.TritonModelException(
            f"parameter '{name}' of model '{config['name']}' must be an integer of at least "
            f"{least}, got '{text}'"
        )
    return value


def flag(config: dict[str, Any], name: str, default: bool) -> bool:
    """Return a parameter that is true or false."""
    text = parameter(config, name).lower()
    if not text:
        return default
    if text not in ("true", "false", "1", "0", "yes", "no", "on", "off"):
        raise pb_utils.TritonModelException(
            f"parameter '{name}' of model '{config['name']}' must be true or false, got '{text}'"
        )
    return text in ("true", "1", "yes", "on")


def threads(config: dict[str, Any], name: str = "intra_op_thread_count") -> int:
    """Return the threads of one instance: the configured number, or its share of the cores.

    The instances of a model on the CPU share the cores, so that they do not fight for them. 0
    leaves the number to the framework. An instance with cores of its own (CORES) has their number.
    """
    shared = max(1, len(os.sched_getaffinity(0)) // cpu_instances(config))
    return number(config, name, int(os.environ.get("ZMQTRITON_THREADS", shared)))


def limit_spinning() -> None:
    """Shorten the spinning of waiting threads of GNU's OpenMP, unless the user has set it.

    They spin for milliseconds, and other processes need the core here. Call this before the
    framework is imported.
    """
    if not any(name in os.environ for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")):
        # what it takes itself where there are more threads than cores
        os.environ["GOMP_SPINCOUNT"] = "1000"


def cpu_instances(config: dict[str, Any]) -> int:
    groups = config.get("instance_group") or []
    on_cpu = [group for group in groups if group.get("kind") != "KIND_GPU"]
    return max(1, sum(max(1, int(group.get("count", 1))) for group in on_cpu))


def find_file(config: dict[str, Any], *defaults: str) -> str:
    """Return the path of the model's file: the configured one, or the first default that exists."""
    directory = pb_utils.get_model_dir()
    named = config.get("default_model_filename")
    names = [named, *defaults] if named else list(defaults)
    for name in names:
        path = os.path.join(directory, name)
        if os.path.exists(path):
            return path
    listed = "' or '".join(os.path.join(directory, name) for name in dict.fromkeys(names))
    raise pb_utils.TritonModelException(f"unable to find '{listed}' for model '{config['name']}'")


def read_json(path: str) -> Any:
    """Return the document in a file. Raises TritonModelException if it is not JSON."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except ValueError as error:
        raise pb_utils.TritonModelException(
            f"{path} is not valid JSON, correct it: {error}"
        ) from error
