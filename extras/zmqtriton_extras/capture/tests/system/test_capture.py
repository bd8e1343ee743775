"""A real server's requests, captured over all protocols, shown, and sent again."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton

from tests.support.needs import find_tool
from tests.support.server import Server, status_of
from tests.support.waiting import eventually
from zmqtriton_extras.capture.records import Record, read
from zmqtriton_floor import token_file
from zmqtriton_floor.token_file import ALL_MODELS, Grant

pytestmark = pytest.mark.system

MODELS = ["add_sub", "identity_fp32", "sequences", "tokens"]
X = list(range(16))
ROWS = [
    {"name": name, "shape": [1, 16], "datatype": "FP32", "data": X} for name in ("INPUT0", "INPUT1")
]


class CapturingServer(Server):
    def __init__(self, directory: Path, *options: str, **more: Any) -> None:
        self.captures = directory / "captures"
        capture = f"--capture-to={self.captures}"
        options = ("--capture=*", capture, f"--runtime-directory={directory}/run", *options)
        super().__init__(directory, options=options, **more)

    def __enter__(self) -> CapturingServer:
        super().__enter__()
        return self

    def records(self, model: str = "") -> list[Record]:
        return [r for r in read(self.captures) if model in ("", r.model)]

    def await_record(self, **fields: Any) -> Record:
        """Return the record of this request, when it is there; others are replayed meanwhile."""

        def matching() -> list[Record]:
            return [r for r in self.records() if fields.items() <= r.document["request"].items()]

        return eventually(matching, 60)[0]

    def await_records(self, count: int, model: str = "") -> list[Record]:
        """Wait until this many are written; return the newest."""
        eventually(lambda: len(self.records(model)) >= count, 60)
        return self.records(model)[-count:]

    def add(self, **more: Any) -> None:
        assert self.post("add_sub", json.dumps({"inputs": ROWS, **more}).encode()) == 200

    def post(self, model: str, body: bytes, **headers: str) -> int:
        url = f"{self.url}/v2/models/{model}/infer"
        return status_of(urllib.request.Request(url, body, headers), 60)

    def ctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "zmqtriton.ctl.main", *words]
        environment = {**os.environ, "RUNTIME_DIRECTORY": f"{self.directory}/run"}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CapturingServer]:
    directory = tmp_path_factory.mktemp("capture")
    server = CapturingServer(directory, models=MODELS, frontends=("grpc",))
    secret = server.add_model("identity_fp32", "secret")
    with open(secret / "config.pbtxt", "a") as file:
        file.write('parameters { key: "CAPTURE_HASH" value { string_value: "INPUT0" } }\n')
        file.write('parameters { key: "CAPTURE_OMIT" value { string_value: "OUTPUT0" } }\n')
    with server:
        yield server


def test_an_inference_over_http_is_recorded_with_its_answer(server: CapturingServer) -> None:
    server.add(id="mine", outputs=[{"name": "OUTPUT0"}], parameters={"note": "n"})

    record = server.await_record(id="mine")

    assert record.document["request"]["parameters"] == {"note": "n"}
    [answer] = record.document["responses"]
    assert [2.0 * x for x in X] == answer["outputs"][0]["data"]
    assert record.document["stages_ms"]["compute"] >= 0
    assert record.document["duration_ms"] > 0


def test_an_error_is_recorded_with_its_code(server: CapturingServer) -> None:
    row = {"name": "VALUE", "shape": [1, 1], "datatype": "INT32", "data": [1]}
    form = {"id": "fails", "inputs": [row], "parameters": {"sequence_id": 77}}
    status, answer = server.request_json("/v2/models/sequences/infer", form)

    record = server.await_record(id="fails")

    assert status == 400
    assert record.document["error"]["code"] == "INVALID_ARG"
    assert record.document["error"]["text"] in answer["error"]
    failed = json.loads(
        server.ctl("capture", "show", str(server.captures), "--failed", "--json").stdout
    )
    assert record.id in [row["id"] for row in failed]


def test_a_stream_over_grpc_has_each_of_its_responses(server: CapturingServer) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    count = triton.InferInput("COUNT", [1], "INT32")
    count.set_data_from_numpy(np.array([3], np.int32))
    with triton.InferenceServerClient(server.grpc_address) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        client.async_stream_infer("tokens", [count])
        assert [answers.get(timeout=60)[1] for _ in range(3)] == [None] * 3
        client.stop_stream()

    [record] = server.await_records(1, "tokens")

    assert [response["outputs"][0]["data"] for response in record.document["responses"]] == [
        ["token0"],
        ["token1"],
        ["token2"],
    ]


def test_inputs_in_shared_memory_are_recorded(server: CapturingServer) -> None:
    array = np.arange(20_000, dtype=np.float32)
    memory = Path(f"/dev/shm/zt-capture-{os.getpid()}")
    memory.write_bytes(array.tobytes())
    try:
        with triton.InferenceServerClient(server.grpc_address) as client:
            client.register_system_shared_memory("r", f"/{memory.name}", array.nbytes)
            tensor = triton.InferInput("INPUT0", list(array.shape), "FP32")
            tensor.set_shared_memory("r", array.nbytes)
            client.infer("identity_fp32", [tensor], request_id="in memory")
            client.unregister_system_shared_memory("r")
    finally:
        memory.unlink()

    document = server.await_record(id="in memory").document
    for entry in (document["request"]["inputs"][0], document["responses"][0]["outputs"][0]):
        assert entry["file"].endswith(".npy")
        assert np.array_equal(array, server.await_record(id="in memory").array(entry))


def test_what_a_model_keeps_secret_is_in_no_file(server: CapturingServer) -> None:
    row = {"name": "INPUT0", "shape": [1], "datatype": "FP32", "data": [123456.5]}
    server.request_json("/v2/models/secret/infer", {"inputs": [row]})

    [record] = server.await_records(1, "secret")

    assert "123456.5" not in json.dumps(record.document)
    assert "hash" in record.document["request"]["inputs"][0]
    assert record.document["responses"][0]["outputs"][0] == {"name": "OUTPUT0", "omitted": True}
    refused = server.ctl("capture", "show", str(server.captures), record.id)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "'INPUT0' was not captured" in refused.stderr


def test_captures_are_sent_again_with_equal_answers_sequences_in_order(
    server: CapturingServer, tmp_path: Path
) -> None:
    before = len(server.records("sequences"))
    for value in range(1, 6):
        for sequence in (5, 6):
            row = {"name": "VALUE", "shape": [1, 1], "datatype": "INT32", "data": [value]}
            place = {"sequence_start": value == 1, "sequence_end": value == 5}
            parameters = {"sequence_id": sequence, **place}
            path = "/v2/models/sequences/infer"
            status, _ = server.request_json(path, {"inputs": [row], "parameters": parameters})
            assert status == 200
    server.await_records(before + 10, "sequences")
    # what is replayed is captured, too, and so is the last of other tests meanwhile
    shutil.copytree(server.captures, tmp_path / "captures")
    records = [record.model for record in read(tmp_path / "captures")]

    words = ["replay", str(tmp_path / "captures"), "--clients=8", "--json"]
    replayed = server.ctl(*words)
    fast = server.ctl(*words, "--model=sequences:1", "--speed=100x")

    report = json.loads(replayed.stdout)
    # the report of an instance has its process and times, so it differs
    assert {"REPORT"} >= {row["tensor"] for row in report["tensors"]}
    assert len(records) == sum(report["results"].values())
    assert records.count("secret") == report["results"].get("left out", 0)
    assert "failed" not in report["results"]
    assert not {"OUTPUT0", "SUM", "TOKEN"} & {row["tensor"] for row in report["tensors"]}
    assert "failed" not in json.loads(fast.stdout)["results"]


def test_a_canary_gets_captured_requests_before_any_of_clients(tmp_path: Path) -> None:
    options = ("--model-control-mode=explicit", "--load-model=*")
    with CapturingServer(tmp_path, *options, models=["add_sub"], frontends=()) as server:
        server.add()
        server.await_records(1)
        model = server.repository / "add_sub"
        for version in ("2", "3"):
            shutil.copytree(model / "1", model / version)
        code = model / "2" / "model.py"
        code.write_text(code.read_text().replace("left - right", "left - right + 1"))
        words = ["--from-capture", str(server.captures), "--weight=50", "--json"]

        worse = server.ctl("canary", "start", "add_sub", "2", *words)
        better = server.ctl("canary", "start", "add_sub", "3", *words, "--min-requests=7")

        assert (worse.returncode, better.returncode) == (1, 0), worse.stderr + better.stderr
        first, second = (json.loads(each.stdout) for each in (worse, better))
        assert [row["tensor"] for row in first["replay"]["tensors"]] == ["OUTPUT1"]
        assert first["canary"]["phase"] in ("ABORTING", "ABORTED")
        assert {"equal"} == second["replay"]["results"].keys()
        canary = second["canary"]
        assert tuple(canary[key] for key in ("phase", "weight", "header", "min_requests")) == (
            "RUNNING",
            50,
            "",
            7,
        )


def test_a_request_is_printed_as_curl(server: CapturingServer) -> None:
    server.add(id="as curl")
    [record] = server.await_records(1, "add_sub")

    command = server.ctl("capture", "show", str(server.captures), record.id).stdout

    assert command.startswith("curl -s localhost:8000/v2/models/add_sub/versions/1/infer -d '{")
    answer = run_as_shown(server, command)
    assert [2.0 * x for x in X] == json.loads(answer)["outputs"][0]["data"]
    assert server.ctl("capture", "show", str(server.directory / "none")).returncode == 2
    unknown = server.ctl("capture", "show", str(server.captures), "none")
    assert "has no request 'none'" in unknown.stderr


def test_a_request_with_files_is_printed_as_curl_too(server: CapturingServer) -> None:
    array = np.arange(5000, dtype=np.float32)
    row = {"name": "INPUT0", "shape": [5000], "datatype": "FP32", "data": array.tolist()}
    form = {"id": "with files", "inputs": [row]}
    assert server.post("identity_fp32", json.dumps(form).encode()) == 200
    record = server.await_record(id="with files")

    command = server.ctl("capture", "show", str(server.captures), record.id).stdout

    answer = json.loads(run_as_shown(server, command))
    assert array.tolist() == answer["outputs"][0]["data"]


def run_as_shown(server: CapturingServer, command: str) -> bytes:
    """Run a command of a user's shell, against this server."""
    find_tool("curl")
    command = command.replace("localhost:8000", f"127.0.0.1:{server.http_port}")
    done = subprocess.run(["sh", "-c", command], capture_output=True, timeout=60, check=True)
    return done.stdout


