"""The clients of docs/guides/clients.md, as their users would run them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import zmqtriton_protos
from tests.support.needs import ROOT, find_tool, skip_missing
from tests.support.server import DEMO_MODELS as DEMO
from tests.support.server import Server

GUIDE = ROOT / "docs" / "guides" / "clients.md"
CLIENTS = ROOT / "docs" / "guides" / "grpc_clients"
PROTOS = Path(zmqtriton_protos.__file__).parent
#: Made by `make .venv-clients/stamp`, where there is npm.
NODE_MODULES = ROOT / ".venv-clients" / "node" / "node_modules"
PRINTED = ["HELLO", "one", "word", "after", "the", "other"]
pytestmark = [
    pytest.mark.system,
    pytest.mark.server(models=[DEMO / "string_upper", DEMO / "tokens"]),
]


def printed(command: list[str], directory: Path, **variables: str) -> list[str]:
    """Return the lines that a client prints, after it has ended well."""
    environment = {**os.environ, **variables}
    finished = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=60
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.splitlines()


def _program_in(guide: Path) -> str:
    """Return the block of Python that can be saved as a file and run."""
    blocks = re.findall(
        r"^```python\n(.*?)^```", guide.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    (program,) = (block for block in blocks if "sys.argv" in block)
    return program


def test_the_python_client_of_the_guide(server: Server, tmp_path: Path) -> None:
    compiler = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTOS}"]
    outputs = ["--python_out=.", "--grpc_python_out=."]
    printed([*compiler, *outputs, "grpc_service.proto", "model_config.proto"], tmp_path)
    (tmp_path / "client.py").write_text(_program_in(GUIDE))

    address = f"127.0.0.1:{server.grpc_port}"
    assert printed([sys.executable, "client.py", address], tmp_path) == PRINTED


def test_the_javascript_client_of_the_guide(server: Server, tmp_path: Path) -> None:
    node = find_tool("node")
    if not (NODE_MODULES / "@grpc" / "grpc-js").is_dir():
        skip_missing("@grpc/grpc-js")

    address = f"127.0.0.1:{server.grpc_port}"
    command = [node, str(CLIENTS / "client.js"), address]
    assert printed(command, tmp_path, PROTOS=str(PROTOS), NODE_PATH=str(NODE_MODULES)) == PRINTED
