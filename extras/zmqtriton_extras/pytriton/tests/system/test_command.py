"""The command `python -m pytriton`: an example, and a workspace that it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.server import free_ports

pytestmark = pytest.mark.system


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    ports = dict(zip(("HTTP", "GRPC", "METRICS"), free_ports(3), strict=True))
    variables = {f"PYTRITON_TRITON_CONFIG_{name}_PORT": str(port) for name, port in ports.items()}
    return subprocess.run(
        [sys.executable, "-m", "zmqtriton.pytriton", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **variables, "PYTRITON_TRITON_CONFIG_HTTP_ADDRESS": "127.0.0.1"},
    )


@pytest.mark.long(
    "extras/pytriton/test_checks.py::test_a_script_runs_beside_its_caller_and_its_output_is_kept",
    "extras/pytriton/system/test_triton.py::test_the_first_model_answers",
)
def test_an_example_runs_in_a_script_of_its_own_and_its_log_is_kept(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"

    result = _run("example-add-sub-script", "-w", str(workspace))

    assert result.returncode == 0, result.stderr
    with zipfile.ZipFile(tmp_path / "workspace.zip") as archive:
        log = archive.read("example_add_sub_script_log.txt").decode()
    assert "AddSub answers {'OUTPUT_1': array([3., 4., 5., 6.]" in log
    assert "server process finished with 0" in log


def test_a_workspace_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    result = _run("env", "--workspace", str(tmp_path))

    assert result.returncode == 1
    assert f"Workspace path {tmp_path} already exists" in result.stderr
    assert [] == [*tmp_path.iterdir()]
