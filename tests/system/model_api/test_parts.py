"""Requests above max_batch_size to models that execute them in parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton

from tests.support.clients import infer_inputs
from tests.support.scripted import string_parameter
from tests.support.server import Server, Written
from tests.support.waiting import eventually

SPLIT = string_parameter("SPLIT_BATCHES", "true")
BATCHING = "dynamic_batching { }\n"
LIMIT = 4
INPUTS = """input [
  { name: "X" data_type: TYPE_FP32 dims: [ -1 ] },
  { name: "S" data_type: TYPE_STRING dims: [ 1 ] optional: true }
]
"""
CONFIG = f"""backend: "python"
max_batch_size: {LIMIT}
{INPUTS}
output [
  {{ name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }},
  {{ name: "ROWS" data_type: TYPE_INT32 dims: [ 1 ] }},
  {{ name: "T" data_type: TYPE_STRING dims: [ 1 ] }}
]
"""
#: Of those that ask for it, with larger batches.
LARGE = """max_batch_size: 1000
input { name: "X" data_type: TYPE_FP32 dims: [ -1 ] }
output [
  { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] },
  { name: "ROWS" data_type: TYPE_INT32 dims: [ 1 ] }
]
"""
BODY = """
import json, os, time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    %sdef execute(self, requests):
        return [self.answer(one) for one in requests]

    def answer(self, request):
        inputs = {one.name(): one.as_numpy() for one in request.inputs()}
        x = inputs["X"]
        if x[0, 0] < 0:  # it waits until its client has left
            path = inputs["S"][0, 0].decode()
            with open(path + ".begun", "a") as file:
                file.write(f"{len(x)} ")
            while not request.is_cancelled():
                time.sleep(0.005)
        if (x == 13).any():
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("thirteen is refused"))
        if (x == 14).any():
            raise ValueError("fourteen raises")
        strings = inputs.get("S", np.full([len(x), 1], b"", np.object_))
        return pb_utils.InferenceResponse([
            pb_utils.Tensor("Y", 2 * x),
            pb_utils.Tensor("ROWS", np.full([len(x), 1], len(x), np.int32)),
            pb_utils.Tensor("T", b"<" + strings + b">"),
        ])
"""
CALLER = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceRequest(
                model_name="parts", inputs=one.inputs(), requested_output_names=["Y", "ROWS"]
            ).exec()
            for one in requests
        ]
"""
ENSEMBLE = """ensemble_scheduling { step [ {
  model_name: "parts" model_version: -1
  input_map { key: "X" value: "X" }
  output_map { key: "Y" value: "Y" }
  output_map { key: "ROWS" value: "ROWS" }
} ] }
"""
pytestmark = [
    pytest.mark.system,
    pytest.mark.large_tensors,
    pytest.mark.server(
        models=[
            Written("parts", CONFIG + SPLIT + BATCHING, BODY % ""),
            Written(
                "coroutines",
                CONFIG + SPLIT + string_parameter("MAX_INFLIGHT", "4"),
                BODY % "async ",
            ),
            Written(
                "threads",
                CONFIG + SPLIT + string_parameter("INSTANCES", "threads") + BATCHING,
                BODY % "",
            ),
            Written("chain", 'platform: "ensemble"\n' + LARGE + ENSEMBLE),
            Written("caller", 'backend: "python"\n' + LARGE, CALLER),
        ]
    ),
]


def rows(count: int, *values: float) -> np.ndarray:
    """Return numbers whose first ones are these, one in a row."""
    return np.array([*values, *range(100, 100 + count - len(values))], np.float32).reshape(-1, 1)


def ask(server: Server, model: str, x: np.ndarray, *outputs: str, **inputs: Any) -> Any:
    with triton.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        requested = [triton.InferRequestedOutput(name) for name in outputs] or None
        return client.infer(model, infer_inputs(triton, X=x, **inputs), outputs=requested)


@pytest.mark.parametrize("model", ["parts", "coroutines", "threads", "chain", "caller"])
def test_a_large_batch_is_executed_in_parts_and_joined(server: Server, model: str) -> None:
    x = rows(10)

    answer = ask(server, model, x, "Y", "ROWS")

    assert (2 * x).tolist() == answer.as_numpy("Y").tolist()
    assert [4] * 8 + [2] * 2 == answer.as_numpy("ROWS").ravel().tolist()


def test_large_tensors_are_joined_in_shared_memory(server: Server) -> None:
    x = np.random.default_rng(1).random((11, 50_000), np.float32)

    assert np.array_equal(2 * x, ask(server, "parts", x, "Y").as_numpy("Y"))


def test_the_error_of_any_part_is_that_of_the_request(server: Server) -> None:
    for value, text in ((13.0, "thirteen is refused"), (14.0, "ValueError: fourteen raises")):
        x = rows(12)
        x[9] = value
        with pytest.raises(triton.InferenceServerException, match=text):
            ask(server, "parts", x)


def test_a_client_that_leaves_ends_the_parts_to_come(server: Server, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    begun = tmp_path / "go.begun"
    strings = np.full([12, 1], str(tmp_path / "go").encode(), np.object_)
    with triton.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        inputs = infer_inputs(triton, X=rows(12, -1.0), S=strings)
        call = client.async_infer("parts", inputs, lambda result, error: None)
        eventually(begun.exists, 60, "the first part has begun")
        call.cancel()

        later = ask(server, "parts", rows(1), "Y")

    assert ([[200.0]], "4 ") == (later.as_numpy("Y").tolist(), begun.read_text())
