"""Requests and responses over a WebSocket, from a real client to models and back."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from websockets import exceptions
from websockets.sync.client import ClientConnection, connect
from wsproto import events
from wsproto.connection import Connection, ConnectionType

from tests.support.journal import read_journal
from tests.support.needs import find_tool
from tests.support.scraping import pending_requests
from tests.support.server import Server
from tests.support.waiting import eventually
from zmqtriton_extras.web_sockets.frames import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    TEXT,
    FrameReader,
    Violation,
)
from zmqtriton_extras.web_sockets.tests import conversations
from zmqtriton_extras.web_sockets.tests.conversations import client_frame
from zmqtriton_floor import token_file
from zmqtriton_floor.token_file import Grant

pytestmark = pytest.mark.system

MODELS = ["tokens", "add_sub", "identity_fp32", "sequences", "raising"]
FINAL = "triton_final_response"
HANDSHAKE = (
    "GET /v2/models/{model}/stream HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
    "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("sockets"), models=MODELS) as started:
        yield started


def open_socket(server: Server, model: str, **how: Any) -> ClientConnection:
    return connect(f"ws://127.0.0.1:{server.http_port}/v2/models/{model}/stream", **how)


def raw_socket(server: Server, model: str) -> socket.socket:
    """Return a connection whose handshake is sent, and which takes little at once."""
    client = socket.create_connection(("127.0.0.1", server.http_port))
    client.settimeout(60)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.sendall(HANDSHAKE.format(model=model).encode())
    return client


def tokens(own_id: str, count: int, delay_us: int = 0) -> str:
    rows = [("COUNT", count), ("DELAY_US", delay_us)]
    inputs = [{"name": n, "datatype": "INT32", "shape": [1], "data": [v]} for n, v in rows]
    return json.dumps({"id": own_id, "inputs": inputs})


def sums(value: float) -> dict[str, Any]:
    row = {"datatype": "FP32", "shape": [1, 16], "data": [value] * 16}
    return {"inputs": [{"name": "INPUT0", **row}, {"name": "INPUT1", **row}]}


def receive(client: ClientConnection) -> dict[str, Any]:
    return json.loads(client.recv(timeout=60))


def is_final(document: dict[str, Any]) -> bool:
    return bool(document["parameters"][FINAL])


@pytest.mark.row("L30")
def test_streams_of_one_connection_come_side_by_side_and_whole(server: Server) -> None:
    with open_socket(server, "tokens", subprotocols=["zmqtriton"]) as client:
        for own_id in ("a", "b"):
            client.send(tokens(own_id, 200, 2000))
        answers = [receive(client) for _ in range(400)]

        assert client.subprotocol == "zmqtriton"
    of_each = {i: [a for a in answers if a["id"] == i] for i in ("a", "b")}
    assert [a["outputs"][1]["data"] for a in of_each["a"]] == [[i] for i in range(200)]
    assert [is_final(a) for a in of_each["b"]] == [False] * 199 + [True]
    assert answers.index(of_each["b"][0]) < answers.index(of_each["a"][-1])


def test_other_models_answer_in_the_order_of_their_requests(server: Server) -> None:
    with open_socket(server, "add_sub") as client:
        for number in range(200):
            client.send(json.dumps({"id": str(number), **sums(number)}))
        answers = [receive(client) for _ in range(200)]

    assert [str(number) for number in range(200)] == [answer["id"] for answer in answers]
    assert all(a["outputs"][0]["data"] == [2.0 * int(a["id"])] * 16 for a in answers)
    assert all(is_final(answer) for answer in answers)


@pytest.mark.row("L30")
def test_tensors_come_and_go_as_binary_messages(server: Server) -> None:
    values = np.arange(1 << 20, dtype=np.float32)
    document = {
        "id": "big",
        "parameters": {"binary_data_output": True},
        "inputs": [
            {
                "name": "INPUT0",
                "datatype": "FP32",
                "shape": [len(values)],
                "parameters": {"binary_data_size": values.nbytes},
            }
        ],
    }
    text = json.dumps(document).encode()

    with open_socket(server, "identity_fp32", max_size=None) as client:
        client.send(len(text).to_bytes(4, "little") + text + values.tobytes())
        answer = client.recv(timeout=60)

    assert isinstance(answer, bytes)
    length = int.from_bytes(answer[:4], "little")
    head = json.loads(answer[4 : 4 + length])
    assert head["id"] == "big"
    assert {"binary_data_size": values.nbytes} == head["outputs"][0]["parameters"]
    assert values.tobytes() == answer[4 + length :]


def test_a_wrong_request_has_an_error_with_its_id_and_ends_no_other(server: Server) -> None:
    with open_socket(server, "add_sub") as client:
        client.send('{"id": "wrong", "inputs": 3}')
        client.send("[")
        client.send(b"\xff\xff\0\0{}")
        client.send(json.dumps({"id": "right", **sums(1)}))
        first, second, third, last = [receive(client) for _ in range(4)]

    assert (first["id"], first["status"]) == ("wrong", 400)
    assert first["error"].startswith("Unable to parse 'inputs'")
    assert second["error"].startswith("failed to parse the request JSON")
    assert "little endian" in third["error"]
    assert last["id"] == "right"


def test_what_a_model_raises_is_its_requests_error(server: Server) -> None:
    row = {"name": "INPUT0", "datatype": "FP32", "shape": [1], "data": [1]}
    with open_socket(server, "raising") as client:
        client.send(json.dumps({"id": "r", "inputs": [row]}))
        answer = receive(client)

    assert answer["id"] == "r"
    assert answer["error"]


@pytest.mark.row("L30")
def test_a_cancelled_request_reaches_its_model_and_ends_alone(server: Server) -> None:
    with open_socket(server, "tokens") as client:
        client.send(tokens("long", 1_000_000, 1000))
        client.send(tokens("other", 500, 1000))
        receive(client)
        client.send('{"cancel": "long"}')
        answers = [receive(client)]
        while not any(a["id"] == "other" and is_final(a) for a in answers):
            answers.append(receive(client))

    [error] = [answer for answer in answers if "error" in answer]
    assert error["id"] == "long"
    assert not any(a["id"] == "long" for a in answers[answers.index(error) + 1 :])
    eventually(lambda: ("cancelled", "long") in _journal(server), 30)


def _journal(server: Server) -> list[tuple[str, str]]:
    return [(entry.event, entry.id) for entry in read_journal(server.journal)]


@pytest.mark.parametrize("is_orderly", [True, False])
def test_a_client_that_goes_cancels_what_it_has_asked(server: Server, is_orderly: bool) -> None:
    own_id = f"gone-{is_orderly}"
    with open_socket(server, "tokens") as client:
        client.send(tokens(own_id, 1_000_000, 1000))
        receive(client)
        if not is_orderly:
            client.socket.shutdown(socket.SHUT_RDWR)

    eventually(lambda: ("cancelled", own_id) in _journal(server), 30)
    eventually(lambda: pending_requests(server, "tokens") == 0, 30)


def test_sequences_are_executed_in_order(server: Server) -> None:
    def step(value: int, **more: bool) -> str:
        row = {"name": "VALUE", "datatype": "INT32", "shape": [1, 1], "data": [value]}
        return json.dumps({"parameters": {"sequence_id": 77, **more}, "inputs": [row]})

    with open_socket(server, "sequences") as client:
        client.send(step(1, sequence_start=True))
        for value in range(2, 50):
            client.send(step(value))
        client.send(step(50, sequence_end=True))
        answers = [receive(client) for _ in range(50)]

    totals = [out["data"][0] for a in answers for out in a["outputs"] if out["name"] == "SUM"]
    assert [sum(range(1, n + 1)) for n in range(1, 51)] == totals


def test_a_handshake_is_refused_as_a_request_of_http_would_be(server: Server) -> None:
    def refusal(model: str, **how: Any) -> tuple[int, str]:
        with (
            pytest.raises(exceptions.InvalidStatus) as raised,
            open_socket(server, model, **how),
        ):
            pass
        response = raised.value.response
        return response.status_code, json.loads(response.body)["error"]

    status, text = refusal("nobody")
    assert (status, text) == (400, "Request for unknown model: 'nobody' is not found")
    status, text = refusal("add_sub", origin="http://elsewhere.example")
    assert status == 403
    assert "--http-allowed-origin" in text
    # a browser shows its page none of this, so the log has it
    line = "a page of 'http://elsewhere.example' is refused: This API is not open to web pages"
    eventually(lambda: line in server.log_text(), 30, "the refusal in the log")
    assert server.status("/v2/models/add_sub/stream") == 426


def test_a_page_of_the_same_origin_is_let_in(server: Server) -> None:
    with open_socket(server, "add_sub", origin=server.url) as client:
        client.send(json.dumps(sums(2)))

        assert receive(client)["outputs"][0]["data"] == [4.0] * 16


def test_a_client_that_reads_nothing_holds_its_model_back_and_no_others(server: Server) -> None:
    slow = raw_socket(server, "tokens")
    text = tokens("slow", 1_000_000).encode()
    slow.sendall(client_frame(TEXT, text))
    [http_pid] = server.pids()["http"][-1:]

    with open_socket(server, "add_sub") as client:
        for number in range(100):
            client.send(json.dumps({"id": str(number), **sums(number)}))
            assert str(number) == receive(client)["id"]
    slow.close()

    eventually(lambda: ("cancelled", "slow") in _journal(server), 30)
    assert http_pid in server.pids()["http"]


@pytest.mark.parametrize(
    ("code", "data"), [(1002, b"\x81\x00"), (1007, b"\x81\x81\0\0\0\0\xff"), (1009, None)]
)
def test_a_violation_ends_one_connection_with_its_code(
    server: Server, code: int, data: bytes | None
) -> None:
    if data is None:
        data = b"\x82\xff" + (1 << 60).to_bytes(8, "big") + bytes(4)
    with open_socket(server, "add_sub") as client:
        client.socket.sendall(data + b"more that is not read")

        with pytest.raises(exceptions.ConnectionClosed):
            client.recv(timeout=30)

    assert code == client.close_code


def test_whatever_a_client_sends_it_gets_what_is_due(server: Server) -> None:
    counts = Counter[str]()
    for number in range(150):
        conversation = conversations.make(Random(f"server {number}"), counts)
        conversation += client_frame(CLOSE, b"\x0f\xa0")
        due = _due(conversation)
        client = raw_socket(server, "add_sub")
        # more may be sent than the server reads
        sending = threading.Thread(target=_send_all, args=(client, conversation))
        sending.start()
        answers = _read_answers(client)
        sending.join()
        client.close()
        with open_socket(server, "add_sub") as other:
            other.send(json.dumps(sums(number)))
            assert [2.0 * number] * 16 == receive(other)["outputs"][0]["data"]

        assert due == answers, number
    assert set(conversations.FAULTS) < counts.keys()


def _due(conversation: bytes) -> list[tuple[int, bytes | int]]:
    """Return what the server must send: an error for each message, pongs, and how it closes."""
    reader, due = FrameReader(1 << 20), list[tuple[int, bytes | int]]()
    reader.feed(conversation)
    try:
        while (message := reader.read()) is not None:
            if message.opcode == CLOSE:
                return [*due, (CLOSE, message.code)]
            if message.opcode == PING:
                due.append((PONG, message.data))
            elif message.opcode in (TEXT, BINARY):
                due.append((TEXT, 400))
    except Violation as violation:
        return [*due, (CLOSE, violation.code)]
    raise AssertionError("it ends with a closing frame")


def _send_all(client: socket.socket, data: bytes) -> None:
    with suppress(OSError):
        client.sendall(data)


def _read_answers(client: socket.socket) -> list[tuple[int, bytes | int]]:
    """Read to the end of a connection."""
    received = b""
    with suppress(ConnectionResetError):
        while data := client.recv(1 << 16):
            received += data
    head, frames = received.split(b"\r\n\r\n", 1)
    assert head.startswith(b"HTTP/1.1 101 ")
    peer = Connection(ConnectionType.CLIENT)
    peer.receive_data(frames)
    answers = list[tuple[int, bytes | int]]()
    for event in peer.events():
        if isinstance(event, events.TextMessage):
            answers.append((TEXT, json.loads(event.data)["status"]))
        elif isinstance(event, events.Pong):
            answers.append((PONG, bytes(event.payload)))
        elif isinstance(event, events.CloseConnection):
            answers.append((CLOSE, int(event.code)))
    return answers


def test_an_instance_that_dies_ends_its_requests_with_an_error(server: Server) -> None:
    with open_socket(server, "tokens") as client:
        client.send(tokens("cut", 1_000_000, 1000))
        receive(client)
        [pid] = server.stub_pids("tokens")
        os.kill(pid, signal.SIGKILL)
        answers = [receive(client)]
        while "error" not in answers[-1]:
            answers.append(receive(client))
        eventually(lambda: server.stub_pids("tokens") not in ([], [pid]), 60)
        client.send(tokens("again", 1))
        after = receive(client)

    assert (answers[-1]["id"], is_final(answers[-1])) == ("cut", True)
    assert (after["id"], is_final(after)) == ("again", True)


def test_a_server_that_ends_lets_streams_end_and_tells_quiet_clients(tmp_path: Path) -> None:
    with Server(tmp_path, models=["tokens"], frontends=()) as server:
        open_one = partial(open_socket, server, "tokens")
        with open_one() as quiet, open_one() as busy:
            # a few slow ones: of each a busy machine makes a longer one
            busy.send(tokens("busy", 300, 10_000))
            receive(busy)
            stopping = threading.Thread(target=server.stop)
            stopping.start()
            with pytest.raises(exceptions.ConnectionClosed):
                quiet.recv(timeout=30)
            answers = [receive(busy)]
            while not is_final(answers[-1]):
                answers.append(receive(busy))
            with pytest.raises(exceptions.ConnectionClosed):
                busy.recv(timeout=30)
            stopping.join()

    assert [quiet.close_code, busy.close_code] == [1001, 1001]
    assert "error" not in answers[-1]
    assert answers[-1]["outputs"][1]["data"][0] == 299


def test_tokens_are_needed_as_over_http_and_may_come_as_a_subprotocol(tmp_path: Path) -> None:
    file = tmp_path / "tokens.conf"
    token = "zmqt_a-secret-0123456789-0123456789"
    grant = Grant(
        "web",
        token_file.Grant.digest_of(token),
        token_file.parse_scopes("infer"),
        ("add_sub",),
        None,
    )
    file.write_text(grant.line() + "\n")
    file.chmod(0o600)
    options = [f"--tokens={file}"]
    with Server(tmp_path / "s", models=["add_sub", "tokens"], options=options) as server:
        with pytest.raises(exceptions.InvalidStatus) as raised, open_socket(server, "add_sub"):
            pass
        bearer = [f"bearer.{token}", "zmqtriton"]
        with open_socket(server, "add_sub", subprotocols=bearer) as client:
            client.send(json.dumps(sums(3)))
            answer = receive(client)
        with (
            pytest.raises(exceptions.InvalidStatus) as foreign,
            open_socket(server, "tokens", subprotocols=bearer),
        ):
            pass

    assert raised.value.response.status_code == 401
    assert answer["outputs"][0]["data"] == [6.0] * 16
    assert foreign.value.response.status_code == 403


def test_the_time_that_a_handshake_names_is_that_of_each_request(server: Server) -> None:
    how = {"additional_headers": {"X-Request-Timeout": "0.5"}}
    with open_socket(server, "tokens", **how) as client:
        for own_id in ("first", "second"):
            client.send(tokens(own_id, 1_000_000, 10_000))
            answers = [receive(client)]
            while "error" not in answers[-1]:
                answers.append(receive(client))

            assert (own_id, 504) == (answers[-1]["id"], answers[-1]["status"])


@pytest.mark.long(
    "frontends/http_api/server/test_connections.py::test_where_there_are_too_many_the_oldest_idle_one_has_to_go"
)
def test_sockets_that_say_nothing_make_room_for_others(tmp_path: Path) -> None:
    server = Server(tmp_path, models=["add_sub"], frontends=())
    prlimit = find_tool("prlimit", package="util-linux")
    server.wrapper = (prlimit, "--nofile=250:250")
    with server, ExitStack() as stack:
        for _ in range(300):
            client = socket.socket()
            stack.callback(client.close)
            client.settimeout(60)
            client.bind(("127.0.0.2", 0))
            client.connect(("127.0.0.1", server.http_port))
            client.sendall(HANDSHAKE.format(model="add_sub").encode())

        for number in range(10):
            with open_socket(server, "add_sub", open_timeout=60) as honest:
                honest.send(json.dumps(sums(number)))
                assert [2.0 * number] * 16 == receive(honest)["outputs"][0]["data"]
