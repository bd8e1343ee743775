"""Keys of restricted APIs, tried at every route and RPC of a real server, and web pages."""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.frontends.http_api.fakes import FakeGateway
from tests.standard.ctl.system.commands import ctl
from tests.support.server import Server, status_of, tensor
from zmqtriton_frontends.http_api.app import routes
from zmqtriton_protos import SERVICES

ADMIN, INFER = "Open-Sesame=7c1f", "infer-5d0b-from-a-file"
_ADMIN_CATEGORIES = "shared-memory,model-config,model-repository,statistics,trace,logging"
_OPEN = ("health", "metadata", "")
_METHODS = ("GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH")


pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        models=("add_sub",),
        options=(
            f"--http-restricted-api={_ADMIN_CATEGORIES}:admin-key={ADMIN}",
            "--http-restricted-api=inference:Infer-Key=@@DIRECTORY@/key",
            f"--grpc-restricted-protocol={_ADMIN_CATEGORIES}:admin-key={ADMIN}",
            "--grpc-restricted-protocol",
            "inference:infer-key=@@DIRECTORY@/key",
            "--model-control-mode=explicit",
            "--load-model=*",
            "--http-allowed-origin=https://desk.example",
            "--log-verbose=1",
            "--runtime-directory=@DIRECTORY@/run",
        ),
    ),
]


def prepare(server: Server) -> None:
    (server.directory.parent / "key").write_text(INFER + "\n")


class Client:
    """One connection, on which paths and headers go out as they are given."""

    def __init__(self, server: Server) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=20)

    def ask(
        self, method: str, path: str, *headers: tuple[str, str], body: bytes = b""
    ) -> tuple[int, str]:
        named = {name for name, _ in headers}
        self._connection.putrequest(
            method, path, skip_accept_encoding=True, skip_host="Host" in named
        )
        for name, value in headers:
            self._connection.putheader(name, value)
        self._connection.putheader("Content-Length", str(len(body)))
        self._connection.endheaders(body)
        answer = self._connection.getresponse()
        text = answer.read().decode()
        assert not [name for name, _ in answer.getheaders() if name.lower().startswith("access-")]
        return answer.status, json.loads(text).get("error", "") if text[:1] == "{" else text

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    client = Client(server)
    yield client
    client.close()


def _path(template: str) -> str:
    for name, value in (
        ("{model:name}", "add_sub"),
        ("{version:number}", "1"),
        ("{region:name}", "r"),
        ("{repository}", "main"),
    ):
        template = template.replace(name, value)
    return template


def _restricted() -> list[tuple[str, str, str]]:
    """(method, path, the key's header) of each route that is not open."""
    return [
        (row.method, _path(row.path), "Infer-Key" if row.category == "inference" else "admin-key")
        for row in routes(FakeGateway())
        # of a path that is there for some names, none of these is one
        if row.category not in _OPEN and row.is_there is None
    ]


def _refusal(header: str, why: str = "The request does not have it") -> tuple[int, str]:
    return 403, f"This API is restricted, expecting header '{header}'. {why}"


@pytest.mark.row("C36", "--http-restricted-api")
def test_no_restricted_route_answers_to_any_method_without_its_key(client: Client) -> None:
    table = _restricted()
    assert len(table) > 20

    for _, path, header in table:
        for method in _METHODS:
            status, text = client.ask(method, path)
            assert (403, path) == (status, path)
            assert method == "HEAD" or _refusal(header)[1] == text


def test_no_other_spelling_of_a_restricted_route_opens_it(client: Client, server: Server) -> None:
    for method, path, _ in _restricted():
        parts = path.split("/")
        spelled = [
            path + "/",
            "/" + path,
            path.replace("/v2", "/v2/.", 1),
            path.replace("/v2", "/v2/x/..", 1),
            path.replace("/", "%2f"),
            path.replace("/v2/", "/v2%2F", 1),
            "/".join(parts[:-1]) + "/%" + parts[-1][:1].encode().hex() + parts[-1][1:],
            path.upper(),
            path + ";x",
            path + "?admin-key=" + ADMIN,
            path + "%00",
            f"http://127.0.0.1:{server.http_port}{path}",
        ]
        for other in spelled:
            status, _ = client.ask(method, other)
            assert status in (400, 403, 404), (method, other)
        for header in ("X-HTTP-Method-Override", "X-Original-URL", "X-Rewrite-URL"):
            status, _ = client.ask("GET", path, (header, "/v2/health/live"))
            assert 403 == status


