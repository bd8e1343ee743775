"""The bare roots of `make test-bare`: what is left of them when it is killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.needs import ROOT, find_tool
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

_START = """
import sys
from pathlib import Path
from tools import bare_roots
bare_roots._ENTER = "sleep 600"  # in no root, but in namespaces of its own
print(bare_roots.start(bare_roots.Machine(Path(sys.argv[1]))).pid, flush=True)
sys.stdin.read()
"""


def test_a_kill_ends_all_that_runs_in_a_root(tmp_path: Path) -> None:
    find_tool("setpriv", package="util-linux")
    find_tool("unshare", package="util-linux")
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        pytest.skip("namespaces need root's rights")
    with subprocess.Popen(
        [sys.executable, "-c", _START, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        unshare = psutil.Process(int(process.stdout.readline()))
        eventually(
            lambda: any(one.name() == "sleep" for one in unshare.children(recursive=True)), 30
        )
        [shell, *others] = unshare.children(recursive=True)

        process.kill()

    processes = unshare, shell, *others
    eventually(lambda: not any(one.is_running() for one in processes), 30, "all have ended")
