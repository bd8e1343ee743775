"""Finds CPythons other than the one that runs the tests, and makes them fit for models.

ZT_PYTHONS names versions that this machine must have, and paths of interpreters that are nowhere
else. Environments are kept in the user's cache, one for each version: only the first run installs.
"""

from __future__ import annotations

import fcntl
import glob
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from tests.support.needs import LeftOut

VERSIONS = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
#: Those that the server itself runs on.
OF_SERVERS = VERSIONS[2:]
#: Free-threaded ones, which models may name.
FREE_THREADED = ("3.13t", "3.14t")
_PACKAGES = ("pyzmq", "msgpack", "numpy")
_VERSION_PROGRAM = (
    "import sys, sysconfig; free = bool(sysconfig.get_config_var('Py_GIL_DISABLED')); "
    "print('%d.%d' % sys.version_info[:2] + 't' * free, sys.implementation.name)"
)


@cache
def find_python(version: str) -> str | None:
    """An interpreter of this version that runs; shims that only complain are passed over."""
    name = f"python{version}"
    pyenv = os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
    number = version.rstrip("t")
    candidates = [
        sys.executable,
        *(word for word in _words() if "/" in word),
        *(shutil.which(name, path=folder) for folder in os.get_exec_path()),
        *glob.glob(f"{pyenv}/versions/{number}.*/bin/python"),
        *glob.glob(os.path.expanduser(f"~/.local/share/uv/python/cpython-{number}.*/bin/python")),
    ]
    for candidate in candidates:
        if candidate is not None and _runs_version(candidate, version):
            return candidate
    return None


def _words() -> list[str]:
    return os.environ.get("ZT_PYTHONS", "").split()


def versions_that_must_be_here() -> list[str]:
    return [word for word in _words() if "/" not in word]


def _runs_version(python: str, version: str) -> bool:
    answer = subprocess.run(
        [python, "-c", _VERSION_PROGRAM], capture_output=True, text=True, check=False
    )
    return answer.stdout.split() == [version, "cpython"]


def environment_python(version: str) -> str | None:
    """The interpreter of an environment with what stubs need; None where there is no such Python.

    Raises CalledProcessError where the packages cannot be had.
    """
    base = find_python(version)
    if base is None:
        return None
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    home = Path(cache) / "zmqtriton-tests" / f"python-{version}"
    home.mkdir(parents=True, exist_ok=True)
    python = str(home / "venv" / "bin" / "python")
    with open(home / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "ready").exists() or not _runs_version(python, version):
            _create_venv(base, home / "venv", python)
            (home / "ready").touch()
    return python


def reason(version: str) -> str:
    """Why there is no such environment; empty if there is one."""
    try:
        if environment_python(version):
            return ""
    except subprocess.CalledProcessError as error:
        return f"no packages for CPython {version}: {error}"
    return f"no CPython {version} here"


def python_or_skip(version: str) -> str:
    """The interpreter of an environment with what stubs need; without one the test is skipped.

    No machine has all.
    """
    if why := reason(version):
        raise LeftOut(why)
    return str(environment_python(version))


def base_or_skip(version: str) -> str:
    """An interpreter of this version; without one the test is skipped."""
    base = find_python(version)
    if base is None:
        raise LeftOut(f"no CPython {version} here")
    return base


def versions_here() -> list[str]:
    """Return those that this machine has, at least that of the tests."""
    return [version for version in VERSIONS if find_python(version)]


def _create_venv(base: str, venv: Path, python: str) -> None:
    shutil.rmtree(venv, ignore_errors=True)
    uv = shutil.which("uv", path=os.path.dirname(sys.executable)) or shutil.which("uv")
    if uv is not None:
        _run(uv, "venv", "--quiet", "--python", base, str(venv))
        # otherwise uv would build the newest ones where older ones have wheels
        wheels = ("--only-binary", "pyzmq", "--only-binary", "numpy")
        _run(uv, "pip", "install", "--quiet", *wheels, "--python", python, *_PACKAGES)
    else:
        _run(base, "-m", "venv", str(venv))
        _run(python, "-m", "pip", "install", "--quiet", *_PACKAGES)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
