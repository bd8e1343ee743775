"""The package of the guide "Extend the server", installed as it is printed, and used."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.server import ROOT, Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

GUIDE = ROOT / "docs" / "guides" / "extending.md"
#: A file of the package: its path, then a comment for tests of pages, then its text.
FILE = re.compile(r"^`([\w./]+)`:\n\n<!--.*?-->\n\n```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CONFIGURATION = re.compile(r"^```\n(# models/seven.*?)^```$", re.MULTILINE | re.DOTALL)

#: A process of somebody else's: it hears of the server's models and writes their names.
MIRROR = """
import asyncio, pathlib, sys
from zmqtriton_floor.lifeline import Lifeline
from zmqtriton_frontends.gateway.gateway import Gateway

async def run():
    gateway = Gateway(Lifeline.inherited(int(sys.argv[sys.argv.index("--lifeline") + 1])))
    stopped = asyncio.Event()
    gateway.on_stop = lambda within_ms: stopped.set()
    await gateway.start()
    names = [version.name for version in gateway.catalogue.newest()]
    pathlib.Path(gateway.settings.server.runtime_directory, "mirror").write_text(" ".join(names))
    await stopped.wait()
    gateway.close()

asyncio.run(run())
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the package of the guide, and a process that the test adds to it."""
    source = tmp_path_factory.mktemp("source")
    files = dict(FILE.findall(GUIDE.read_text("utf-8")))
    files["model_ages/constant/__init__.py"] = ""
    files["model_ages/mirror.py"] = MIRROR
    row = '[project.entry-points."zmqtriton.processes"]\nmirror = "model_ages.mirror"\n\n'
    files["pyproject.toml"] = files["pyproject.toml"].replace("[tool.", f"{row}[tool.", 1)
    for name, text in files.items():
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    target = tmp_path_factory.mktemp("target")
    uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--offline", "--no-deps"]
    uv += ["--no-build-isolation", "--python", sys.executable, "--target", str(target)]
    subprocess.run([*uv, str(source)], check=True)
    return target


@pytest.fixture(scope="module")
def server(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("server")
    roots = os.pathsep.join((str(installed), os.environ.get("PYTHONPATH", "")))
    run = f"--runtime-directory={directory}/run"
    server = Server(directory, options=[run], environment={"PYTHONPATH": roots}, frontends=())
    model = server.repository / "seven"
    (model / "1").mkdir(parents=True)
    [configuration] = CONFIGURATION.findall(GUIDE.read_text("utf-8"))
    (model / "config.pbtxt").write_text(configuration)
    with server:
        yield server


def ctl(server: Server, installed: Path, *words: str) -> str:
    command = [sys.executable, "-m", "zmqtriton.ctl.main", *words]
    roots = os.pathsep.join((str(installed), os.environ.get("PYTHONPATH", "")))
    environment = {
        **os.environ,
        "PYTHONPATH": roots,
        "RUNTIME_DIRECTORY": f"{server.directory}/run",
    }
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_its_command_speaks_to_the_server(server: Server, installed: Path) -> None:
    assert re.fullmatch(r"seven seven_0 \d+\n", ctl(server, installed, "ages"))
    assert "Print the age of each instance" in ctl(server, installed, "--help")


def test_its_route_is_served(server: Server) -> None:
    status, document = server.request_json("/ages")

    assert (200, ["seven"]) == (status, document["models"])


def test_its_backend_runs_a_model(server: Server) -> None:
    status, answer = server.request_json("/v2/models/seven/infer", {"inputs": []})

    assert (200, [7.0]) == (status, answer["outputs"][0]["data"])


def test_its_process_hears_of_models_and_is_replaced(server: Server, installed: Path) -> None:
    def mirror() -> dict[str, Any]:
        status = json.loads(ctl(server, installed, "status", "-o", "json"))
        [process] = [p for p in status["processes"] if p["role"] == "add-on:mirror"]
        return dict(process)

    names = server.directory / "run" / "0" / "mirror"
    eventually(names.exists, 60)
    names.unlink()
    os.kill(mirror()["pid"], signal.SIGKILL)

    eventually(lambda: names.exists() and names.read_text() == "seven", 60)
    assert 1 == mirror()["restarts"]
