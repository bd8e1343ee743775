"""Environments and files of single machines, made before their servers start.

Environments are installed once, below .venv-machines, until setup.cfg changes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.stub.interpreters import find_python
from tests.support.needs import ROOT
from tests.support.scripted import extend_config, string_parameter
from tests.support.server import Server, status_of
from tests.support.waiting import eventually

_UV = ROOT / ".venv-uv" / "bin" / "uv"
_HOME = ROOT / ".venv-machines"
#: An interpreter that is not one of an environment: what users begin with.
BASE_PYTHON = Path(os.path.realpath(sys.executable))


_making = threading.Lock()
_Words = Sequence[str | Path]


def why_no_uv() -> str:
    return "" if _UV.exists() else f"{_UV} is missing"


def why_no_old_python() -> str:
    return why_no_uv() or ("" if find_python("3.8") else "there is no Python 3.8")


def lowest() -> Path:
    """Return the Python of an environment with the oldest packages that setup.cfg allows."""
    folder = _HOME / "lowest"
    words = ["pip", "install", "--resolution=lowest-direct", f"--python={folder}"]
    # those that nobody need compile
    wheels = ["--only-binary=:all:", "--no-binary=zmqtriton"]
    _make(folder, [_venv(folder), [_UV, *words, *wheels, "--editable", ROOT]])
    return folder / "bin" / "python"


def uv_tool() -> Path:
    """Return the Python of `uv tool install zmqtriton`."""
    folder = _HOME / "uv-tool"
    places = {"UV_TOOL_DIR": str(folder), "UV_TOOL_BIN_DIR": str(folder / "bin")}
    _make(
        folder,
        [[_UV, "tool", "install", "--force", "--python", BASE_PYTHON, "--editable", ROOT]],
        places,
    )
    return folder / "zmqtriton" / "bin" / "python"


def pipx() -> Path:
    """Return the Python of `pipx install zmqtriton`."""
    folder = _HOME / "pipx"
    own = _HOME / "pipx-itself"
    places = {"PIPX_HOME": str(folder), "PIPX_BIN_DIR": str(folder / "bin")}
    words: _Words = [
        own / "bin" / "pipx",
        "install",
        "--force",
        "--python",
        BASE_PYTHON,
        "--editable",
        ROOT,
    ]
    install: _Words = [_UV, "pip", "install", f"--python={own}", "pipx"]
    _make(folder, [_venv(own), install, words], places)
    return folder / "venvs" / "zmqtriton" / "bin" / "python"


def of_model(name: str, *packages: str, python: Path = BASE_PYTHON) -> Path:
    """Return the folder of an environment for a model, with these packages alone."""
    folder = _HOME / name
    install: _Words = [_UV, "pip", "install", f"--python={folder}", *packages]
    _make(folder, [_venv(folder, python), *([install] if packages else [])])
    return folder


def _venv(folder: Path, python: Path = BASE_PYTHON) -> _Words:
    return [_UV, "venv", "--clear", f"--python={python}", folder]


def _make(folder: Path, commands: Sequence[_Words], places: dict[str, str] | None = None) -> None:
    stamp = _HOME / f"{folder.name}.stamp"
    environment = os.environ | (places or {})
    # two installations of one tree write the same files
    with _making:
        if stamp.exists() and stamp.stat().st_mtime > (ROOT / "setup.cfg").stat().st_mtime:
            return
        _HOME.mkdir(exist_ok=True)
        for command in commands:
            subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        stamp.touch()


# ------------------------------------------------------------------------------ files

#: Functions of the C library, in which this machine has 64 processors.
_CORES = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>
int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set) {
    memset(set, 0, size);
    memset(set, 255, size < 8 ? size : 8);
    return 0;
}
long sysconf(int name) {
    if (name == _SC_NPROCESSORS_ONLN || name == _SC_NPROCESSORS_CONF) return 64;
    return ((long (*)(int))dlsym(RTLD_NEXT, "sysconf"))(name);
}
"""
#: Holds the GIL, as code in C does that computes; and a request that never ends.
_HOLDER = """
import ctypes
class TritonPythonModel:
    def initialize(self, args):
        ctypes.PyDLL(None).sleep(3600)
"""
_SLEEPER = """
import pathlib
import time
class TritonPythonModel:
    def execute(self, requests):
        pathlib.Path("@SCRATCH@/begun").touch()
        time.sleep(3600)
"""
_CONFIG = """
backend: "python"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU } ]
"""


