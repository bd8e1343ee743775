"""Options of the command line, by what they do to servers that run."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import grpc
import pytest

from tests.support.server import Server
from tests.support.waiting import eventually
from zmqtriton_protos import message

CORES = sorted(os.sched_getaffinity(0))
SHARED = ("--reuse-http-port=true", "--reuse-grpc-port=true", "--allow-metrics=false")
pytestmark = [
    pytest.mark.system,
    pytest.mark.server(),
]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    """Two on the same ports."""
    directory = tmp_path_factory.mktemp("options")
    log_file = directory / "its.log"
    first = Server(
        directory / "first",
        ["add_sub"],
        options=[
            *SHARED,
            "--id=first",
            f"--log-file={log_file}",
            "--log-info=false",
            "--log-verbose=0",
            "--exit-on-error=false",
            "--strict-readiness=false",
            "--http-thread-count=2",
            f"--host-policy=cpu,cpu-cores={CORES[0]}",
            f"--host-policy=mine,cpu-cores={CORES[-1]}",
        ],
    )
    _pinned(first, "spawned", 'parameters { key: "PYTHON_EXECUTABLE" value { string_value: "')
    (first.repository / "broken" / "1").mkdir(parents=True)
    file = directory / "second.toml"
    file.write_text(f'id = "second"\nruntime-directory = "{directory}/run"\n')
    second = Server(directory / "second", options=[*SHARED, f"--config={file}"])
    second.http_port, second.grpc_port = first.http_port, first.grpc_port
    first.start()
    try:
        second.launch()
        eventually(lambda: {"first", "second"} == _ids(first), 60, "both servers answer")
        yield first, second
    finally:
        for server in (second, first):
            server.stop()


def _pinned(server: Server, name: str, parameter: str) -> None:
    """add_sub under a host policy of its own, in a process that no fork server has forked."""
    config = server.add_model("add_sub", name) / "config.pbtxt"
    text = config.read_text().replace("count: 1", 'count: 1 host_policy: "mine"')
    config.write_text(f'{text}{parameter}{sys.executable}" }} }}')


def _metadata(port: int) -> dict[str, str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2", timeout=10) as answer:
        document: dict[str, str] = json.load(answer)
    return document


def _ids(server: Server) -> set[str]:
    """Of whoever answers new connections."""
    names = set()
    for _ in range(16):
        with suppress(OSError):
            names.add(_metadata(server.http_port)["name"])
    return names


def _names(server: Server) -> set[str]:
    """The same over gRPC."""
    request = message("inference.ServerMetadataRequest")().SerializeToString()
    answer = message("inference.ServerMetadataResponse")
    names = set()
    for number in range(16):
        # Channels of one process share a connection unless their options differ.
        with grpc.insecure_channel(server.grpc_address, options=[("number", number)]) as channel:
            call = channel.unary_unary("/inference.GRPCInferenceService/ServerMetadata")
            with suppress(grpc.RpcError):
                names.add(answer.FromString(call(request, timeout=10)).name)
    return names


@pytest.mark.row("--id", "--reuse-http-port", "--reuse-grpc-port")
def test_two_servers_share_their_ports(servers: tuple[Server, Server]) -> None:
    first, _ = servers
    # The kernel chooses; it may choose the same one for each of a few.
    eventually(lambda: {"first", "second"} == _ids(first), 30, "both answer over HTTP")
    eventually(lambda: {"first", "second"} == _names(first), 30, "both answer over gRPC")


@pytest.mark.row("--host-policy")
def test_instances_run_on_the_cores_of_their_policy(servers: tuple[Server, Server]) -> None:
    first, _ = servers

    for model, core in (("add_sub", CORES[0]), ("spawned", CORES[-1])):
        (stub,) = first.stub_pids(model)
        threads = [int(name) for name in os.listdir(f"/proc/{stub}/task")]
        assert {core} == {c for thread in threads for c in os.sched_getaffinity(thread)}


@pytest.mark.row("--log-file", "--log-info")
def test_the_log_goes_to_a_file_without_what_is_not_wanted(
    servers: tuple[Server, Server],
) -> None:
    first, _ = servers
    lines = (first.directory.parent / "its.log").read_text().splitlines()

    assert any(line.startswith("E") and "broken" in line for line in lines)
    assert [] == [line for line in lines if line.startswith("I")]
    assert "broken" not in first.log_text()


@pytest.mark.row("--strict-readiness", "--exit-on-error", "--http-thread-count")
def test_a_server_may_be_ready_in_spite_of_a_model_that_is_not(
    servers: tuple[Server, Server],
) -> None:
    first, _ = servers

    assert first.returncode is None
    assert first.is_ready()
    warning = (
        "accepted and ignored: --http-thread-count: no request waits for a thread; "
        "see --http-workers"
    )
    assert warning in first.log_text()


@pytest.mark.row("--allow-metrics")
def test_what_is_not_allowed_does_not_listen(servers: tuple[Server, Server]) -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", servers[0].metrics_port))


@pytest.mark.long(
    "system/operations/test_options.py::test_two_servers_share_their_ports",
    "supervisor/server_processes/test_shutdown.py::test_open_sequences_are_waited_for_until_the_time_is_over",
)
@pytest.mark.row("--reuse-http-port", "--reuse-grpc-port", "E78")
def test_who_connects_while_one_of_several_ends_its_sequences_finds_the_others(
    servers: tuple[Server, Server], tmp_path: Path
) -> None:
    first, _ = servers
    third = Server(tmp_path, options=[*SHARED, "--id=third"])
    third.http_port, third.grpc_port = first.http_port, first.grpc_port
    third.add_model("sequences")
    third.edit_config("sequences", "microseconds: 5000000", "microseconds: 600000000")
    try:
        third.launch()
        eventually(lambda: "third" in _ids(first) & _names(first), 60, "the third answers")
        begun = _connected_to("third", first.http_port)
        assert 200 == _ask(begun, sequence_start=True)

        os.kill(third.pid, signal.SIGTERM)

        eventually(lambda: "third" not in _ids(first), 30, "it is another one over HTTP")
        eventually(lambda: "third" not in _names(first), 30, "it is another one over gRPC")
        assert [200, 200] == [_ask(begun), _ask(begun, sequence_end=True)]
        begun.close()
        assert 0 == third.wait(60)
    finally:
        third.stop()


def _connected_to(name: str, port: int) -> http.client.HTTPConnection:
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", "/v2")
        if json.load(connection.getresponse())["name"] == name:
            return connection
        connection.close()


def _ask(connection: http.client.HTTPConnection, **flags: bool) -> int:
    tensor = {"name": "VALUE", "datatype": "INT32", "shape": [1, 1], "data": [1]}
    body = {"inputs": [tensor], "parameters": {"sequence_id": 7, **flags}}
    connection.request("POST", "/v2/models/sequences/infer", json.dumps(body))
    response = connection.getresponse()
    response.read()
    return response.status