@pytest.mark.row("C36")
def test_only_the_very_key_opens_a_route(client: Client) -> None:
    path = "/v2/systemsharedmemory/status"
    right = ("admin-key", ADMIN)

    for headers in (
        [("admin-key", "")],
        [("admin-key", ADMIN.lower())],
        [("admin-key", ADMIN[:-1])],
        [("admin-key", ADMIN + "x")],
        [("admin-key", INFER)],
        [("Infer-Key", ADMIN)],
        [right, ("admin-key", "x")],
        [("admin-key", "x"), right],
        [right, right],
        [("admin_key", ADMIN)],
        [("triton-grpc-protocol-admin-key", ADMIN)],
    ):
        why = ["It has a wrong value"] if any(name == "admin-key" for name, _ in headers) else []
        assert _refusal("admin-key", *why) == client.ask("GET", path, *headers)

    assert (200, "[]") == client.ask("GET", path, right)
    assert (200, "[]") == client.ask("GET", path, ("ADMIN-Key", ADMIN))


@pytest.mark.row("--http-restricted-api")
def test_the_key_opens_every_route(client: Client) -> None:
    for method, path, header in _restricted():
        if "load" not in path:
            key = ADMIN if header == "admin-key" else INFER
            status, _ = client.ask(method, path, (header, key))
            assert status not in (403, 405), path


# ------------------------------------------------------------------------- gRPC


def _call(server: Server, service: str, method: str, *metadata: tuple[str, str]) -> Any:
    """(status, details); None where the call went well."""
    with grpc.insecure_channel(server.grpc_address) as channel:
        rpc = next((r for r in SERVICES.get(service, ()) if r.name == method), None)
        path = f"/{service}/{method}"
        try:
            if method == "ModelStreamInfer":
                list(channel.stream_stream(path)(iter([b""]), timeout=20, metadata=metadata))
            elif method == "Watch":
                call = channel.unary_stream(path)(b"", timeout=20, metadata=metadata)
                next(call)
                call.cancel()
            else:
                channel.unary_unary(path)(b"", timeout=20, metadata=metadata)
        except grpc.RpcError as error:
            return error.code().name, error.details()
        assert rpc is not None
        return None


_OF_INFERENCE = ("ModelInfer", "ModelStreamInfer")
_OPEN_RPCS = ("ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata")


@pytest.mark.row("D41", "D39", "--grpc-restricted-protocol")
def test_no_restricted_rpc_answers_without_its_key(server: Server) -> None:
    service = "inference.GRPCInferenceService"
    restricted = [rpc.name for rpc in SERVICES[service] if rpc.name not in _OPEN_RPCS]
    assert len(restricted) > 12

    for method in restricted:
        name = "infer-key" if method in _OF_INFERENCE else "admin-key"
        header = f"triton-grpc-protocol-{name}"
        text = f"This protocol is restricted, expecting header '{header}'"
        right = INFER if name == "infer-key" else ADMIN
        for why, *metadata in (
            ("The request does not have it",),
            ("It has a wrong value", (header, right.swapcase())),
            ("The request does not have it", (name, right)),
            ("The request has it twice", (header, right), (header, right)),
        ):
            refused = _call(server, service, method, *metadata)
            assert ("UNAVAILABLE", f"{text}. {why}") == refused, method
        answer = _call(server, service, method, (header, right))
        assert answer is None or not answer[1].startswith(text), method


@pytest.mark.row("D41")
def test_open_rpcs_stay_open_reflection_among_them(server: Server) -> None:
    for method in ("ServerLive", "ServerReady", "ServerMetadata"):
        assert _call(server, "inference.GRPCInferenceService", method) is None
    for method in ("Check", "Watch"):
        assert _call(server, "grpc.health.v1.Health", method) is None
    assert _call(server, "grpc.reflection.v1.ServerReflection", "ServerReflectionInfo") is None


# ------------------------------------------------------------------------- keys


def _holds(pid: int, keys: list[bytes]) -> bool:
    """Return True if a process has one of them in memory that it could write."""
    with (
        suppress(FileNotFoundError, ProcessLookupError),  # readers end
        open(f"/proc/{pid}/maps") as maps,
        open(f"/proc/{pid}/mem", "rb", 0) as memory,
    ):
        for line in maps:
            where, rights = line.split()[:2]
            start, end = (int(n, 16) for n in where.split("-"))
            if rights.startswith("rw") and "[v" not in line:
                memory.seek(start)
                with suppress(OSError):
                    data = memory.read(end - start)
                    if any(key in data for key in keys):
                        return True
    return False


