"""Reads this Python, its libraries, the installation, and the Pythons of models.

Runs no interpreter of a model: the doctor may be root, and the model's directory somebody else's.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from zmqtriton.environments.ahead import read_environments
from zmqtriton.environments.demand import (
    DIRECTORY,
    INTERPRETER,
    REQUIREMENTS,
    EnvironmentSpec,
    interpreter_path,
)
from zmqtriton.environments.interpreters import candidate_paths, not_found_text
from zmqtriton.environments.programs import find_uv
from zmqtriton.supervisor.machine.gpus import NvmlError, list_nvml_gpus
from zmqtriton_addons.tools.doctor.facts import (
    Gpu,
    Installation,
    Interpreter,
    Kernel,
    ModelPython,
    Package,
)
from zmqtriton_floor import __version__
from zmqtriton_floor.errors import ZmqTritonError

_PACKAGE = "zmqtriton"
_PREFIX_OF_DISTRIBUTIONS = "/usr"
_OLDEST = (3, 8)
_PROGRAM_VERSION = re.compile(r"python(\d+)\.(\d+)")
_REQUIREMENT = re.compile(r"([\w.-]+)\s*(?:\(?([^;)]*)\)?)?")
_CONDITION = re.compile(r"(>=|<=|==|!=|<|>)\s*([\d.]+)")
_CUPY = ("cupy", "cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x")


def read_interpreter() -> Interpreter:
    built_with = sysconfig.get_config_var("CONFIG_ARGS")
    flags = f"{built_with} {sysconfig.get_config_var('PY_CORE_CFLAGS')}"
    is_optimized = "--enable-optimizations" in flags or "-fprofile-use" in flags
    # distributions have their own ways, which leave no trace
    is_of_distribution = sys.base_prefix == _PREFIX_OF_DISTRIBUTIONS
    return Interpreter(
        sys.executable,
        is_optimized or is_of_distribution or not built_with,
        bool(sysconfig.get_config_var("Py_DEBUG")),
        sys.getfilesystemencoding(),
    )


# ------------------------------------------------------------------ libraries


def read_packages() -> Iterator[Package]:
    """Read the libraries that the installed package asks for, without those of extras."""
    try:
        requirements = importlib.metadata.requires(_PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        return
    for text in requirements:
        found = _REQUIREMENT.match(text)
        if found is None or "extra ==" in text:
            continue
        name, conditions = found[1], (found[2] or "").strip()
        version = ""
        with suppress(importlib.metadata.PackageNotFoundError):
            version = importlib.metadata.version(name)
        yield Package(name, f"{name}{conditions}", version, is_accepted(version, conditions))


def is_accepted(version: str, conditions: str) -> bool:
    """Return True if a version fulfils conditions such as `>=4.1,<5`; "" never does."""
    have = _numbers(version)
    if not have:
        return False
    for operator, text in _CONDITION.findall(conditions):
        wanted = _numbers(text)
        size = max(len(have), len(wanted))
        a, b = (each + (0,) * (size - len(each)) for each in (have, wanted))
        is_met = {">=": a >= b, "<=": a <= b, "==": a == b, "!=": a != b, "<": a < b, ">": a > b}
        if not is_met[operator]:
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


def read_installation() -> Installation:
    recorded = ""
    with suppress(importlib.metadata.PackageNotFoundError):
        recorded = importlib.metadata.version(_PACKAGE)
    beside = os.path.realpath(os.path.dirname(sys.executable))
    found = (shutil.which(_PACKAGE, path=folder) for folder in os.get_exec_path())
    others = {path for path in found if path and os.path.realpath(os.path.dirname(path)) != beside}
    # a link to the program beside this one is no other installation
    others = {path for path in others if os.path.dirname(os.path.realpath(path)) != beside}
    # the first one counts, if it is not ours
    first = shutil.which(_PACKAGE)
    return Installation(__version__, recorded, tuple(o for o in sorted(others) if o == first))


def read_installed_s() -> float:
    return Path(__file__).stat().st_mtime


# --------------------------------------------------------------- models' Pythons


def read_model_pythons(repositories: Iterable[str], *, may_build: bool) -> Iterator[ModelPython]:
    """Read what the models of the repositories ask for."""
    for path in repositories:
        with suppress(ZmqTritonError, OSError):  # the repository itself is judged elsewhere
            for asked in read_environments(Path(path), may_build=may_build):
                if isinstance(asked.result, EnvironmentSpec):
                    yield _read_spec(asked.model, asked.result)
                elif isinstance(asked.result, ZmqTritonError):
                    yield ModelPython(asked.model, asked.result.text)


def _read_spec(model: str, spec: EnvironmentSpec) -> ModelPython:
    if spec.kind == DIRECTORY:
        return ModelPython(model, _age_problem(interpreter_path(spec.path)))
    requirements = spec.path if spec.kind == REQUIREMENTS else ""
    if spec.kind not in (INTERPRETER, REQUIREMENTS):
        return ModelPython(model)
    if "/" in spec.python:
        return ModelPython(model, _age_problem(spec.python), requirements)
    candidates = candidate_paths(spec.python)
    if not candidates:
        return ModelPython(model, not_found_text(spec.python), requirements)
    return ModelPython(model, _age_problem(candidates[0]), requirements)


def _age_problem(python: str) -> str:
    version = guess_version(python)
    if version and version < _OLDEST:
        return f"{python} is Python {version[0]}.{version[1]}; models need 3.8 or newer"
    return ""


def guess_version(python: str) -> tuple[int, int] | None:
    """Return the version of an interpreter by names and files alone; None if they do not tell."""
    folder = Path(python).parent.parent
    names = [python, os.path.realpath(python), *map(str, folder.glob("lib/python3.*"))]
    for name in names:
        found = _PROGRAM_VERSION.search(os.path.basename(name))
        if found:
            return int(found[1]), int(found[2])
    return None


def has_uv() -> bool:
    return find_uv() is not None


# ------------------------------------------------------------- GPUs and the kernel


def read_gpu(root: Path = Path("/")) -> Gpu:
    devices = sorted((root / "dev").glob("nvidia[0-9]*"))
    problem, count = "", 0
    try:
        count = len(list_nvml_gpus())
    except OSError:
        problem = "its library libnvidia-ml.so.1 is missing"
    except NvmlError as error:
        problem = str(error)
    cupy = ""
    for name in _CUPY:
        with suppress(importlib.metadata.PackageNotFoundError):
            cupy = importlib.metadata.version(name)
    forbidden = [str(path) for path in devices if not os.access(path, os.R_OK | os.W_OK)]
    return Gpu(bool(devices), tuple(forbidden), problem, count, cupy)


def read_kernel() -> Kernel:
    """Try the calls that no old kernel and no strict container has."""
    calls: dict[str, Callable[[], int]] = {"pidfd_open": lambda: os.pidfd_open(os.getpid())}
    if hasattr(os, "memfd_create"):  # without it, the server calls the kernel itself
        calls["memfd_create"] = lambda: os.memfd_create("doctor", os.MFD_CLOEXEC)
    failing = {}
    for name, call in calls.items():
        try:
            os.close(call())
        except (OSError, AttributeError) as error:
            failing[name] = getattr(error, "strerror", None) or str(error)
    libc = "an unknown C library"
    with suppress(ValueError, OSError):
        libc = os.confstr("CS_GNU_LIBC_VERSION") or libc
    return Kernel(os.uname().release, libc, failing)
