"""Imports of processes at their start."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "module",
    [
        pytest.param("zmqtriton_addons.fleet.announcing.__main__", marks=pytest.mark.addons),
        "zmqtriton_frontends.grpc_api.__main__",
        "zmqtriton_frontends.metrics_api.__main__",
    ],
)
def test_processes_that_look_into_no_tensors_start_without_numpy(module: str) -> None:
    """It takes a fifth of a second, and several processes start at once."""
    code = f"import sys, {module}; sys.exit('numpy' in sys.modules)"

    assert 0 == subprocess.run([sys.executable, "-c", code], check=False).returncode
