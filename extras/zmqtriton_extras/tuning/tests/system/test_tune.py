"""`zmqtriton-ctl tune` of a small model, on a server of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.standard.ctl.system.commands import ctl, place
from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

#: An execution takes as long for eight rows as for one.
MODEL = """
import time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        time.sleep(0.02)
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("Y", one.inputs()[0].as_numpy())])
            for one in requests
        ]
"""
#: Two responses for each request.
STREAM = """
import time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for one in requests:
            sender = one.get_response_sender()
            for _ in range(2):
                time.sleep(0.01)
                y = pb_utils.Tensor("Y", one.inputs()[0].as_numpy())
                sender.send(pb_utils.InferenceResponse([y]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
FUNCTIONS = """
from collections.abc import Iterator
from zmqtriton import model

@model(batch=4, delay="auto", examples=[{"number": 2}, {"number": 3}])
def doubled(number: list[float]) -> list[float]:
    return [2 * each for each in number]

@model(examples=[{"number": 2}])
def counted(number: int) -> Iterator[int]:
    yield from range(number)
"""
CONFIG = """
backend: "python"
max_batch_size: 8
dynamic_batching { }
input { name: "X" data_type: TYPE_FP32 dims: [ 1 ] }
output { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] }
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    options = ["--model-control-mode=explicit", f"--runtime-directory={tmp_path}/run"]
    with Server(tmp_path / "s", options=options) as running:
        directory = running.repository / "small"
        (directory / "1").mkdir(parents=True)
        (directory / "1" / "model.py").write_text(MODEL)
        (directory / "config.pbtxt").write_text(CONFIG)
        running.control_model("load", "small")
        yield running


def records(directory: Path, *values: float, model: str = "small") -> Path:
    segment = directory / "captures" / "1"
    segment.mkdir(parents=True)
    rows = [{"name": "X", "datatype": "FP32", "shape": [1, 1], "data": [each]} for each in values]
    lines = [
        json.dumps(
            {
                "id": str(number),
                "model": model,
                "error": None,
                "request": {"inputs": [row]},
                "responses": [],
            }
        )
        for number, row in enumerate(rows)
    ]
    (segment / "requests.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return directory / "captures"


def tune(server: Server, *words: str, model: str = "small") -> dict[str, Any]:
    done = ctl(server, "tune", model, "--seconds=0.2", "--clients=8", *words, "-o", "json")
    assert 0 == done.exit_code, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_settings_are_found_with_captured_requests_and_nothing_is_changed(
    server: Server, tmp_path: Path
) -> None:
    before = ctl(server, "config", "small").stdout

    found = tune(server, f"--captured={records(tmp_path, 1, 2)}", "--minutes=0.2")

    assert (1, 8, "0") == tuple(found["rows"][0][key] for key in ("instances", "batch", "delay"))
    assert all(not row["failed"] for row in found["rows"])
    assert found["best"]["batch"] >= 4
    assert any(line.startswith("max_batch_size: ") for line in found["lines"])
    assert before == ctl(server, "config", "small").stdout


def test_what_cannot_be_tuned_says_why(server: Server, tmp_path: Path) -> None:
    unknown = ctl(server, "tune", "small", "--target=soon", "--zeros")
    empty = ctl(server, "tune", "small", f"--captured={tmp_path}")

    assert "--target 'soon' must be throughput" in unknown.stderr
    assert "has no whole request for 'small'" in empty.stderr


def add(server: Server, name: str, config: str, code: str = MODEL) -> None:
    directory = server.repository / name
    (directory / "1").mkdir(parents=True)
    (directory / "1" / "model.py").write_text(code)
    (directory / "config.pbtxt").write_text(config)


def test_a_stream_is_measured_until_its_end(server: Server, tmp_path: Path) -> None:
    config = CONFIG.replace("dynamic_batching { }", "model_transaction_policy { decoupled: true }")
    add(server, "small_stream", config, STREAM)
    server.control_model("load", "small_stream")
    captured = records(tmp_path, 1, 2, model="small_stream")

    found = tune(server, f"--captured={captured}", "--minutes=0.1", model="small_stream")

    assert all(not row["failed"] for row in found["rows"])
    assert found["rows"][0]["p50_ms"] >= 20


def test_a_function_is_tuned_by_its_examples(server: Server) -> None:
    for name in ("doubled", "counted"):
        server.write_model(name, "", FUNCTIONS)
        server.control_model("load", name)

        found = tune(server, "--minutes=0.05", model=name)

        assert all(not row["failed"] for row in found["rows"])
        assert found["rows"][0]["requests_per_s"] > 0


def test_a_sequence_is_refused_with_what_to_do(server: Server) -> None:
    config = CONFIG.replace("dynamic_batching", "sequence_batching")
    add(server, "ordered", config)
    server.control_model("load", "ordered")

    done = ctl(server, "tune", "ordered", "--zeros")
    empty = ctl(server, "tune", "small")

    assert "measure each setting with `zmqtriton-ctl bench`" in done.stderr
    assert "'small' has no examples: name captured requests by --captured" in empty.stderr


def test_the_server_of_the_trials_ends_with_the_command(server: Server) -> None:
    words = ("tune", "small", "--zeros", "--minutes=10")
    command = [sys.executable, "-m", "zmqtriton.ctl.main", place(server), *words]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        own = psutil.Process(process.pid)
        eventually(lambda: len(own.children(recursive=True)) > 3, 60, "a server of its own")
        children = own.children(recursive=True)
        process.send_signal(signal.SIGKILL)

    eventually(lambda: not any(one.is_running() for one in children), 60, "their end")
