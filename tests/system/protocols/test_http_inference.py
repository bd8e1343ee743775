"""Inference over HTTP as clients of all kinds ask for it, over real sockets."""

from __future__ import annotations

import base64
import concurrent.futures
import hashlib
import json
import random
import socket
import subprocess
from pathlib import Path

import pytest

from tests.support import scripted
from tests.support.journal import (
    UNTIL_RELEASED,
    executions,
    journal_inputs,
    read_journal,
    release_execution,
)
from tests.support.needs import find_tool
from tests.support.raw_http import raw_request
from tests.support.scraping import cancelled_requests, pending_requests
from tests.support.server import Copy, Server, Written
from tests.support.waiting import eventually

DETECTOR = """
backend: "python"
model_transaction_policy { decoupled: true }
input [ { name: "PICTURE" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "FOUND" data_type: TYPE_STRING dims: [ 1 ] } ]
"""
DETECTOR_CODE = """
import hashlib

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            picture = pb_utils.get_input_tensor_by_name(request, "PICTURE").as_numpy()[0]
            for found in (str(len(picture)), hashlib.sha256(picture).hexdigest()):
                output = pb_utils.Tensor("FOUND", np.array([found.encode()], np.object_))
                request.get_response_sender().send(pb_utils.InferenceResponse([output]))
            request.get_response_sender().send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


ASK_WITH_A_PICTURE = """
(async () => {
  const body = new Blob([new Uint8Array([255, 216, 255, 0, 128])], {type: "image/jpeg"});
  return (await fetch("SERVER/v2/models/detector/generate_stream", {method: "POST", body})).text();
})()
"""
OF_THE_PICTURE = ["5", hashlib.sha256(bytes((255, 216, 255, 0, 128))).hexdigest()]
pytestmark = [
    pytest.mark.system,
    pytest.mark.large_tensors,
    pytest.mark.server(
        models=[
            "identity_fp32",
            "journal",
            Copy("scripted", "plain"),
            Copy("scripted", "decoupled", scripted.DECOUPLED),
            Written("detector", DETECTOR, DETECTOR_CODE),
        ],
    ),
]


def _post(server: Server, path: str, body: bytes, **headers: str) -> tuple[int, bytes]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = server.exchange(path, body, named)
    return answer.status, answer.body


@pytest.mark.parametrize("size", [0, 1000, 3 << 20])
def test_a_stream_is_asked_with_a_picture(server: Server, tmp_path: Path, size: int) -> None:
    picture = tmp_path / "street.jpg"
    picture.write_bytes(random.Random(size).randbytes(size))
    path = "/v2/models/detector/generate_stream"
    kind = "Content-Type: image/jpeg"
    curl = [find_tool("curl"), "-sN", f"{server.url}{path}", "-H", kind, "--data-binary"]
    document = {"PICTURE": {"b64": base64.b64encode(picture.read_bytes()).decode()}}
    as_json = json.dumps(document).encode()

    answers = [
        subprocess.run([*curl, f"@{picture}"], check=True, capture_output=True).stdout,
        _post(server, path, picture.read_bytes(), Content_Type="image/png", Origin=server.url)[1],
        _post(server, path, as_json, Content_Type="text/plain;charset=UTF-8")[1],
    ]

    expected = [str(size), hashlib.sha256(picture.read_bytes()).hexdigest()]
    for answer in answers:
        events = [json.loads(line[5:]) for line in answer.decode().splitlines() if line]
        assert expected == [event["FOUND"] for event in events]


def test_node_asks_a_stream_with_a_picture(server: Server) -> None:
    code = f"({ASK_WITH_A_PICTURE.replace('SERVER', server.url)}).then(console.log)"

    text = subprocess.run([find_tool("node"), "-e", code], check=True, capture_output=True).stdout

    assert OF_THE_PICTURE == [json.loads(line[5:])["FOUND"] for line in text.splitlines() if line]


def _journal(name: str, milliseconds: int) -> bytes:
    return json.dumps({"inputs": journal_inputs(name, milliseconds)}).encode()


@pytest.mark.row("C33")
def test_what_waits_for_a_client_that_left_is_never_executed(server: Server) -> None:
    path, port = "/v2/models/journal/infer", server.http_port
    before, cancelled = read_journal(server.journal), cancelled_requests(server, "journal")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        first = pool.submit(_post, server, path, _journal("first", UNTIL_RELEASED))
        eventually(lambda: "first" in executions(server.journal), 60, "the first is executed")
        with socket.create_connection(("127.0.0.1", port)) as leaving:
            leaving.sendall(raw_request("POST", path, _journal("left", 0)))
            eventually(lambda: pending_requests(server, "journal") == 1, 60, "it waits")
        eventually(
            lambda: cancelled_requests(server, "journal") == cancelled + 1, 20, "it is cancelled"
        )
        last = pool.submit(_post, server, path, _journal("last", 0))
        release_execution(server.journal, "first")

        assert [200, 200] == [first.result()[0], last.result()[0]]
    records = read_journal(server.journal)[len(before) :]
    assert ["first", "last"] == [record.id for record in records if record.event == "start"]
