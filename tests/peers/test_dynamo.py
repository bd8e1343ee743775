"""NVIDIA Dynamo serves a repository by its Triton worker, `python -m dynamo.triton`, over our shim.

Both its worker and its frontend run as its users start them. Run by `make test KIND=peers`.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from tests.support.needs import ROOT, environment_program
from tests.support.server import Server, free_ports
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(
        "ZT_PEERS" not in os.environ,
        reason="make test KIND=peers has an environment with Dynamo, and runs this",
    ),
]


@contextmanager
def running(directory: Path, module: str, *options: str) -> Iterator[Path]:
    """Run a module of Dynamo's; yield what it prints. It must end by itself."""
    output = directory / f"{module}.log"
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "packages" / "tritonserver"),
        # from this one on it passes a callback for the log
        "NVIDIA_TRITON_SERVER_VERSION": "26.08",
        "DYN_FILE_KV": str(directory / "discovery"),
    }
    command = [str(environment_program(".venv-dynamo")), "-m", module, "--discovery-backend=file"]
    with (
        output.open("wb") as file,
        subprocess.Popen(
            [*command, *options], env=environment, stdout=file, stderr=subprocess.STDOUT
        ) as process,
    ):
        try:
            yield output
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        finally:
            process.kill()


def test_its_frontend_and_worker_serve_our_models(tmp_path: Path) -> None:
    repository = Server(tmp_path / "s", models=["add_sub", "string_upper"]).repository
    port, metrics_port = free_ports(2)
    ones = np.ones((1, 16), np.float32)
    inputs = [triton.InferInput(name, [1, 16], "FP32") for name in ("INPUT0", "INPUT1")]
    for tensor in inputs:
        tensor.set_data_from_numpy(ones)
    text = triton.InferInput("INPUT0", [1, 2], "BYTES")
    text.set_data_from_numpy(np.array([[b"one", "zwölf".encode()]], dtype=object))

    ports = (f"--http-port={port}", f"--grpc-metrics-port={metrics_port}")
    with (
        running(tmp_path, "dynamo.frontend", "--kserve-grpc-server", *ports),
        running(tmp_path, "dynamo.triton", f"--model-repository={repository}") as worker,
        triton.InferenceServerClient(f"127.0.0.1:{port}") as client,
    ):

        def is_ready() -> bool:
            with suppress(InferenceServerException):
                return all(map(client.is_model_ready, ("add_sub", "string_upper")))
            return False

        eventually(is_ready, 120, "the models of the worker")
        total = client.infer("add_sub", inputs).as_numpy("OUTPUT0")
        upper = client.infer("string_upper", [text]).as_numpy("OUTPUT0")

    assert (ones + ones).tolist() == total.tolist()
    assert [[b"ONE", "ZWÖLF".encode()]] == upper.tolist()
    # the server's own line, in the worker's form
    assert re.search("INFO.*loading: add_sub:1", worker.read_text("utf-8", "replace"))
