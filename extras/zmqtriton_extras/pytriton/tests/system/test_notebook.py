"""The notebook of the examples, executed by Jupyter's kernel."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.server import ROOT, free_ports
from zmqtriton_extras.authoring.example import folders

pytestmark = pytest.mark.system

#: In a process of its own, since what Jupyter opens it leaves open.
EXECUTE = """
import sys, nbformat
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], 4)
NotebookClient(notebook, timeout=100).execute()
nbformat.write(notebook, sys.argv[2])
"""


def test_cells_bind_ask_and_bind_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    http, grpc, metrics = free_ports(3)
    for name, port in (("HTTP", http), ("GRPC", grpc), ("METRICS", metrics)):
        monkeypatch.setenv(f"PYTRITON_TRITON_CONFIG_{name}_PORT", str(port))
    monkeypatch.setenv("PYTRITON_TRITON_CONFIG_HTTP_ADDRESS", "127.0.0.1")
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    source, done = folders()["notebook"] / "bind.ipynb", tmp_path / "done.ipynb"
    command = [sys.executable, "-c", EXECUTE, str(source), str(done)]

    subprocess.run(command, check=True, timeout=200, cwd=ROOT)

    cells = json.loads(done.read_text())["cells"]
    shown = [_result(cell) for cell in cells if cell["cell_type"] == "code"]
    assert [result for result in shown if result] == [
        f"'http://127.0.0.1:{http}'",
        "array([[ 0.,  2.,  4.],\n       [ 6.,  8., 10.]], dtype=float32)",
        "array([[10., 10., 10.]], dtype=float32)",
        "array([[-1., -1., -1.]], dtype=float32)",
        "[0, 1, 2, 3, 4]",
        "True",
    ]


def _result(cell: Any) -> str:
    results = [output for output in cell["outputs"] if output["output_type"] == "execute_result"]
    return "".join(results[0]["data"]["text/plain"]) if results else ""
