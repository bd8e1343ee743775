"""Requests that TRITONSERVER_DELAY_SCHEDULER holds back, so that scripts can judge batch sizes."""

from __future__ import annotations

import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system


def test_the_first_batch_begins_when_enough_requests_wait(tmp_path: Path) -> None:
    def ask(_: int) -> int:
        tensor = {"name": "X", "shape": [1, 1], "datatype": "FP32", "data": [0.5]}
        body = json.dumps({"inputs": [tensor], "outputs": [{"name": "REQUESTS"}]}).encode()
        with urllib.request.urlopen(f"{server.url}/v2/models/batch_size/infer", body) as answer:
            [output] = json.load(answer)["outputs"]
        return int(output["data"][0])

    held = {"TRITONSERVER_DELAY_SCHEDULER": "5"}
    with (
        Server(
            tmp_path / "s", models=["batch_size"], environment=held, frontends=("metrics",)
        ) as server,
        ThreadPoolExecutor(5) as pool,
    ):
        answers = [pool.submit(ask, number) for number in range(4)]
        eventually(lambda: _waiting(server) == 4, 60)
        answers.append(pool.submit(ask, 4))

        assert [5] * 5 == [answer.result(60) for answer in answers]
        assert ask(5) == 1  # from then on nothing is held back
    assert "TRITONSERVER_DELAY_SCHEDULER: batchers wait for 5 requests" in server.log_text()


def _waiting(server: Server) -> int:
    name = "nv_inference_pending_request_count{"
    lines = [line for line in server.metrics_text().splitlines() if line.startswith(name)]
    return sum(int(float(line.rpartition(" ")[2])) for line in lines)
