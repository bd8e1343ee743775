"""The access log of a real server: a line for each request of each protocol, refused ones too."""

from __future__ import annotations

import json
import os
import queue
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton

from tests.support.server import Server, status_of
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

INPUT = {"name": "INPUT0", "shape": [4], "datatype": "FP32", "data": [1, 2, 3, 4]}


class LoggingServer(Server):
    def __init__(self, directory: Path) -> None:
        self.access_log = directory / "access.log"
        options = [f"--access-log={self.access_log}"]
        super().__init__(directory, ["identity_fp32", "tokens"], options=options)

    def __enter__(self) -> LoggingServer:
        super().__enter__()
        return self

    def lines(self) -> list[dict[str, Any]]:
        text = self.access_log.read_text() if self.access_log.exists() else ""
        # the last line may be being written
        return [json.loads(line) for line in text.rpartition("\n")[0].splitlines()]

    def line_of(self, **fields: Any) -> dict[str, Any]:
        """Wait for the line with these fields, and return it."""

        def matching() -> list[dict[str, Any]]:
            return [line for line in self.lines() if fields.items() <= line.items()]

        eventually(matching, 60)
        return matching()[-1]

    def infer(self, model: str = "identity_fp32", **more: Any) -> int:
        body = json.dumps({"inputs": [INPUT], **more}).encode()
        return status_of(urllib.request.Request(f"{self.url}/v2/models/{model}/infer", body), 60)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoggingServer]:
    server = LoggingServer(tmp_path_factory.mktemp("access"))
    with server:
        yield server


def test_a_request_over_http_has_its_status_times_and_bytes(server: LoggingServer) -> None:
    assert 200 == server.infer(id="http")

    line = server.line_of(request_id="http")

    assert ("identity_fp32", "1", "OK") == (line["model"], line["version"], line["status"])
    assert (16, 16, 1) == (line["request_bytes"], line["response_bytes"], line["responses"])
    assert line["duration_ms"] >= line["compute_ms"] > 0
    assert line["time"].endswith("Z")


def test_a_stream_over_grpc_is_one_line(server: LoggingServer) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    count = triton.InferInput("COUNT", [1], "INT32")
    count.set_data_from_numpy(np.array([3], np.int32))
    with triton.InferenceServerClient(server.grpc_address) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        client.async_stream_infer("tokens", [count], request_id="stream")
        assert [None] * 3 == [answers.get(timeout=60)[1] for _ in range(3)]
        client.stop_stream()

    assert 3 == server.line_of(request_id="stream", status="OK")["responses"]


@pytest.mark.parametrize(
    ("model", "more", "status", "code"),
    [
        ("none", {}, 400, "INVALID_ARG"),
        ("identity_fp32", {"inputs": []}, 400, "INVALID_ARG"),
        ("tokens", {}, 501, "UNSUPPORTED"),
    ],
)
def test_a_request_that_is_refused_has_a_line_with_the_reason(
    server: LoggingServer, model: str, more: dict[str, Any], status: int, code: str
) -> None:
    assert status == server.infer(model, **more)

    line = server.line_of(model=model, status=code)
    assert line["error"]
    assert "responses" not in line


def test_no_request_waits_for_a_process_that_is_stopped_or_dead(server: LoggingServer) -> None:
    [pid] = server.pids()["access_log"]
    os.kill(pid, signal.SIGSTOP)
    assert [200] * 20 == [server.infer(id="while it is stopped") for _ in range(20)]
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: server.pids().get("access_log", [pid]) != [pid], 60)

    def is_logged_again() -> bool:
        assert 200 == server.infer(id="again")
        return any(line.get("request_id") == "again" for line in server.lines())

    eventually(is_logged_again, 60)


def test_a_server_that_ends_has_written_all_lines(tmp_path: Path) -> None:
    with LoggingServer(tmp_path) as server:
        for number in range(10):
            assert 200 == server.infer(id=str(number))

    assert [str(number) for number in range(10)] == [line["request_id"] for line in server.lines()]
