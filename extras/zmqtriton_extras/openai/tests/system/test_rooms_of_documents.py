"""Documents of one client take their room; clients of other addresses are served meanwhile."""

from __future__ import annotations

import http.client
import json
import select
from contextlib import ExitStack

import pytest

from tests.faults.attacks.watching import MIB, Gauge, max_mib
from tests.support.server import Server
from tests.support.waiting import value_at_rest

LIMIT, CLIENTS, PARTS = 128 * MIB, 12, 100_000
pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        options=["--allow-openai", f"--client-memory-byte-size={LIMIT}"], frontends=(), own=True
    ),
]
CONFIG = """
backend: "python"
input { name: "text_input" data_type: TYPE_STRING dims: [ 1 ] }
output { name: "text_output" data_type: TYPE_STRING dims: [ 1 ] }
"""
CODE = """
import os, time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        while not os.path.exists({path!r}):
            time.sleep(0.01)
        out = pb_utils.Tensor("text_output", np.array([b"said"], np.object_))
        return [pb_utils.InferenceResponse([out]) for _ in requests]
"""


def prepare(server: Server) -> None:
    server.write_model("slow", CONFIG, CODE.format(path=str(server.repository.parent / "go")))


def chat(parts: int) -> bytes:
    content = [{"type": "text", "text": "a"}] * parts
    return json.dumps(
        {"model": "slow", "messages": [{"role": "user", "content": content}]},
        separators=(",", ":"),
    ).encode()


def ask(server: Server, address: str, body: bytes) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, 120, (address, 0))
    connection.request("POST", "/v1/chat/completions", body)
    return connection


def test_many_documents_of_a_client_stay_within_its_memory(server: Server) -> None:
    body = chat(PARTS)
    with Gauge(server) as gauge, ExitStack() as stack:
        idle = gauge.newest.own["http"]
        clients = [ask(server, "127.0.0.3", body) for _ in range(CLIENTS)]
        for client in clients:
            stack.callback(client.close)
        other = ask(server, "127.0.0.2", chat(1))
        stack.callback(other.close)
        # each of the clients is refused, or waits for the model
        sockets = [client.sock for client in clients]
        value_at_rest(lambda: len(select.select(sockets, [], [], 0)[0]))

        (server.repository.parent / "go").touch()
        statuses = [client.getresponse().status for client in clients]
        assert 200 == other.getresponse().status
        peak = gauge.take_peak().own["http"]

    assert {200, 503} == set(statuses)
    assert peak < max_mib(idle, LIMIT // MIB)
