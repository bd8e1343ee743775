"""This Python, its libraries and installations, GPUs and the clock."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sized
from contextlib import suppress
from pathlib import Path

from zmqtriton.commit import full_version
from zmqtriton.diagnosis.facts.readings import ROOT
from zmqtriton.diagnosis.rules.machine import read_limit
from zmqtriton.findings import Finding
from zmqtriton.host.gpus import NvmlError, list_nvml_gpus
from zmqtriton_floor import __version__

_PACKAGE = "zmqtriton"
#: Has files of the server, under their names.
_CLIENT = "zmqtriton-client"
_REQUIREMENT = re.compile(r"([\w.-]+)\s*(?:\(?([^;)]*)\)?)?")
_MARKER = re.compile(r"(\w+)\s*(>=|<=|==|!=|<|>)\s*[\"']([^\"']*)")
_CONDITION = re.compile(r"(>=|<=|==|!=|<|>)\s*([\d.]+)")
_PINNED_BYTES = 64 << 20
_DAY_S = 86400


def judge_interpreter() -> Iterator[Finding]:
    if sysconfig.get_config_var("Py_DEBUG"):
        yield Finding.warning(
            f"{sys.executable} is a debug build, which is several times slower",
            "Install the server into a usual Python.",
            "uv venv --python 3.12 /opt/zmqtriton",
        )
    elif not _is_optimized():
        yield Finding.note(
            f"{sys.executable} was built without --enable-optimizations (PGO), so it is slower",
            "Python of a distribution, of conda or of uv has it; of pyenv only with "
            "PYTHON_CONFIGURE_OPTS='--enable-optimizations --with-lto'.",
            "uv venv --python 3.12 /opt/zmqtriton",
        )


def _is_optimized() -> bool:
    arguments = sysconfig.get_config_var("CONFIG_ARGS")
    flags = f"{arguments} {sysconfig.get_config_var('PY_CORE_CFLAGS')}"
    # distributions have their own ways, which leave no trace
    is_of_distribution = sys.base_prefix == "/usr"
    has_flags = "--enable-optimizations" in flags or "-fprofile-use" in flags
    return has_flags or is_of_distribution or not arguments


def judge_packages() -> Iterator[Finding]:
    """Judge the libraries that the installed package asks for, without those of extras."""
    try:
        requirements = importlib.metadata.requires(_PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        return
    for text in requirements:
        match = _REQUIREMENT.match(text)
        if match is None or not is_for_here(text.partition(";")[2]):
            continue
        name, conditions = match[1], (match[2] or "").strip()
        version = _version_of(name)
        if not is_accepted(version, conditions):
            yield Finding.error(
                f"the library {name} {f'is {version}' if version else 'is missing'}; "
                f"zmqtriton needs {name}{conditions}",
                "Something else has changed the environment. Install the server into one of its "
                "own.",
                f"{sys.executable} -m pip install '{name}{conditions}'",
            )


def is_for_here(markers: str) -> bool:
    """Return True if a requirement's markers select this Python, without extras."""
    for name, operator, value in _MARKER.findall(markers):
        if name == "python_version":
            holds = is_accepted(platform.python_version(), f"{operator}{value}")
        else:
            # another marker, such as that of an extra: rather none than a false alarm
            holds = name == "sys_platform" and (operator == "==") == (value == sys.platform)
        if not holds:
            return False
    return True


def is_accepted(version: str, conditions: str) -> bool:
    """Return True if a version fulfils conditions such as `>=4.1,<5`; "" never does."""
    have = _numbers(version)
    if not have:
        return False
    for operator, text in _CONDITION.findall(conditions):
        needed = _numbers(text)
        length = max(len(have), len(needed))
        a, b = (each + (0,) * (length - len(each)) for each in (have, needed))
        is_met = {">=": a >= b, "<=": a <= b, "==": a == b, "!=": a != b, "<": a < b, ">": a > b}
        if not is_met[operator]:
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()


def _version_of(package: str) -> str:
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return ""


