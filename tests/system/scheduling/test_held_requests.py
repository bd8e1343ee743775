"""Requests that TRITONSERVER_DELAY_SCHEDULER holds back, so that scripts can judge batch sizes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.server import Server, tensor
from tests.support.waiting import eventually

pytestmark = pytest.mark.system


@pytest.mark.long(
    "broker/scheduling/test_batching.py::test_requests_are_held_back_until_enough_of_them_wait"
)
def test_the_first_batch_begins_when_enough_requests_wait(tmp_path: Path) -> None:
    def ask(_: int) -> int:
        row = tensor("X", "FP32", [0.5], [1, 1])
        _, answer = server.infer_json("batch_size", row, outputs=[{"name": "REQUESTS"}])
        return int(answer["outputs"][0]["data"][0])

    load = "/v2/models/batch_size/load"
    held = {"TRITONSERVER_DELAY_SCHEDULER": "5"}
    with (
        Server(tmp_path / "s", models=["batch_size"], environment=held, frontends=()) as server,
        ThreadPoolExecutor(5) as pool,
    ):
        answers = [pool.submit(ask, number) for number in range(4)]
        eventually(lambda: server.request_json(load)[1]["queued"] == 4, 60)
        answers.append(pool.submit(ask, 4))

        assert [5] * 5 == [answer.result(60) for answer in answers]
        assert ask(5) == 1  # from then on nothing is held back
    assert "TRITONSERVER_DELAY_SCHEDULER: batchers wait for 5 requests" in server.log_text()