@pytest.mark.long(
    "extras/capture/test_assembly.py::test_what_is_beyond_the_budget_is_dropped_whole_and_counted",
    "standard/access_log/system/test_access_log.py::test_no_request_waits_for_a_process_that_is_stopped_or_dead",
)
def test_a_process_that_is_stopped_or_killed_costs_captures_and_no_request(
    tmp_path: Path,
) -> None:
    with CapturingServer(tmp_path, models=["add_sub", "identity_fp32"], frontends=()) as server:
        server.add()
        server.await_records(1)
        [pid] = server.pids()["capture"]
        os.kill(pid, signal.SIGSTOP)
        large = bytes(4 << 20)
        # a raw body, which is the one input
        raw = {"Inference-Header-Content-Length": "0"}
        for _ in range(20):  # 80 MB: more than is kept for it
            assert server.post("identity_fp32", large, **raw) == 200
        with suppress(ProcessLookupError):  # its supervisor may have seen that it hangs
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: server.pids().get("capture", [pid]) != [pid], 60)

        def is_captured_again() -> bool:
            server.add(id="again")
            return any(r.document["request"].get("id") == "again" for r in server.records())

        eventually(is_captured_again, 60)
        server.add(id="last")
    # what was answered before the end is written before it
    assert "last" in [record.document["request"].get("id") for record in server.records()]