def judge_installations(server_pid: int = 0, server_version: str = "") -> Iterator[Finding]:
    if server_pid and server_version != full_version():
        yield Finding.warning(
            f"the server is zmqtriton {server_version}, and this program is {full_version()}",
            "Replace the server by `zmqtriton-ctl replace`, or use the zmqtriton-ctl of its "
            "installation.",
            f"ls -l /proc/{server_pid}/exe",
        )
    recorded = _version_of(_PACKAGE)
    if recorded.partition("+")[0] != __version__:
        yield Finding.warning(
            f"the code is zmqtriton {__version__}, and its package says {recorded or 'nothing'}",
            "Files of two versions are mixed. Install it again.",
            f"{sys.executable} -m pip install --force-reinstall zmqtriton",
        )
    if client := _version_of(_CLIENT):
        yield Finding.warning(
            f"{_CLIENT} {client} is installed beside the server, which has the same files",
            "Its removal would break the server. Remove it now, and install the server again.",
            f"{sys.executable} -m pip uninstall --yes {_CLIENT}",
            f"{sys.executable} -m pip install --force-reinstall --no-deps zmqtriton=={__version__}",
        )
    # the first one counts; a link to the program beside this one is no other installation
    first = shutil.which(_PACKAGE) or sys.executable
    beside = os.path.realpath(os.path.dirname(sys.executable))
    if beside not in (
        os.path.realpath(os.path.dirname(first)),
        os.path.dirname(os.path.realpath(first)),
    ):
        yield Finding.note(
            f"PATH has another installation: {first}",
            "`zmqtriton` may start that one. Name the program by its whole path.",
            "type -a zmqtriton",
        )


def judge_gpus(
    pid: int, root: Path = ROOT, list_gpus: Callable[[], Sized] = list_nvml_gpus
) -> Iterator[Finding]:
    devices = sorted((root / "dev").glob("nvidia[0-9]*"))
    problem, count = "", 0
    try:
        count = len(list_gpus())
    except NvmlError as failure:
        problem = str(failure)
    except OSError:
        problem = "its library libnvidia-ml.so.1 is missing"
    if devices and problem:
        yield Finding.warning(
            f"there is an NVIDIA GPU, and its driver does not answer: {problem}",
            "Models of KIND_GPU are refused. Driver and library may be of two versions until the "
            "next start of the machine; in a container, use --gpus all.",
            "nvidia-smi",
        )
    for path in devices:
        if not os.access(path, os.R_OK | os.W_OK):
            yield Finding.warning(
                f"this user may not open {path}",
                "Add the users of the server and its models to the groups video and render.",
                f"ls -l {path}",
            )
    locked = read_limit("locked memory", pid, root)
    if count and locked < _PINNED_BYTES:
        yield Finding.note(
            f"a process may lock {locked / 1024:g} KiB of memory only",
            "CUDA may need more for copies to the GPU. Set LimitMEMLOCK=infinity in the unit, or "
            "`ulimit -l` of the shell.",
            "ulimit -l unlimited",
        )
    yield from _judge_cupy(has_devices=bool(devices), count=count)


def _judge_cupy(*, has_devices: bool, count: int) -> Iterator[Finding]:
    version = next(
        filter(None, map(_version_of, ("cupy", "cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x"))), ""
    )
    if count and not version:
        yield Finding.note(
            "there is a GPU, and cupy is missing",
            "It is needed where tensors stay on the GPU between models or come from clients there.",
            f"{sys.executable} -m pip install cupy-cuda12x",
        )
    if version and not has_devices:
        yield Finding.note(
            f"cupy {version} is installed, and no GPU can be seen",
            "In a container, use --gpus all. Without a GPU it is not needed.",
            "nvidia-smi",
        )


def judge_clock(now_s: float) -> Iterator[Finding]:
    if now_s < Path(__file__).stat().st_mtime - _DAY_S:
        yield Finding.warning(
            "the clock of this machine is wrong: it is before this program was installed",
            "Certificates and tokens are judged by it, and log lines have its times.",
            "timedatectl",
        )
