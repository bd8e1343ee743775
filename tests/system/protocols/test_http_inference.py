"""Inference over HTTP as clients of all kinds ask for it, over real sockets."""

from __future__ import annotations

import base64
import concurrent.futures
import gzip
import hashlib
import json
import os
import random
import signal
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
from tritonclient.utils import InferenceServerException

from tests.conftest import find_tool
from tests.faults import frontend_death
from tests.support import scripted
from tests.support.browser import Browser
from tests.support.clients import infer_inputs
from tests.support.journal import UNTIL_RELEASED, executions, read_journal, release_execution
from tests.support.raw_http import raw_request, send_raw
from tests.support.scraping import cancelled_requests, pending_requests
from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

SHARED = KILLS = True

INFER = "/v2/models/identity_fp32/infer"
ONE = json.dumps(
    {"inputs": [{"name": "INPUT0", "shape": [1], "datatype": "FP32", "data": [1.0]}]}
).encode()
ROWS = """
backend: "python"
max_batch_size: 8
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 5 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 5 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
dynamic_batching { max_queue_delay_microseconds: 50000 }
"""
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
MODELS = ["identity_fp32", "journal"]


def prepare(server: Server) -> None:
    scripted.add_model(server, "scripted", "plain")
    scripted.add_model(server, "scripted", "decoupled", scripted.DECOUPLED)
    (server.add_model("identity_fp32", "rows") / "config.pbtxt").write_text(ROWS)
    detector = server.add_model("identity_fp32", "detector")
    (detector / "config.pbtxt").write_text(DETECTOR)
    (detector / "1" / "model.py").write_text(DETECTOR_CODE)


def _post(server: Server, path: str, body: bytes, **headers: str) -> tuple[int, bytes]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(f"{server.url}{path}", body, named)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


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


@pytest.mark.long("system/protocols/test_http_inference.py::test_a_stream_is_asked_with_a_picture")
def test_a_page_asks_a_stream_with_a_picture(server: Server, tmp_path: Path) -> None:
    with Browser(tmp_path) as browser:
        browser.open(f"{server.url}/v2/health/live")
        browser.wait_for("location.pathname === '/v2/health/live'")
        text = browser.evaluate(ASK_WITH_A_PICTURE.replace("SERVER", server.url))

    assert OF_THE_PICTURE == [json.loads(line[5:])["FOUND"] for line in text.splitlines() if line]


def test_node_asks_a_stream_with_a_picture(server: Server) -> None:
    code = f"({ASK_WITH_A_PICTURE.replace('SERVER', server.url)}).then(console.log)"

    text = subprocess.run([find_tool("node"), "-e", code], check=True, capture_output=True).stdout

    assert OF_THE_PICTURE == [json.loads(line[5:])["FOUND"] for line in text.splitlines() if line]


@pytest.mark.row("C34")
def test_one_connection_carries_requests_of_all_framings(server: Server) -> None:
    chunked = b"".join(b"%x\r\n%b\r\n" % (1, ONE[i : i + 1]) for i in range(len(ONE)))
    stream = b"".join(
        (
            raw_request("POST", INFER, ONE),
            raw_request("POST", INFER, chunked + b"0\r\n\r\n", Transfer_Encoding="chunked"),
            raw_request("GET", "/v2/health/live"),
            raw_request("POST", INFER, ONE, Connection="close"),
        )
    )

    got = send_raw(server.http_port, stream)

    assert ([200] * 4, True) == (got.statuses, got.is_closed)
    assert 3 == got.data.count(b'"data":[1.0]')


@pytest.mark.row("C34")
def test_a_client_may_ask_whether_its_body_is_wanted(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.http_port)) as connection:
        connection.settimeout(20)
        length = str(len(ONE))
        connection.sendall(
            raw_request(
                "POST", INFER, Expect="100-continue", Content_Length=length, Connection="close"
            )
        )
        assert b"HTTP/1.1 100 Continue\r\n\r\n" == connection.recv(1000)

        connection.sendall(ONE)

        assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")


@pytest.mark.row("C30", "C35")
def test_a_form_that_is_json_and_compressed_is_answered_in_kind(server: Server) -> None:
    status, body = _post(
        server,
        INFER,
        gzip.compress(ONE, mtime=0),
        Content_Type="application/x-www-form-urlencoded",
        Content_Encoding="gzip",
        Accept_Encoding="deflate;q=0.5, gzip;q=0.9, br",
    )

    assert 200 == status
    assert [1.0] == json.loads(gzip.decompress(body))["outputs"][0]["data"]


def _journal(name: str, milliseconds: int) -> bytes:
    inputs = [
        {"name": "ID", "shape": [1, 1], "datatype": "BYTES", "data": [name]},
        {"name": "MS", "shape": [1, 1], "datatype": "INT32", "data": [milliseconds]},
    ]
    return json.dumps({"inputs": inputs}).encode()


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