def make_lost_and_found(server: Server) -> None:
    (server.repository / "lost+found").mkdir(mode=0o700)


def give_away(owner: int) -> Callable[[Server], None]:
    """Return what makes the repository one of this user, closed to others."""

    def prepare(server: Server) -> None:
        for path in (server.repository, *server.repository.rglob("*")):
            os.chown(path, owner, owner)
        server.repository.chmod(0o700)

    return prepare


def make_config_map(server: Server) -> None:
    """Lay a model out as Kubernetes mounts a ConfigMap: all by links, which one rename changes."""
    model = server.repository / "identity_fp32"
    first = model / "..2024_01"
    first.mkdir()
    for name in ("config.pbtxt", "1"):
        (model / name).rename(first / name)
        (model / name).symlink_to(f"..data/{name}")
    (model / "..data").symlink_to(first.name)


def flip_config_map(server: Server) -> None:
    model = server.repository / "identity_fp32"
    following = model / "..2024_02"
    shutil.copytree(model / "..2024_01", following)
    with (following / "1" / "model.py").open("a") as code:
        code.write("\n# another version\n")
    (model / "..data_tmp").symlink_to(following.name)
    (model / "..data_tmp").rename(model / "..data")
    shutil.rmtree(model / "..2024_01")


def install_for_user(server: Server) -> None:
    """Make the packages of this environment those of the user, as `pip install --user` does."""
    version = "python{}.{}".format(*sys.version_info)
    place = server.directory.parent / "home" / ".local" / "lib" / version / "site-packages"
    place.mkdir(parents=True)
    installed = Path(sys.prefix) / "lib" / version / "site-packages"
    (place / "all.pth").write_text(f"import site; site.addsitedir({str(installed)!r})\n")


def build_cores(server: Server) -> None:
    place = server.directory.parent
    source = place / "cores.c"
    source.write_text(_CORES)
    words = ["gcc", "-shared", "-fPIC", "-o", f"{place}/cores.so", str(source), "-ldl"]
    subprocess.run(words, check=True)


def use_environment(make: Callable[[], Path]) -> Callable[[Server], None]:
    """Return what makes the model run in an environment of its own."""

    def prepare(server: Server) -> None:
        extend_config(server, "identity_fp32", string_parameter("EXECUTION_ENV_PATH", str(make())))

    return prepare


def bare_environment() -> Path:
    return of_model("bare")


def old_environment() -> Path:
    python = find_python("3.8")
    assert python is not None
    return of_model("old-numpy", "numpy==1.17.5", python=Path(python))


def add_holder(server: Server) -> None:
    _add(server, "holder", _HOLDER)


def load_holder(server: Server) -> None:
    """Begin a load that does not end, and holds the GIL."""
    url = f"{server.url}/v2/repository/models/holder/load"
    threading.Thread(target=lambda: _post(url), daemon=True).start()
    eventually(lambda: "loading: holder:1" in server.log_text(), 60, "the load")


def add_sleeper(server: Server) -> None:
    _add(server, "sleeper", _SLEEPER)


def ask_sleeper(server: Server) -> None:
    """Begin a request that does not end."""
    url = f"{server.url}/v2/models/sleeper"
    tensor = b'{"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1], "data": [1]}]}'
    threading.Thread(target=lambda: _post(f"{url}/infer", tensor), daemon=True).start()
    eventually((server.scratch / "begun").exists, 60, "the request")


def _add(server: Server, name: str, code: str) -> None:
    server.write_model(name, _CONFIG, code.replace("@SCRATCH@", str(server.scratch)))


def _post(url: str, body: bytes = b"{}") -> None:
    status_of(urllib.request.Request(url, body, method="POST"), 3600)
