"""The access log of a real server: a line for each request of each protocol, refused ones too."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import queue
import signal
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from tests.standard.ctl.system.commands import ctl
from tests.support.scraping import sum_series
from tests.support.server import Server, exchange, free_ports, is_open, status_of
from tests.support.waiting import eventually
from zmqtriton_extras.door.tests.raw_door import RawDoor
from zmqtriton_floor import token_file
from zmqtriton_floor.token_file import Grant

pytestmark = pytest.mark.system

GOOD = "0123456789abcdef-good-token"
EVERY = "0123456789abcdef-token-of-all"
#: The endpoints of clouds are of one model.
CLOUDS = {
    "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "identity_fp32",
    "AIP_PREDICT_ROUTE": "/predict",
    "AIP_HEALTH_ROUTE": "/health",
}
DROPPED = "zmqtriton_access_log_lines_dropped_total"
#: Addresses of one client each, so that each has its own limit.
ADDRESSES = (f"127.0.2.{number}" for number in itertools.count(1))
VALUE = {"name": "VALUE", "shape": [1, 1], "datatype": "INT32", "data": [1]}
INPUT = {"name": "INPUT0", "shape": [4], "datatype": "FP32", "data": [1, 2, 3, 4]}


class LoggingServer(Server):
    def __init__(self, directory: Path, *more: str, **how: Any) -> None:
        self.access_log = directory / "access.log"
        options = [f"--access-log={self.access_log}", *more]
        models = how.pop("models", ["identity_fp32", "tokens"])
        super().__init__(directory, models, options=options, **how)
        self.cloud_ports: dict[str, int] = {}

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

    def infer(self, model: str = "identity_fp32", token: str = EVERY, **more: Any) -> int:
        body = json.dumps({"inputs": [INPUT], **more}).encode()
        request = urllib.request.Request(f"{self.url}/v2/models/{model}/infer", body)
        request.add_header("Authorization", f"Bearer {token}")
        return status_of(request, 60)

    def metrics_text(self) -> str:
        headers = {"Authorization": f"Bearer {EVERY}"}
        return exchange(urllib.request.Request(self.metrics_url, headers=headers)).body.decode()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoggingServer]:
    """A server that needs tokens, and a key for its statistics."""
    directory = tmp_path_factory.mktemp("guarded")
    options = [
        write_tokens(directory),
        "--http-restricted-api=statistics:key=value",
        f"--runtime-directory={directory / 'run'}",
        "--zmq-door",
        "--zmq-door-restricted=inference:key=value",
        "--allow-sagemaker=true",
        "--allow-vertex-ai=true",
        "--vertex-ai-default-model=identity_fp32",
    ]
    ports = dict(zip(("sagemaker", "vertex-ai"), free_ports(2), strict=True))
    options += [f"--{name}-port={port}" for name, port in ports.items()]
    server = LoggingServer(directory / "s", *options, environment=CLOUDS)
    server.cloud_ports = ports
    with server:
        eventually(lambda: all(map(is_open, ports.values())), 60, "the endpoints of clouds")
        yield server


def write_tokens(directory: Path) -> str:
    """Return the option with two: of a shop, for one model, and of an operator, for all."""
    path = directory / "tokens"
    scopes = token_file.parse_scopes("infer,control,metrics")
    grants = [
        Grant(
            "shop", token_file.Grant.digest_of(GOOD), token_file.parse_scopes("infer"), ("tokens",)
        ),
        Grant("operator", token_file.Grant.digest_of(EVERY), scopes),
    ]
    path.write_text("".join(f"{grant.line()}\n" for grant in grants))
    path.chmod(0o600)
    return f"--tokens={path}"


def test_a_request_over_http_has_its_status_times_and_bytes(server: LoggingServer) -> None:
    assert 200 == server.infer(id="http\u202e\x7f")

    line = server.line_of(request_id="http\u202e\x7f")

    assert ("identity_fp32", "1", "OK") == (line["model"], line["version"], line["status"])
    assert (16, 16, 1) == (line["request_bytes"], line["response_bytes"], line["responses"])
    assert line["duration_ms"] >= line["compute_ms"] > 0
    assert line["time"].endswith("Z")
    expected = ("127.0.0.1", "http", f"POST {INFER}")
    assert expected == (line["client"], line["protocol"], line["route"])
    assert not {"\u202e", "\x7f"} & set(server.access_log.read_text("utf-8"))


def test_a_stream_over_grpc_is_one_line(server: LoggingServer) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    count = triton.InferInput("COUNT", [1], "INT32").set_data_from_numpy(np.array([3], np.int32))
    with triton.InferenceServerClient(server.grpc_address) as client:
        client.start_stream(
            lambda result, error: answers.put((result, error)),
            headers={"authorization": f"Bearer {EVERY}"},
        )
        client.async_stream_infer("tokens", [count], request_id="stream")
        assert [None] * 3 == [answers.get(timeout=60)[1] for _ in range(3)]
        client.stop_stream()

    line = server.line_of(request_id="stream", status="OK")
    expected = (3, "127.0.0.1", "grpc", "ModelStreamInfer")
    assert expected == (line["responses"], line["client"], line["protocol"], line["route"])


@pytest.mark.parametrize(
    ("model", "more", "status", "code"),
    [("none", {}, 400, "INVALID_ARG"), ("tokens", {}, 501, "UNSUPPORTED")],
)
def test_a_request_that_is_refused_has_a_line_with_the_reason(
    server: LoggingServer, model: str, more: dict[str, Any], status: int, code: str
) -> None:
    assert status == server.infer(model, **more)

    line = server.line_of(model=model, status=code)
    assert line["error"]
    assert "responses" not in line


def test_no_request_waits_for_a_process_that_is_stopped_or_dead(tmp_path: Path) -> None:
    with LoggingServer(tmp_path / "s", write_tokens(tmp_path), frontends=("metrics",)) as server:
        [pid] = server.pids()["access_log"]
        os.kill(pid, signal.SIGSTOP)
        assert [200] * 20 == [server.infer(id="while it is stopped") for _ in range(20)]
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: server.pids().get("access_log", [pid]) != [pid], 60)

        def is_logged_again() -> bool:
            assert 200 == server.infer(id="again")
            return any(line.get("request_id") == "again" for line in server.lines())

        eventually(is_logged_again, 60)
        for number in range(10):
            assert 200 == server.infer(id=str(number))
        port = port_of(server.metrics_url)
        assert 401 == ask(server, "GET", "/metrics", next(ADDRESSES), port=port)

    # it has written all before it ended with the server, and has kept nobody waiting
    written = {line.get("request_id") for line in server.lines()[-11:]}
    assert {*map(str, range(10)), None} == written
    assert "not answered in time" not in server.log_text()


def test_lines_that_cannot_be_written_are_counted_for_metrics(server: LoggingServer) -> None:
    assert 200 == server.infer(id="before")
    server.line_of(request_id="before")
    before = sum_series(server, DROPPED)
    server.access_log.unlink()
    server.access_log.mkdir()

    def count() -> float:
        server.infer()
        return sum_series(server, DROPPED)

    eventually(lambda: count() >= before + 2, 60)
    server.access_log.rmdir()


# ------------------------------------------------------------------------------ without access


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2].partition("/")[0])


def ask(
    server: Server,
    method: str,
    path: str,
    address: str,
    token: str = "",
    *,
    port: int = 0,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> int:
    """Send a request from this address of the machine; return its status."""
    fields = dict(headers)
    connection = http.client.HTTPConnection(
        "127.0.0.1", port or port_of(server.url), timeout=60, source_address=(address, 0)
    )
    if token:
        fields["Authorization"] = f"Bearer {token}"
    with closing(connection):
        connection.request(method, path, b"{}" if method == "POST" else None, fields)
        return connection.getresponse().status


INFER = "/v2/models/identity_fp32/infer"


@pytest.mark.parametrize(
    ("token", "status", "code"),
    [
        ("wrong", 401, "UNAUTHENTICATED"),
        (GOOD, 403, "PERMISSION_DENIED"),
    ],
)
def test_a_scraper_without_access_has_a_line(
    server: LoggingServer, token: str, status: int, code: str
) -> None:
    address, port = next(ADDRESSES), port_of(server.metrics_url)
    assert status == ask(server, "GET", "/metrics?x=y", address, token, port=port)

    line = server.line_of(client=address)

    assert (code, "http", "GET /metrics") == tuple(
        line[field] for field in ("status", "protocol", "route")
    )
    assert ("shop" if token == GOOD else None) == line.get("token")


def test_a_scraper_by_a_name_that_is_not_allowed_has_a_line(server: LoggingServer) -> None:
    address, port = next(ADDRESSES), port_of(server.metrics_url)
    assert 421 == ask(
        server, "GET", "/metrics", address, port=port, headers={"Host": "evil.example"}
    )

    assert "PERMISSION_DENIED" == server.line_of(client=address)["status"]


@pytest.mark.parametrize(
    ("cloud", "path", "token", "status", "code"),
    [
        ("sagemaker", "/invocations", GOOD, 403, "PERMISSION_DENIED"),
        ("vertex-ai", "/predict", "wrong", 401, "UNAUTHENTICATED"),
    ],
)
def test_a_request_to_the_port_of_a_cloud_has_a_line(
    server: LoggingServer, cloud: str, path: str, token: str, status: int, code: str
) -> None:
    address, port = next(ADDRESSES), server.cloud_ports[cloud]
    assert status == ask(server, "POST", path, address, token, port=port)

    line = server.line_of(client=address)

    # the route is that of the model that is meant
    assert (code, "http", f"POST {INFER}") == tuple(
        line[field] for field in ("status", "protocol", "route")
    )
    assert 1 == len([line for line in server.lines() if address == line.get("client")])


def test_a_web_socket_without_access_has_a_line(server: LoggingServer) -> None:
    address, path = next(ADDRESSES), "/v2/models/identity_fp32/stream"
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    assert 401 == ask(server, "GET", path, address, "wrong", headers=upgrade)

    line = server.line_of(client=address)

    assert ("UNAUTHENTICATED", f"GET {path}") == (line["status"], line["route"])


def test_a_client_of_the_door_without_its_key_has_a_line_with_its_user(
    server: LoggingServer,
) -> None:
    with RawDoor(str(server.directory.parent / "run" / "door")) as client:
        kind, fields, _ = client.ask("infer", {"model": "identity_fp32"})
    assert ("error", "UNAVAILABLE") == (kind, fields["code"])

    line = server.line_of(protocol="zmq", status="UNAVAILABLE")

    assert (f"user {os.getuid()}", "infer") == (line["client"], line["route"])


@pytest.mark.parametrize(
    ("method", "path", "token", "status", "code"),
    [
        ("POST", INFER, "", 401, "UNAUTHENTICATED"),
        ("POST", INFER, GOOD, 403, "PERMISSION_DENIED"),
        ("GET", "/v2/models/tokens/stats", GOOD, 403, "PERMISSION_DENIED"),
        ("POST", "/v2/models/identity_fp32/generate", "wrong", 401, "UNAUTHENTICATED"),
    ],
)
def test_a_request_without_access_has_a_line_with_its_client_and_route(
    server: LoggingServer, method: str, path: str, token: str, status: int, code: str
) -> None:
    address = next(ADDRESSES)
    assert status == ask(server, method, path, address, token)

    line = server.line_of(client=address)

    assert (code, "http", f"{method} {path}") == tuple(
        line[field] for field in ("status", "protocol", "route")
    )
    assert line["error"]
    assert 1 == len([line for line in server.lines() if address == line.get("client")])


@pytest.mark.parametrize(
    ("method", "code"),
    [("infer", "UNAUTHENTICATED"), ("get_model_config", "PERMISSION_DENIED")],
)
def test_a_call_without_access_has_a_line(server: LoggingServer, method: str, code: str) -> None:
    calls = {"infer": "ModelInfer", "get_model_config": "ModelConfig"}
    headers = {"authorization": f"Bearer {GOOD}"} if code == "PERMISSION_DENIED" else {}
    values = triton.InferInput("INPUT0", [4], "FP32").set_data_from_numpy(np.zeros(4, np.float32))
    arguments: list[Any] = ["identity_fp32", *([[values]] if method == "infer" else [])]
    connected = triton.InferenceServerClient(server.grpc_address)
    with connected as client, pytest.raises(InferenceServerException):
        getattr(client, method)(*arguments, headers=headers)

    line = server.line_of(protocol="grpc", route=calls[method], status=code)
    assert "127.0.0.1" == line["client"]


@pytest.mark.long(
    "standard/access_log/system/test_access_log.py::test_a_call_without_access_has_a_line"
)
def test_a_call_without_access_has_a_line_over_grpcio_too(tmp_path: Path) -> None:
    options = [write_tokens(tmp_path), "--grpc-transport=grpcio"]
    with LoggingServer(tmp_path / "s", *options, frontends=("grpc",)) as server:
        connected = triton.InferenceServerClient(server.grpc_address)
        with connected as client, pytest.raises(InferenceServerException):
            client.get_model_config("identity_fp32")

        line = server.line_of(protocol="grpc", status="UNAUTHENTICATED")

    assert ("127.0.0.1", "ModelConfig") == (line["client"], line["route"])


def test_many_refusals_of_one_client_have_some_lines_and_a_number(server: LoggingServer) -> None:
    address = next(ADDRESSES)
    assert {401, 429} == {ask(server, "POST", INFER, address, "wrong") for _ in range(60)}

    def count() -> int:
        """Return the number of refusals that the lines of this client stand for."""
        lines = [line for line in server.lines() if address == line.get("client")]
        return sum(line.get("left_out", 1) for line in lines)

    eventually(lambda: count() == 60, 60)
    assert len([line for line in server.lines() if address == line.get("client")]) < 50


def test_a_server_that_ends_writes_the_number_of_refusals_without_a_line(tmp_path: Path) -> None:
    options = [write_tokens(tmp_path)]
    with LoggingServer(tmp_path / "s", *options, models=("identity_fp32",), frontends=()) as server:
        for address in ("127.0.0.1", "127.0.0.2"):
            for _ in range(60):
                ask(server, "POST", INFER, address, "wrong")
        ask(server, "POST", INFER, "127.0.0.3", "wrong")
        # so that nothing else is to be sent when it ends
        server.line_of(client="127.0.0.3")
        assert 0 == server.stop()

    assert 121 == sum(line.get("left_out", 1) for line in server.lines())
    assert "Traceback" not in server.log_text()


@pytest.mark.long(
    "standard/access_log/system/test_access_log.py::test_lines_that_cannot_be_written_are_counted_for_metrics"
)
def test_the_log_has_lines_of_frontends_broker_and_add_ons(tmp_path: Path) -> None:
    """Over `zmqtriton-ctl logs` and over the page's route alike."""
    options = [write_tokens(tmp_path), f"--runtime-directory={tmp_path / 'run'}"]
    names = ["sequences"]
    with LoggingServer(tmp_path / "s", *options, models=names, frontends=()) as server:
        server.access_log.mkdir()
        begin: dict[str, Any] = {
            "inputs": [VALUE],
            "parameters": {"sequence_id": 7, "sequence_start": True},
        }
        for _ in range(2):
            assert 200 == server.infer("sequences", **begin)
        assert 401 == server.infer("sequences", token="wrong")
        texts = (
            "127.0.0.1 presents a token that is not valid",
            "sequence 7 for model 'sequences' has a conflict",
            "lines of the access log are dropped",
        )

        def has_all(log: str) -> bool:
            return all(text in log for text in texts)

        eventually(lambda: has_all(ctl(server, "logs").stdout), 60, "lines of each process")
        request = urllib.request.Request(f"{server.url}/v2/zmqtriton/logs")
        request.add_header("Authorization", f"Bearer {EVERY}")
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert has_all(answer.read().decode())
