"""Each kind of offers has a host, which uses the guest that a temporary add-on has of it.

Kinds are found in the sources: a new one fails here until it has a guest.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.server import ROOT, Server
from tests.system.operations import guests
from tools.core_alone import environment_of
from tools.reference.kinds import kinds

pytestmark = [pytest.mark.system, pytest.mark.addons]

#: Rooms of standard whose offers would be first.
_LEFT_OUT = {"control_groups", "history"}
_MODEL = """
import os
from pathlib import Path
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        with open(os.environ["ZT_GUESTS"], "a") as file:
            file.write("models.backend\\n")

    def execute(self, requests):
        return [pb_utils.InferenceResponse([]) for _ in requests]
"""
_TASK = """
import os

def run(subject):
    with open(os.environ["ZT_GUESTS"], "a") as file:
        file.write("stub.task\\n")
    return {}
"""
_CONFIG = """backend: "guest"
input { name: "IN" data_type: TYPE_STRING dims: 1 }
output { name: "OUT" data_type: TYPE_FP32 dims: 1 }
parameters { key: "GUEST" value { string_value: "1" } }
"""
_REQUEST = {"inputs": [{"name": "IN", "shape": [1], "datatype": "BYTES", "data": ["x"]}]}
_PYTHON = 'parameters { key: "PYTHON_EXECUTABLE" value { string_value: "python3" } }'


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The packages by links, without the extras, and with the guests in their place."""
    tree = tmp_path / "tree"
    standard, shelf = tree / "standard/zmqtriton_standard", tree / "extras/zmqtriton_extras"
    standard.mkdir(parents=True)
    for name in ("zmqtriton", "stub", "frontends"):
        (tree / name).symlink_to(ROOT / name)
    for room in (ROOT / "standard/zmqtriton_standard").iterdir():
        if room.name not in _LEFT_OUT:
            (standard / room.name).symlink_to(room)
    shelf.mkdir(parents=True)
    # the host of two kinds
    (shelf / "authoring").symlink_to(ROOT / "extras/zmqtriton_extras/authoring")
    files = {
        shelf / "__init__.py": "",
        shelf / "guests/__init__.py": Path(guests.__file__).read_text("utf-8"),
        shelf / "guests/task.py": _TASK,
        shelf / "guests/backend/__init__.py": "",
        shelf / "guests/backend/model.py": _MODEL,
        shelf / "guests/files/__init__.py": "",
        shelf / "guests/files/guest.js": guests.SHOWN["page.files"],
        tmp_path / "repository/seen/config.pbtxt": _CONFIG,
        tmp_path / "repository/seen/1/model.py": "",
        tmp_path / "repository/other/config.pbtxt": _CONFIG + _PYTHON,
        tmp_path / "repository/other/1/model.py": "",
        tmp_path / "repository/seen/guest.txt": "of a guest",
        tmp_path / "functions.py": "def one(x: float) -> float: ...\n",
    }
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return tree


def test_each_kind_has_a_host_that_uses_its_guest(tree: Path, tmp_path: Path) -> None:
    site, notes = tmp_path / "site", tmp_path / "notes"
    site.mkdir()
    notes.touch()
    environment = environment_of(tree, site, "standard", "extras") | {"ZT_GUESTS": str(notes)}

    def run(*words: str) -> str:
        line = [sys.executable, *words]
        done = subprocess.run(line, env=environment, capture_output=True, text=True, cwd=tmp_path)
        return done.stdout + done.stderr

    shown = "".join(_from_commands(run)) + "".join(_from_server(run, tmp_path, environment))

    used = {*notes.read_text().split(), *(k for k, text in guests.SHOWN.items() if text in shown)}
    assert [] == sorted({kind.name for kind in kinds()} - used)


def _from_commands(run: Callable[..., str]) -> Iterator[str]:
    yield run("-m", "zmqtriton", "--help")
    yield run("-m", "zmqtriton", "check", "repository", "functions.py")
    yield run("-m", "zmqtriton", "new", "guest")
    yield run("-m", "zmqtriton.ctl.main", "--help")
    claim = "from zmqtriton.supervisor.machine.directories.claims import claim_storage as claim"
    yield run("-c", f"{claim}; claim(['s3://bucket/models']).remove()")
    files = "from zmqtriton.config.files import *; from zmqtriton.config.pbtxt import parse_text"
    read = "read_client_files(parse_text(''), Path('repository/seen'), client_files(lambda _: 1))"
    yield run("-c", f"{files}; print({read}.files)")
    guide = (
        "from zmqtriton_extras.authoring.run import guide; from zmqtriton.options import Options"
    )
    yield run("-c", f"{guide}; print(guide('seen', Options(), 1, {{'name': 'seen'}}))")


def _from_server(
    run: Callable[..., str], directory: Path, environment: dict[str, str]
) -> Iterator[str]:
    place = directory / "server"
    options = [f"--runtime-directory={place}/run"]
    named = ("--runtime-directory", f"{place}/run")
    ctl = ("-m", "zmqtriton.ctl.main", *named)
    own = {name: environment[name] for name in ("PYTHONPATH", "ZT_GUESTS")}
    server = Server(place, options=options, environment=own)
    server.write_model("seen", _CONFIG)
    (server.repository / "seen/guest.txt").write_text("of a guest")
    (server.repository / "seen/1/model.py").touch()
    with server:
        yield str(server.request_json("/v2/models/seen/infer", _REQUEST))
        for path in ("/v2", "/openapi.json", "/pages/guest.js"):
            yield server.exchange(path).body.decode()
        server.metrics_page()
        yield from (run(*ctl, *words.split()) for words in ("explain seen", "doctor", "stats"))
        connected = f"import zmqtriton; server = zmqtriton.connect(path={str(place / 'run')!r})"
        asks = "print(server.metrics(), server.control('guests.task')); server.seen"
        yield run("-c", f"{connected}; {asks}")