@pytest.mark.row("C33")
def test_a_model_learns_that_its_client_has_left(server: Server) -> None:
    script = f"""
import time
open({str(server.scratch / "begun")!r}, "w").close()
while not request.is_cancelled():
    time.sleep(0.005)
open({str(server.scratch / "told")!r}, "w").close()
return [reply("late")]
"""
    inputs = [{"name": "SCRIPT", "shape": [1], "datatype": "BYTES", "data": [script]}]
    body = json.dumps({"inputs": inputs}).encode()

    with socket.create_connection(("127.0.0.1", server.http_port)) as leaving:
        leaving.sendall(raw_request("POST", "/v2/models/plain/infer", body))
        eventually((server.scratch / "begun").exists, 60, "it is executed")

    eventually((server.scratch / "told").exists, 60, "the model is told")


def _ask_rows(server: Server, protocol: str, values: list[float]) -> str | list[float]:
    """The answer to one row of these values, said to be five; or the error."""
    data = np.array(values, np.float32).tobytes()
    if protocol == "grpc":
        tensor = grpc_client.InferInput("INPUT0", [1, 5], "FP32")
        tensor._raw_content = data  # set_data_from_numpy would see that it does not fit
        with grpc_client.InferenceServerClient(server.grpc_address) as client:
            try:
                result = client.infer("rows", [tensor]).as_numpy("OUTPUT0")
            except InferenceServerException as error:
                return str(error.message())
        return [float(value) for value in result.ravel()]
    document: dict[str, Any] = {"name": "INPUT0", "shape": [1, 5], "datatype": "FP32"}
    document["parameters"] = {"binary_data_size": len(data)}
    text = json.dumps({"inputs": [document]}).encode()
    length = str(len(text))
    path = "/v2/models/rows/infer"
    _, body = _post(server, path, text + data, Inference_Header_Content_Length=length)
    answer = json.loads(body)
    return str(answer["error"]) if "error" in answer else list(answer["outputs"][0]["data"])


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("count", [3, 7])
@pytest.mark.row("C47")
def test_who_sends_too_little_or_too_much_never_shares_a_batch(
    server: Server, protocol: str, count: int
) -> None:
    stopping = threading.Event()
    wrong: list[Any] = []

    def ask_wrongly() -> None:
        while not stopping.is_set():
            wrong.append(_ask_rows(server, protocol, [7.0] * count))

    thread = threading.Thread(target=ask_wrongly)
    thread.start()
    try:
        eventually(lambda: wrong, 30, "it is refused")
        for start in range(10):
            values = [float(start * 100 + n) for n in range(5)]
            assert values == _ask_rows(server, protocol, values)
    finally:
        stopping.set()
        thread.join()

    assert wrong
    text = "input byte size mismatch for input 'INPUT0' for model 'rows'. Expected 20, got "
    assert {f"[request id: <id_unknown>] {text}{4 * count}"} == set(wrong)


def test_what_waited_for_a_process_that_died_is_never_executed(server: Server) -> None:
    before = cancelled_requests(server, "journal")
    with (
        concurrent.futures.ThreadPoolExecutor() as pool,
        grpc_client.InferenceServerClient(server.grpc_address) as client,
    ):
        client.async_infer("journal", _journal_inputs("other"), lambda result, error: None)
        eventually(lambda: "other" in executions(server.journal), 60, "another's is executed")
        lost = pool.submit(_post, server, "/v2/models/journal/infer", _journal("lost", 0))
        eventually(lambda: pending_requests(server, "journal") == 1, 60, "it waits")

        os.kill(frontend_death.http_worker_pid(server), signal.SIGKILL)
        with pytest.raises(OSError, match=r"closed|reset"):
            lost.result()
        eventually(
            lambda: cancelled_requests(server, "journal") == before + 1, 20, "nobody waits for it"
        )
        release_execution(server.journal, "other")

        eventually(server.is_ready, 30, "another process for HTTP")
        assert 200 == _post(server, "/v2/models/journal/infer", _journal("next", 0))[0]
    assert "lost" not in executions(server.journal)


def _journal_inputs(name: str) -> list[grpc_client.InferInput]:
    """Of an execution that is held."""
    identity, pause = (
        np.array([[name.encode()]], np.object_),
        np.array([[UNTIL_RELEASED]], np.int32),
    )
    return infer_inputs(grpc_client, ID=identity, MS=pause)


def test_a_client_that_closes_its_half_gets_its_inference_answered(server: Server) -> None:
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1], "data": [5]}
    body = json.dumps({"inputs": [tensor]}).encode()
    ask = raw_request("POST", "/v2/models/identity_fp32/infer", body)

    for _ in range(10):
        answer = send_raw(server.http_port, ask, is_half_closed=True)

        assert answer.is_closed
        assert 200 == answer.statuses[-1]
        assert b'"data":[5.0]' in answer.data
