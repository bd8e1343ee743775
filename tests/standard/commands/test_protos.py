"""`zmqtriton protos`: what it writes, and that its line for Python makes a client."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from zmqtriton.main import main


def test_the_line_for_python_makes_a_client(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert 0 == main(["protos", "our api/protos"])

    printed = [line.strip() for line in capsys.readouterr().out.splitlines()]
    line = next(line for line in printed if line.startswith("python "))
    subprocess.run([sys.executable, *shlex.split(line)[1:]], check=True, cwd=tmp_path)
    text = "import grpc_service_pb2_grpc as api; print(api.GRPCInferenceServiceStub.__name__)"
    made = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert ("GRPCInferenceServiceStub\n", "") == (made.stdout, made.stderr)


def test_a_directory_that_cannot_be_made_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()

    assert 1 == main(["protos", f"{tmp_path}/file/protos"])

    assert f"error: {tmp_path}/file/protos: Not a directory\n" == capsys.readouterr().err
