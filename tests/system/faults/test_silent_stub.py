"""A stub that lives, does nothing, and hears nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

_DEAF = """
import ctypes, threading, time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        # a library in C that never gives the interpreter back
        threading.Timer(0.5, ctypes.PyDLL(None).sleep, (1000,)).start()
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())])
                for r in requests]
"""
_CONFIG = """
backend: "python"
input { name: "IN" data_type: TYPE_FP32 dims: [ 1 ] }
output { name: "OUT" data_type: TYPE_FP32 dims: [ 1 ] }
"""


@pytest.mark.timeout(300)
def test_an_idle_stub_that_does_not_answer_is_replaced(tmp_path: Path) -> None:
    server = Server(tmp_path / "s", models=[])
    directory = server.repository / "deaf"
    (directory / "1").mkdir(parents=True)
    (directory / "config.pbtxt").write_text(_CONFIG)
    (directory / "1" / "model.py").write_text(_DEAF)
    tensor = {"name": "IN", "shape": [1], "datatype": "FP32", "data": [1.0]}

    with server:
        before = server.stub_pids("deaf")
        assert 200 == server.request_json("/v2/models/deaf/infer", {"inputs": [tensor]})[0]

        eventually(lambda: before[0] not in server.stub_pids("deaf"), 120, "the stub is gone")
        eventually(lambda: server.status("/v2/models/deaf/ready") == 200, 60, "the next one")
        assert 200 == server.request_json("/v2/models/deaf/infer", {"inputs": [tensor]})[0]
        assert "does not answer its broker" in server.log_text()
