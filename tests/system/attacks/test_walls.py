"""What a model may not read though it runs as the server's user."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.server import ROOT

pytestmark = pytest.mark.system

#: A user without any power, whose files are those of whoever runs the tests.
_POWERLESS = ["unshare", "--user", "--map-user=1000"]
_ASK = """
import json, sys
from pathlib import Path
from tests.support.server import Server

def may_read(pid):
    try:
        open(f"/proc/{pid}/mem", "rb").close()
    except PermissionError:
        return False
    return True

with Server(Path(sys.argv[1]) / "s", models=["add_sub"]) as server:
    found = {role: any(map(may_read, pids)) for role, pids in server.pids().items()}
    assert server.stop(20) == 0
print(json.dumps(found))
"""


def test_a_model_cannot_read_the_memory_of_the_server(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([*_POWERLESS, "true"], check=False).returncode:
        pytest.skip("user namespaces are not allowed here")
    path = os.pathsep.join(str(ROOT / part) for part in (".", "stub", "frontends"))

    asked = subprocess.run(
        [*_POWERLESS, sys.executable, "-c", _ASK, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )

    found = json.loads(asked.stdout.splitlines()[-1])
    assert {"fork-server", "stub"} == {role for role, is_readable in found.items() if is_readable}
    assert {"supervisor", "broker", "http", "grpc", "metrics"} < found.keys()