def test_a_record_names_the_token_and_has_no_header(tmp_path: Path) -> None:
    secret = "zmqt_a-secret-of-ann-0123456789"
    scopes = token_file.parse_scopes("infer")
    tokens = tmp_path / "tokens"
    tokens.write_text(
        Grant("ann", token_file.Grant.digest_of(secret), scopes, ALL_MODELS).line() + "\n"
    )
    tokens.chmod(0o600)
    pattern = "header-forward-pattern=x-.*"
    options = (f"--tokens={tokens}", f"--http-{pattern}", f"--grpc-{pattern}")
    with CapturingServer(tmp_path, *options, models=["add_sub"], frontends=("grpc",)) as server:
        body = json.dumps({"inputs": ROWS}).encode()
        headers = {"Authorization": f"Bearer {secret}", "X-Session": "of-this-client"}
        assert server.post("add_sub", body, **headers) == 200
        inputs = [triton.InferInput(name, [1, 16], "FP32") for name in ("INPUT0", "INPUT1")]
        for tensor in inputs:
            tensor.set_data_from_numpy(np.array([X], np.float32))
        metadata = {name.lower(): value for name, value in headers.items()}
        answers: queue.Queue[Any] = queue.Queue()
        with triton.InferenceServerClient(server.grpc_address) as client:
            client.infer("add_sub", inputs, headers=metadata, parameters={"note": "kept"})
            client.start_stream(lambda result, error: answers.put(error), headers=metadata)
            client.async_stream_infer("add_sub", inputs)
            assert answers.get(timeout=60) is None
            client.stop_stream()
        records = server.await_records(3)

    assert [record.document["token"] for record in records] == ["ann"] * 3
    text = "".join(p.read_text() for p in server.captures.rglob("*.jsonl"))
    assert "kept" in text
    assert secret not in text
    assert "of-this-client" not in text
