"""A server with ZT_POISON=1 names a tensor that is read after its block is free."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tritonclient.http as http_client

from tests.support import poison
from tests.support.clients import infer_inputs
from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.system,
    pytest.mark.large_tensors,
    pytest.mark.long(
        "floor/test_poison.py::test_a_line_names_a_block_and_its_cause",
        "floor/test_poison.py::test_a_free_block_is_filled_at_once",
    ),
]

VALUES = np.ones(100_000, np.float32)

CONFIG = """
backend: "python"
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""
#: A model with a fault of the server: it frees its output before the client has it.
TOO_EARLY = """
import triton_python_backend_utils as pb_utils
from zmqtriton_stub import instance

class TritonPythonModel:
    def execute(self, requests):
        [request] = requests
        values = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
        output = pb_utils.Tensor.empty("OUTPUT0", values.shape, values.dtype)
        output.as_numpy()[:] = values + 1
        memory = instance.here().memory
        for _, whole in memory.outputs.blocks.values():
            memory.arena.leases.end([whole.block])
        return [pb_utils.InferenceResponse([output])]
"""
#: A model that keeps an input in spite of the server, which lets its owner use the memory again.
KEEPING = """
import triton_python_backend_utils as pb_utils
from zmqtriton_stub import instance

kept = []

class TritonPythonModel:
    def execute(self, requests):
        [request] = requests
        mappings = instance.here().memory.mappings
        mappings.detach = lambda blocks: None
        kept.append(pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy())
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", kept[-1] + 1)])]
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "s", ["identity_fp32"], environment={"ZT_POISON": "1"}, frontends=())
    server.write_model("too_early", CONFIG, TOO_EARLY)
    server.write_model("keeping", CONFIG, KEEPING)
    server.start()

    yield server

    assert os.EX_OK == server.stop()


def _infer(server: Server, model: str) -> np.ndarray:
    with http_client.InferenceServerClient(f"127.0.0.1:{server.http_port}") as client:
        result = client.infer(model, infer_inputs(http_client, INPUT0=VALUES))
    return result.as_numpy("OUTPUT0")


def _findings(server: Server, pattern: str) -> list[str]:
    return [line for line in poison.findings_in(server.log_text()) if re.search(pattern, line)]


def test_an_output_that_is_freed_too_early_and_an_input_that_is_kept_are_named(
    server: Server,
) -> None:
    assert np.array_equal(VALUES, _infer(server, "identity_fp32"))
    assert not poison.findings_in(server.log_text())

    assert not np.array_equal(VALUES + 1, _infer(server, "too_early"))
    eventually(
        lambda: _findings(server, "a tensor was read after"), 60, "a finding of the frontend"
    )
    [line] = _findings(server, "a tensor was read after its block was free: block 1 of segment 1")
    assert line.startswith("E")
    assert "tensor 'OUTPUT0', opened by" in line
    assert "freed: the owner's lease ended" in line
    line = _findings(server, "a lease of a free block: block 1")[0]
    assert "in too_early_0" in line

    for _ in range(2):
        assert np.array_equal(VALUES + 1, _infer(server, "keeping"))

    eventually(lambda: _findings(server, "while it was kept"), 60, "a finding of the instance")
    line = _findings(server, "while it was kept")[0]
    assert line.startswith("E")
    assert "tensor 'INPUT0', opened by" in line
    assert "freed: the owner's lease ended by payload.take_back" in line
    assert "in keeping_0" in line
