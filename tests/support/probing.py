"""Runs code in the model api_probe of a real server, which reports what the code returns.

Probe(server).ask("return pb_utils.get_model_dir()")
"""

from __future__ import annotations

import json
import queue
import textwrap
from typing import Any

import numpy as np
import tritonclient.grpc as grpc_client

from tests.support.server import Server

Tensors = tuple[dict[str, Any], ...]

#: An output, as code.
REPORT = "pb_utils.Tensor('REPORT', np.array([b'7'], object))"


class ErrorResponse(Exception):
    """The server's answer is an error."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status} {text}")


def add_probes(server: Server) -> None:
    """The models api_probe and api_probe_decoupled."""
    server.add_model("api_probe")
    with (server.add_model("api_probe", "api_probe_decoupled") / "config.pbtxt").open("a") as file:
        file.write("model_transaction_policy { decoupled: true }\n")


class Probe:
    """A client of the probes of one server."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def run(self, code: str, **more: Any) -> Any:
        """Return what the code returns, or raises as text."""
        [report] = self.infer(code, **more)["outputs"]
        [value] = report["data"]
        return json.loads(value)

    def infer(self, code: str, inputs: Tensors = (), **fields: Any) -> Any:
        """The whole response, to code that answers by itself."""
        row = {"name": "CODE", "shape": [1], "datatype": "BYTES", "data": [textwrap.dedent(code)]}
        return self.post("api_probe", {"inputs": [row, *inputs], **fields})

    def post(self, model: str, document: Any) -> Any:
        status, answer = self.server.request_json(f"/v2/models/{model}/infer", document)
        if status != 200:
            raise ErrorResponse(status, answer["error"])
        return answer

    def stream(self, code: str, count: int, model: str = "api_probe_decoupled") -> list[Any]:
        """So many responses or errors."""
        answers: queue.Queue[Any] = queue.Queue()
        with grpc_client.InferenceServerClient(self.server.grpc_address) as client:
            client.start_stream(lambda result, error: answers.put(error or result))
            client.async_stream_infer(model, [_input(code)])
            got = [answers.get(timeout=60) for _ in range(count)]
            client.stop_stream()
        return got


def _input(code: str) -> Any:
    tensor = grpc_client.InferInput("CODE", [1], "BYTES")
    tensor.set_data_from_numpy(np.array([textwrap.dedent(code)], np.object_))
    return tensor
