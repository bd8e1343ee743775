"""Environments of machines: installed once, below .venv-machines, until setup.cfg changes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from tests.conftest import ROOT
from tests.stub.interpreters import find_python

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
