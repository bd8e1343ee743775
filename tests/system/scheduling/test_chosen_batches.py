"""A real server chooses delay and size of batches, and says what it chose."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.server import Server, tensor
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

MODEL = """
import time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        time.sleep(0.01)
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("Y", one.inputs()[0].as_numpy())])
            for one in requests
        ]
"""
CONFIG = """
backend: "python"
max_batch_size: 8
dynamic_batching { }
input { name: "X" data_type: TYPE_FP32 dims: [ 1 ] }
output { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] }
parameters { key: "BATCH_DELAY" value { string_value: "auto" } }
parameters { key: "BATCH_TARGET" value { string_value: "throughput" } }
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "s", options=["--model-control-mode=explicit"]) as running:
        directory = running.repository / "chosen"
        (directory / "1").mkdir(parents=True)
        (directory / "1" / "model.py").write_text(MODEL)
        (directory / "config.pbtxt").write_text(CONFIG)
        running.control_model("load", "chosen")
        yield running


@contextmanager
def clients(server: Server, count: int) -> Iterator[None]:
    """Clients that send their next request after a response."""
    is_over = threading.Event()

    def ask() -> None:
        while not is_over.is_set():
            status, _ = server.infer_json("chosen", tensor("X", "FP32", [0.5], [1, 1]))
            assert 200 == status

    with ThreadPoolExecutor(count) as pool:
        running = [pool.submit(ask) for _ in range(count)]
        try:
            yield
        finally:
            is_over.set()
    for one in running:
        one.result()


def chosen_size(server: Server) -> int:
    text = server.metrics_text()
    assert "zmqtriton_batch_delay_seconds" in text
    [size] = re.findall(r"^zmqtriton_batch_max_size\{.*chosen.*\} (\d+)", text, re.M)
    return int(size)


def test_the_chosen_size_follows_the_number_of_clients(server: Server) -> None:
    with clients(server, 1):
        eventually(lambda: chosen_size(server) == 1, 60, "a size for one client")

    with clients(server, 8):
        eventually(lambda: chosen_size(server) >= 4, 60, "a size for eight clients")
