"""The access log of a real server: a line for each request of each protocol, refused ones too."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import queue
import signal
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from tests.standard.ctl.system.commands import ctl
from tests.support.scraping import sum_series
from tests.support.server import Server, status_of
from tests.support.waiting import eventually
from zmqtriton_floor import token_file
from zmqtriton_floor.token_file import Grant

pytestmark = pytest.mark.system

GOOD = "0123456789abcdef-good-token"
#: Addresses of one client each, so that each has its own limit.
ADDRESSES = (f"127.0.2.{number}" for number in itertools.count(1))
INPUT = {"name": "INPUT0", "shape": [4], "datatype": "FP32", "data": [1, 2, 3, 4]}


class LoggingServer(Server):
    def __init__(self, directory: Path, *more: str) -> None:
        self.access_log = directory / "access.log"
        options = [f"--access-log={self.access_log}", *more]
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
    assert ("127.0.0.1", "http") == (line["client"], line["protocol"])
    assert "POST /v2/models/identity_fp32/infer" == line["route"]


def test_a_stream_over_grpc_is_one_line(server: LoggingServer) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    count = triton.InferInput("COUNT", [1], "INT32")
    count.set_data_from_numpy(np.array([3], np.int32))
    with triton.InferenceServerClient(server.grpc_address) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        client.async_stream_infer("tokens", [count], request_id="stream")
        assert [None] * 3 == [answers.get(timeout=60)[1] for _ in range(3)]
        client.stop_stream()

    line = server.line_of(request_id="stream", status="OK")
    assert 3 == line["responses"]
    expected = ("127.0.0.1", "grpc", "ModelStreamInfer")
    assert expected == (line["client"], line["protocol"], line["route"])


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


# ------------------------------------------------------------------------------ without access


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoggingServer]:
    """A server that needs tokens, and a key for its statistics."""
    directory = tmp_path_factory.mktemp("guarded")
    path = directory / "tokens"
    scopes = token_file.parse_scopes("infer")
    grant = Grant("shop", token_file.digest(GOOD), scopes, ("tokens",), None)
    path.write_text(grant.line() + "\n")
    path.chmod(0o600)
    key = "--http-restricted-api=statistics:key=value"
    run = f"--runtime-directory={directory / 'run'}"
    with LoggingServer(directory / "s", f"--tokens={path}", key, run) as server:
        yield server


def ask(server: Server, method: str, path: str, address: str, token: str = "") -> int:
    """Send a request from this address of the machine; return its status."""
    port = int(server.url.rpartition(":")[2])
    connection = http.client.HTTPConnection(
        "127.0.0.1", port, timeout=60, source_address=(address, 0)
    )
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with closing(connection):
        connection.request(method, path, b"{}" if method == "POST" else None, headers)
        return connection.getresponse().status


INFER = "/v2/models/identity_fp32/infer"


@pytest.mark.parametrize(
    ("method", "path", "token", "status", "code"),
    [
        ("POST", INFER, "", 401, "UNAUTHENTICATED"),
        ("POST", INFER, "wrong", 401, "UNAUTHENTICATED"),
        ("POST", INFER, GOOD, 403, "PERMISSION_DENIED"),
        ("GET", "/v2/models/identity_fp32/config", "", 401, "UNAUTHENTICATED"),
        ("POST", "/v2/repository/models/tokens/load", GOOD, 403, "PERMISSION_DENIED"),
        ("GET", "/v2/models/tokens/stats", GOOD, 403, "PERMISSION_DENIED"),
        ("POST", "/v2/models/identity_fp32/generate", "wrong", 401, "UNAUTHENTICATED"),
        ("GET", "/v2/logging", "", 401, "UNAUTHENTICATED"),
    ],
)
def test_a_request_without_access_has_a_line_with_its_client_and_route(
    guarded: LoggingServer, method: str, path: str, token: str, status: int, code: str
) -> None:
    address = next(ADDRESSES)
    assert status == ask(guarded, method, path, address, token)

    line = guarded.line_of(client=address)

    assert (code, "http", f"{method} {path}") == tuple(
        line[field] for field in ("status", "protocol", "route")
    )
    assert line["error"]
    assert 1 == len([line for line in guarded.lines() if address == line.get("client")])


@pytest.mark.parametrize(
    ("method", "code"),
    [("infer", "UNAUTHENTICATED"), ("get_model_config", "PERMISSION_DENIED")],
)
def test_a_call_without_access_has_a_line(guarded: LoggingServer, method: str, code: str) -> None:
    calls = {"infer": "ModelInfer", "get_model_config": "ModelConfig"}
    headers = {"authorization": f"Bearer {GOOD}"} if code == "PERMISSION_DENIED" else {}
    values = triton.InferInput("INPUT0", [4], "FP32")
    values.set_data_from_numpy(np.zeros(4, np.float32))
    arguments: list[Any] = ["identity_fp32", *([[values]] if method == "infer" else [])]
    connected = triton.InferenceServerClient(guarded.grpc_address)
    with connected as client, pytest.raises(InferenceServerException):
        getattr(client, method)(*arguments, headers=headers)

    line = guarded.line_of(protocol="grpc", route=calls[method], status=code)
    assert "127.0.0.1" == line["client"]


def test_many_refusals_of_one_client_have_some_lines_and_a_number(guarded: LoggingServer) -> None:
    address = next(ADDRESSES)
    statuses = [ask(guarded, "POST", INFER, address, "wrong") for _ in range(60)]
    assert {401, 429} == set(statuses)

    def count() -> int:
        """Return the number of refusals that the lines of this client stand for."""
        lines = [line for line in guarded.lines() if address == line.get("client")]
        return sum(line.get("left_out", 1) for line in lines)

    eventually(lambda: count() == 60, 60)
    assert len([line for line in guarded.lines() if address == line.get("client")]) < 50


def test_the_log_of_the_server_has_lines_of_frontends(guarded: LoggingServer) -> None:
    address = next(ADDRESSES)
    assert 401 == ask(guarded, "POST", INFER, address, "wrong")

    text = f"{address} presents a token that is not valid"
    eventually(lambda: text in ctl(guarded, "logs").stdout, 60)


def test_lines_that_cannot_be_written_are_counted_for_metrics(tmp_path: Path) -> None:
    with LoggingServer(tmp_path) as server:
        assert "zmqtriton_access_log_lines_dropped_total 0" in server.metrics_text()
        assert 200 == server.infer()
        eventually(server.lines, 60)
        server.access_log.unlink()
        server.access_log.mkdir()

        def count() -> float:
            server.infer()
            return sum_series(server, "zmqtriton_access_log_lines_dropped_total")

        eventually(lambda: count() >= 2, 60)
