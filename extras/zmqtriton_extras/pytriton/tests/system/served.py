"""A Triton of this process, and the way of an ordinary client to it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.server import free_ports
from zmqtriton_extras.pytriton.model_config import Tensor
from zmqtriton_extras.pytriton.triton import Triton, TritonConfig

FLOATS = Tensor(shape=(-1,), dtype=np.float32)


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def configured(directory: Path, **more: Any) -> TritonConfig:
    http, grpc, metrics = free_ports(3)
    return TritonConfig(
        http_address="127.0.0.1",
        http_port=http,
        grpc_port=grpc,
        metrics_port=metrics,
        log_file=directory / "log.txt",
        **more,
    )


class Served:
    """A Triton and the way of an ordinary client to it."""

    def __init__(self, triton: Triton, port: int) -> None:
        self.triton = triton
        self.url = f"http://127.0.0.1:{port}"

    def call(self, path: str, document: Any = None) -> tuple[int, Any]:
        body = None if document is None else json.dumps(document).encode()
        try:
            with urllib.request.urlopen(f"{self.url}{path}", body, timeout=60) as answer:
                status, content = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                status, content = error.code, error.read()
        return status, json.loads(content) if content else None

    def ask(self, model: str, **inputs: Any) -> dict[str, Any]:
        """The outputs as lists, or the error under ""."""
        rows = [
            {
                "name": name,
                "datatype": "BYTES" if array.dtype.kind == "O" else "FP32",
                "shape": array.shape,
                "data": [
                    value.decode() if isinstance(value, bytes) else float(value)
                    for value in array.flat
                ],
            }
            for name, array in inputs.items()
        ]
        status, answer = self.call(f"/v2/models/{model}/infer", {"inputs": rows})
        if status != 200:
            return {"": answer["error"]}
        return {row["name"]: row["data"] for row in answer["outputs"]}