def test_keys_stand_nowhere_but_where_they_are_checked(server: Server, client: Client) -> None:
    client.ask("GET", "/v2/logging", ("admin-key", ADMIN + "x"))
    keys = [ADMIN.encode(), INFER.encode()]
    # readers are copies of the supervisor, as hidden from models as it is
    pids = {**server.pids(), "reader": server.reader_pids()}

    for pid in (pid for own in pids.values() for pid in own):
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        assert not any(key in command for key in keys), command
    status = ctl(server, "status", "--json").stdout.encode()
    assert not any(key in text for key in keys for text in (status, server.log.read_bytes()))
    holders = {role for role, own in pids.items() for pid in own if _holds(pid, keys)}
    assert {"supervisor", "http", "grpc"} == holders - {"reader"}


# -------------------------------------------------------------------- web pages


def test_web_pages_cannot_change_the_server(client: Client, server: Server) -> None:
    key, plain = ("admin-key", ADMIN), ("Content-Type", "text/plain")
    changing = ["/v2/repository/models/add_sub/load", "/v2/logging", "/v2/trace/setting"]
    changing += ["/v2/systemsharedmemory/region/r/register", "/v2/cudasharedmemory/unregister"]

    for path in changing:
        for origin in ("http://evil.example", "http://127.0.0.1:8000", "null", ""):
            status, text = client.ask("POST", path, key, plain, ("Origin", origin), body=b"{}")
            assert (403, True) == (status, text.startswith("This API is not open to web pages"))

    for host in (f"evil.example:{server.http_port}", "evil.example", "1.2.3.4.evil.example"):
        headers = [("Host", host), ("Origin", f"http://{host}")]
        assert 421 == client.ask("POST", "/v2/logging", key, *headers, body=b"{}")[0]

    own = ("Origin", f"http://127.0.0.1:{server.http_port}")
    assert 200 == client.ask("POST", "/v2/logging", key, own, body=b"{}")[0]
    index = client.ask("POST", "/v2/repository/index", key, ("Origin", "http://evil.example"))
    assert 200 == index[0]
    allowed = ("Origin", "https://desk.example")
    assert 200 == client.ask("POST", "/v2/logging", key, allowed, body=b"{}")[0]
    assert 200 == client.ask("GET", "/v2/logging", key, ("Origin", "http://evil.example"))[0]
    assert 200 == client.ask("GET", "/v2/health/live", ("Origin", "http://evil.example"))[0]


def test_a_name_that_a_web_page_has_pointed_here_is_not_answered_to(
    client: Client, server: Server
) -> None:
    infer = ("Infer-Key", INFER)
    inputs = [tensor(f"INPUT{n}", "FP32", [1] * 16, [1, 16]) for n in range(2)]
    body = json.dumps({"inputs": inputs}).encode()
    paths = [("GET", "/v2"), ("GET", "/v2/health/ready"), ("GET", "/v2/models/add_sub/config")]
    paths += [("GET", "/v2/models/stats"), ("POST", "/v2/models/add_sub/infer"), ("GET", "/")]

    for host in ("evil.example", f"evil.example:{server.http_port}", "localhost.evil.example"):
        for method, path in paths:
            content = body if method == "POST" else b""
            accept = ("Accept", "text/html")
            status, text = client.ask(method, path, ("Host", host), infer, accept, body=content)
            name = host.partition(":")[0]
            words = (
                f"Host '{name}' is not allowed: start the server with --http-allowed-host={name}"
            )
            assert (421, True) == (status, words in text), path
    for host in ("localhost", f"127.0.0.1:{server.http_port}", "LOCALHOST:1"):
        path = "/v2/models/add_sub/infer"
        assert 200 == client.ask("POST", path, ("Host", host), infer, body=body)[0]
    other = urllib.request.Request(server.metrics_url, headers={"Host": "evil.example"})
    assert 421 == status_of(other)


def test_no_internal_endpoint_listens_on_the_network(server: Server) -> None:
    listening = {server.http_port, server.grpc_port, server.metrics_port}
    pids = {pid for own in server.pids().values() for pid in own}

    assert "for any name of a host" not in server.log_text()
    assert listening == _listening_ports(pids)


def _listening_ports(pids: set[int]) -> set[int]:
    import psutil

    for pid in pids:  # or the sockets of a process that is hidden would be none
        os.listdir(f"/proc/{pid}/fd")
    return {
        connection.laddr.port
        for connection in psutil.net_connections("tcp")
        if connection.pid in pids and connection.status == psutil.CONN_LISTEN
    }
