"""Node's `ws` speaks to a model: chunks of a sequence in, an answer to each out."""

from __future__ import annotations

import os
import re
import struct
import subprocess
from pathlib import Path

import pytest

from tests.support.needs import ROOT, find_tool, skip_missing
from tests.support.server import Server

pytestmark = pytest.mark.system

GUIDE = ROOT / "docs" / "guides" / "websockets.md"
#: Made by `make .venv-clients/stamp`, where there is npm.
NODE_MODULES = ROOT / ".venv-clients" / "node" / "node_modules"
CHUNK = 1600


def block(kind: str) -> str:
    """Return the block of the guide below its comment that begins so."""
    pattern = rf"<!-- example: {re.escape(kind)} -->\n\n(?:```\w+\n(.*?)^```|((?:    [^\n]*\n)+))"
    [(fenced, indented)] = re.findall(pattern, GUIDE.read_text("utf-8"), re.S | re.M)
    return fenced or re.sub(r"^    ", "", indented, flags=re.M)


def test_the_node_client_of_the_guide_streams_audio(tmp_path: Path) -> None:
    node = find_tool("node")
    if not (NODE_MODULES / "ws").is_dir():
        skip_missing("ws")
    model = tmp_path / "models" / "loudness"
    (model / "1").mkdir(parents=True)
    for name in ("config.pbtxt", "1/model.py"):
        (model / name).write_text(block(f"file models/loudness/{name}"))
    client = tmp_path / "client.js"
    client.write_text(
        block("tested: extras/zmqtriton_extras/web_sockets/tests/system/test_node.py")
    )
    chunks = [struct.pack("<h", 100 * n) * CHUNK for n in range(1, 40)]

    with Server(tmp_path / "s", models=[model], frontends=()) as server:
        finished = subprocess.run(
            [node, str(client), f"127.0.0.1:{server.http_port}"],
            input=b"".join(chunks)[:-10],
            env={**os.environ, "NODE_PATH": str(NODE_MODULES)},
            capture_output=True,
            timeout=60,
        )

    assert finished.returncode == 0, finished.stderr
    lines = [line.split() for line in finished.stdout.decode().splitlines()]
    heard = [sum((100 * k) ** 2 for k in range(1, n + 1)) / n for n in range(1, 40)]
    assert [str(number) for number in range(39)] == [own_id for own_id, _ in lines]
    assert [round(mean**0.5) for mean in heard[:-1]] == [
        int(loudness) for _, loudness in lines[:-1]
    ]
