"""`zmqtriton-ctl clients` and `disconnect` against a server with clients of every protocol."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
from websockets import exceptions
from websockets.sync.client import ClientConnection, connect

from tests.standard.ctl.system.commands import ctl
from tests.support.clients import infer_inputs
from tests.support.journal import read_journal
from tests.support.server import Server
from tests.support.waiting import eventually
from zmqtriton_floor import token_file
from zmqtriton_floor.token_file import ALL_MODELS, Grant

pytestmark = pytest.mark.system

_TOKENS = {name: f"zmqt_a-secret-of-{name}-0123456789" for name in ("kept", "thrown-out")}
#: A stream that no test waits for.
_ENDLESS = {"COUNT": 1_000_000, "DELAY_US": 20_000}


def _write_tokens(directory: Path, *names: str) -> Path:
    """Have the tokens of these names, and return their file."""
    scopes = token_file.parse_scopes("infer")
    lines = [
        Grant(name, token_file.Grant.digest_of(_TOKENS[name]), scopes, ALL_MODELS, None).line()
        + "\n"
        for name in names
    ]
    new = directory / "tokens.new"
    new.write_text("".join(lines))
    new.chmod(0o600)
    return new.replace(directory / "tokens")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("guarded")
    file = _write_tokens(directory, *_TOKENS)
    options = [f"--runtime-directory={directory}/run", f"--tokens={file}"]
    models = ["tokens"]
    with Server(directory / "s", models, options=options, frontends=("grpc",)) as server:
        yield server


class _Streams:
    """A client of one token with a stream over each protocol, each with its first response."""

    def __init__(self, stack: ExitStack, server: Server, name: str) -> None:
        headers = {"Authorization": f"Bearer {_TOKENS[name]}"}
        self.events = stack.enter_context(_open_events(server, headers["Authorization"]))
        url = f"ws://127.0.0.1:{server.http_port}/v2/models/tokens/stream"
        self.web_socket = stack.enter_context(connect(url, additional_headers=headers))
        self.web_socket.send(_request(f"socket-{name}"))
        assert "outputs" in json.loads(self.web_socket.recv(timeout=60))
        self.over_grpc: list[tuple[Any, Any]] = []
        grpc = grpc_client.InferenceServerClient(server.grpc_address)
        stack.callback(grpc.close)
        grpc.start_stream(
            lambda result, error: self.over_grpc.append((result, error)),
            headers={"authorization": headers["Authorization"]},
        )
        stack.callback(grpc.stop_stream, cancel_requests=True)
        arrays = {key: np.array([value], np.int32) for key, value in _ENDLESS.items()}
        grpc.async_stream_infer("tokens", infer_inputs(grpc_client, **arrays))
        eventually(lambda: self.over_grpc, 60, "a response over gRPC")
        assert not self.error_over_grpc

    @property
    def error_over_grpc(self) -> bool:
        return any(error is not None for _, error in self.over_grpc)


def _request(own_id: str) -> str:
    inputs = [
        {"name": name, "datatype": "INT32", "shape": [1], "data": [data]}
        for name, data in _ENDLESS.items()
    ]
    return json.dumps({"id": own_id, "inputs": inputs})


def _open_events(server: Server, authorization: str) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", server.http_port), timeout=60)
    body = json.dumps(_ENDLESS).encode()
    head = (
        "POST /v2/models/tokens/generate_stream HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: {authorization}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    client.sendall(head.encode() + body)
    assert client.recv(4096).startswith(b"HTTP/1.1 200")
    return client


def _ends(client: socket.socket) -> bool:
    """Read to the end of a stream of events; time out if it goes on."""
    try:
        while client.recv(65536):
            pass
    except ConnectionResetError:
        return True
    return True


def _is_closed(client: ClientConnection) -> bool:
    try:
        for _ in client:
            pass
    except exceptions.ConnectionClosed:
        return True
    return True


def _is_open(client: ClientConnection) -> bool:
    return bool(client.recv(timeout=60))


def test_a_client_is_thrown_out_by_its_token_with_all_its_streams(guarded: Server) -> None:
    with ExitStack() as stack:
        kept, thrown_out = (_Streams(stack, guarded, name) for name in _TOKENS)

        listed = ctl(guarded, "clients", "--interval", "0.2", "-o", "json")
        assert not listed.stderr
        shown = json.loads(listed.stdout)
        closed = ctl(guarded, "disconnect", "--token", "thrown-out")

        over_http = {row["token"]: row["connections"] for row in shown if row["protocol"] == "http"}
        over_grpc = [row["token"] for row in shown if row["protocol"] == "grpc"]
        assert {"kept": 2, "thrown-out": 2} == over_http
        # clients of one process share a connection of gRPC
        assert {*_TOKENS} == {*", ".join(over_grpc).split(", ")}
        assert "ended 3 requests or streams on 3 connections\n" == closed.stdout
        assert _ends(thrown_out.events)
        assert _is_closed(thrown_out.web_socket)
        eventually(lambda: thrown_out.error_over_grpc, 60, "the end of the stream over gRPC")
        # the other client's streams go on
        assert kept.events.recv(4096)
        assert _is_open(kept.web_socket)
        assert not kept.error_over_grpc
        # and the model knows that it need not go on
        eventually(lambda: "socket-thrown-out" in [e.id for e in read_journal(guarded.journal)], 60)


def test_a_client_is_thrown_out_by_its_address(guarded: Server) -> None:
    with _open_events(guarded, f"Bearer {_TOKENS['kept']}") as client:
        others = ctl(guarded, "disconnect", "192.0.2.0/24")
        wrong = ctl(guarded, "disconnect", "localhost")
        closed = ctl(guarded, "disconnect", "127.0.0.0/8", "--token", "kept", "-o", "json")

        assert 1 == others.exit_code
        assert "no open connection of 192.0.2.0/24" in others.stderr
        assert "'localhost' must be an IP address, or a network" in wrong.stderr
        assert {"connections": 1, "busy": 1} == json.loads(closed.stdout)
        assert _ends(client)


def test_a_stream_whose_token_has_been_removed_still_has_its_name(guarded: Server) -> None:
    authorization = f"Bearer {_TOKENS['thrown-out']}"

    def status() -> int:
        return guarded.exchange("/v2", headers={"Authorization": authorization}).status

    def connections() -> int:
        rows = json.loads(ctl(guarded, "clients", "--interval", "0.2", "-o", "json").stdout)
        return sum(row["connections"] for row in rows if row["token"] == "thrown-out")

    try:
        with _open_events(guarded, authorization) as client:
            _write_tokens(guarded.directory.parent, "kept")
            eventually(lambda: status() == 401, 60, "no longer valid")
            # those of the questions may still be closing
            eventually(lambda: connections() == 1, 60, "the stream's connection alone is left")

            closed = ctl(guarded, "disconnect", "--token", "thrown-out")

            assert "ended 1 request or stream on 1 connection\n" == closed.stdout
            assert _ends(client)
    finally:
        _write_tokens(guarded.directory.parent, *_TOKENS)
    eventually(lambda: status() == 200, 60, "valid again")
