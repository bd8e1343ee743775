"""Questions of Triton's clients besides inference, to one real server as raw HTTP and gRPC."""

from __future__ import annotations

import base64
import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.http as http_client
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests.support.server import Server
from tests.support.waiting import eventually
from zmqtriton.commit import full_version
from zmqtriton_floor import TRITON_VERSION

pytestmark = pytest.mark.system

_LOAD = "/v2/repository/models/{}/load"
_UNLOAD = "/v2/repository/models/{}/unload"


MODELS = ("add_sub", "string_upper", "fails_late", "coded")
OPTIONS = (
    "--model-control-mode=explicit",
    "--load-model=add_sub",
    "--load-model=coded",
    "--id=here",
)


def prepare(server: Server) -> None:
    (server.repository / "empty").mkdir()


@pytest.fixture
def rpc(server: Server) -> Iterator[Any]:
    with grpc.insecure_channel(server.grpc_address) as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


def ask(server: Server, method: str, path: str, document: Any = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
    try:
        body = None if document is None else json.dumps(document).encode()
        connection.request(method, path, body)
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else None
    finally:
        connection.close()


def raw(server: Server, path: str, document: Any) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
    try:
        connection.request("POST", path, json.dumps(document).encode())
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def error(status: int, text: str) -> tuple[int, dict[str, str]]:
    return status, {"error": text}


def refusal(call: Any, request: Any) -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as raised:
        call(request, timeout=30)
    return raised.value.code().name, raised.value.details()


@pytest.mark.row("C01", "C04")
def test_the_server_is_alive_and_says_what_it_is(server: Server) -> None:
    assert (200, None) == ask(server, "GET", "/v2/health/live")
    assert (200, None) == ask(server, "GET", "/v2/health/live?x=1")
    assert error(405, "Method Not Allowed") == ask(server, "POST", "/v2/health/live")

    status, document = ask(server, "GET", "/v2")
    assert (200, "here", ["name", "version", "extensions"]) == (
        status,
        document["name"],
        [*document],
    )
    extensions = [
        *("classification", "sequence", "model_repository", "model_repository(unload_dependents)"),
        *("schedule_policy", "model_configuration", "system_shared_memory", "cuda_shared_memory"),
        *("binary_tensor_data", "parameters", "statistics", "trace", "logging"),
        f"zmqtriton({full_version()})",
    ]
    assert extensions == document["extensions"]
    # clients compare it with Triton's releases
    assert document["version"] == TRITON_VERSION


@pytest.mark.row("C16")
def test_metrics_have_a_port_of_their_own(server: Server) -> None:
    with urllib.request.urlopen(server.metrics_url, timeout=30) as answer:
        assert "text/plain; charset=utf-8" == answer.headers["Content-Type"]
        assert b'nv_inference_count{model="add_sub",version="1"}' in answer.read()

    for method, url, status in (
        ("POST", server.metrics_url, 405),
        ("GET", server.metrics_url + "/x", 404),
        ("GET", f"{server.url}/metrics", 404),
    ):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=30)
        with refused.value as answer:
            text = http.client.responses[status]
            assert (status, {"error": text}) == (answer.code, json.load(answer))


@pytest.mark.parametrize(
    ("code", "status"),
    [
        *(("INTERNAL", 500), ("NOT_FOUND", 404), ("UNAVAILABLE", 503), ("UNSUPPORTED", 501)),
        *(("UNKNOWN", 400), ("INVALID_ARG", 400), ("ALREADY_EXISTS", 400), ("CANCELLED", 400)),
    ],
)
@pytest.mark.row("C98")
def test_the_code_of_a_models_error_decides_the_status(
    server: Server, code: str, status: int
) -> None:
    made = f"pb_utils.TritonError('no', pb_utils.TritonError.{code})"
    lines = f"return [pb_utils.InferenceResponse(error={made})]"
    tensor = {"name": "CODE", "shape": [1], "datatype": "BYTES", "data": [lines]}

    for path, document in (
        ("infer", {"inputs": [tensor]}),
        ("generate", {"CODE": lines}),
        ("generate_stream", {"CODE": lines}),
    ):
        answered, answer = raw(server, f"/v2/models/coded/{path}", document)
        # an event of a stream may say when to ask again
        data = answer.removeprefix(b"data: ").splitlines()[0]
        assert (status, {"error": "no"}) == (answered, json.loads(data))


@pytest.mark.row("C05", "D03")
def test_a_model_says_what_it_takes(server: Server, rpc: Any) -> None:
    tensor = {"datatype": "FP32", "shape": [-1, 16]}
    tensors = [{"name": name, **tensor} for name in ("INPUT0", "INPUT1")]
    outputs = [{"name": name, **tensor} for name in ("OUTPUT0", "OUTPUT1")]
    said = {
        "name": "add_sub",
        "versions": ["1"],
        "platform": "python",
        "inputs": tensors,
        "outputs": outputs,
    }

    for path in ("/v2/models/add_sub", "/v2/models/add_sub/versions/1"):
        assert (200, said) == ask(server, "GET", path)
    unknown = "Request for unknown model: 'nope' is not found"
    assert error(400, unknown) == ask(server, "GET", "/v2/models/nope")
    assert error(404, "Request for unknown model: 'add_sub' version 9 is not found") == ask(
        server, "GET", "/v2/models/add_sub/versions/9"
    )

    metadata = rpc.ModelMetadata(service_pb2.ModelMetadataRequest(name="add_sub"), timeout=30)
    assert ("add_sub", ["1"], "python") == (metadata.name, [*metadata.versions], metadata.platform)
    assert [[-1, 16], [-1, 16]] == [[*tensor.shape] for tensor in metadata.inputs]
    assert "here" == rpc.ServerMetadata(service_pb2.ServerMetadataRequest(), timeout=30).name


@pytest.mark.row("C06", "D06")
def test_a_configuration_has_all_its_fields(server: Server, rpc: Any) -> None:
    status, config = ask(server, "GET", "/v2/models/add_sub/config")

    assert (200, "add_sub", "python") == (status, config["name"], config["backend"])
    assert {"max_batch_size", "version_policy", "instance_group", "optimization"} <= set(config)
    assert [16] == config["input"][0]["dims"]
    over_grpc = rpc.ModelConfig(service_pb2.ModelConfigRequest(name="add_sub"), timeout=30).config
    assert (config["max_batch_size"], [16]) == (
        over_grpc.max_batch_size,
        [*over_grpc.input[0].dims],
    )


@pytest.mark.row("C07", "C80", "D07")
def test_statistics_of_all_one_and_none(server: Server, rpc: Any) -> None:
    duration = {"count", "ns"}
    status, statistics = ask(server, "GET", "/v2/models/add_sub/versions/1/stats")

    assert (200, ["add_sub"]) == (status, [entry["name"] for entry in statistics["model_stats"]])
    (entry,) = statistics["model_stats"]
    assert [
        *("name", "version", "last_inference", "inference_count", "execution_count"),
        *("inference_stats", "response_stats", "batch_stats", "memory_usage"),
    ] == [*entry]
    names = ["success", "fail", "queue", "compute_input", "compute_infer", "compute_output"]
    assert [*names, "cache_hit", "cache_miss"] == [*entry["inference_stats"]]
    assert all(set(value) == duration for value in entry["inference_stats"].values())
    assert 200 == ask(server, "GET", "/v2/models/stats")[0]

    unknown = "requested model 'nope' is not available"
    version = "requested model version is not available for model 'add_sub'"
    assert error(400, unknown) == ask(server, "GET", "/v2/models/nope/stats")
    assert error(400, version) == ask(server, "GET", "/v2/models/add_sub/versions/9/stats")
    request = service_pb2.ModelStatisticsRequest
    assert ("INVALID_ARGUMENT", unknown) == refusal(rpc.ModelStatistics, request(name="nope"))
    assert ("INVALID_ARGUMENT", version) == refusal(
        rpc.ModelStatistics, request(name="add_sub", version="9")
    )


def _infer(server: Server, batch: int, count: int) -> None:
    with http_client.InferenceServerClient(server.url.removeprefix("http://")) as client:
        tensors = []
        for name in ("INPUT0", "INPUT1"):
            tensor = http_client.InferInput(name, [batch, 16], "FP32")
            tensor.set_data_from_numpy(np.ones((batch, 16), np.float32))
            tensors.append(tensor)
        for _ in range(count):
            client.infer("add_sub", tensors)


@pytest.mark.row("C81", "C83")
def test_statistics_count_elements_executions_and_requests_apart(server: Server) -> None:
    def entry() -> Any:
        return ask(server, "GET", "/v2/models/add_sub/stats")[1]["model_stats"][0]

    before = entry()
    _infer(server, batch=3, count=4)
    after = entry()

    for key, more in (("inference_count", 12), ("execution_count", 4)):
        assert more == after[key] - before[key]
    for key in ("success", "queue", "compute_input", "compute_infer", "compute_output"):
        old, new = before["inference_stats"][key], after["inference_stats"][key]
        assert 4 == new["count"] - old["count"], key
        # Nobody was before these in the queue.
        assert key == "queue" or new["ns"] > old["ns"], key
    (of_three,) = [b for b in after["batch_stats"] if b["batch_size"] == 3]
    assert 4 <= of_three["compute_infer"]["count"]


@pytest.mark.row("C10", "C70", "D08")
def test_the_index_lists_every_directory(server: Server, rpc: Any) -> None:
    ready = [{"name": name, "version": "1", "state": "READY"} for name in ("add_sub", "coded")]
    names = ["add_sub", "coded", "empty", "fails_late", "string_upper"]

    for path in ("/v2/repository/index", "/v2/repository/any/index"):
        status, index = ask(server, "POST", path)
        assert (200, names) == (status, sorted({entry["name"] for entry in index}))
        assert ready == [entry for entry in index if entry.get("state") == "READY"]
        assert {"name": "empty"} in index
    assert (200, ready) == ask(server, "POST", "/v2/repository/index", {"ready": True})
    request = service_pb2.RepositoryIndexRequest
    assert [("add_sub", "1", "READY"), ("coded", "1", "READY")] == [
        (m.name, m.version, m.state) for m in rpc.RepositoryIndex(request(ready=True)).models
    ]
    named = "'repository_name' specification is not supported"
    assert ("UNIMPLEMENTED", named) == refusal(
        rpc.RepositoryIndex, request(repository_name="other")
    )
    for path in ("load", "unload"):
        assert error(501, named) == ask(server, "POST", f"/v2/repository/x/models/add_sub/{path}")


@pytest.mark.row("C11", "C75")
def test_a_model_is_loaded_and_unloaded(server: Server) -> None:
    assert (200, None) == ask(server, "POST", _LOAD.format("string_upper"))
    assert (200, None) == ask(server, "GET", "/v2/models/string_upper/ready")

    dependents = {"parameters": {"unload_dependents": True}}
    assert (200, None) == ask(server, "POST", _UNLOAD.format("string_upper"), dependents)

    assert 200 != ask(server, "GET", "/v2/models/string_upper/ready")[0]
    unloaded = {"name": "string_upper", "version": "1", "state": "UNAVAILABLE"}
    unloaded["reason"] = "unloaded"
    eventually(lambda: unloaded in ask(server, "POST", "/v2/repository/index")[1], 60)
    assert (200, None) == ask(server, "POST", _UNLOAD.format("nope"))
    status, answer = ask(
        server, "POST", _UNLOAD.format("nope"), {"parameters": {"unload_dependents": 1}}
    )
    assert 400 == status
    assert answer["error"].startswith("Unable to parse 'unload_dependents': ")


@pytest.mark.row("C74")
def test_a_load_that_fails_says_why(server: Server) -> None:
    missing = "failed to load 'nope', failed to poll from model repository"
    missing += ". No model repository has a directory of this name"
    assert error(500, missing) == ask(server, "POST", _LOAD.format("nope"))
    status, answer = ask(server, "POST", _LOAD.format("fails_late"))
    assert 400 == status or 500 == status
    text = "load failed for model 'fails_late': ensemble 'fails_late' depends on "
    assert text == answer["error"][: len(text)]
    for name in ("..", "%2e%2e"):
        assert error(
            400, "invalid model name '..', model name must not contain path traversal characters"
        ) == ask(server, "POST", _LOAD.format(name))


@pytest.mark.row("C72")
def test_a_configuration_given_with_a_load_holds_for_that_load(server: Server) -> None:
    path = Path(server.repository / "string_upper" / "config.pbtxt")
    before = path.read_bytes()
    tensor = {"name": "INPUT0", "dataType": "TYPE_STRING", "dims": ["-1"]}
    config = {
        "backend": "python",
        "maxBatchSize": 3,
        "input": [tensor],
        "output": [{**tensor, "name": "OUTPUT0"}],
    }

    def batch_size() -> int:
        return int(ask(server, "GET", "/v2/models/string_upper/config")[1]["max_batch_size"])

    load = _LOAD.format("string_upper")
    assert (200, None) == ask(server, "POST", load, {"parameters": {"config": json.dumps(config)}})
    assert 3 == batch_size()
    assert (200, None) == ask(server, "POST", load)
    assert (8, before) == (batch_size(), path.read_bytes())
    status, answer = ask(server, "POST", load, {"parameters": {"config": "{"}})
    assert 500 == status
    assert "Invalid config override: " in answer["error"]
    assert error(500, "unexpected error on creating Triton parameter") == ask(
        server, "POST", load, {"parameters": {"other": "x"}}
    )
    assert (200, None) == ask(server, "POST", _UNLOAD.format("string_upper"))


@pytest.mark.row("C13", "C94")
def test_cuda_regions_are_refused_where_there_is_no_gpu(server: Server) -> None:
    path = "/v2/cudasharedmemory"
    handle = {"b64": base64.b64encode(bytes(64)).decode()}
    good = {"raw_handle": handle, "device_id": 0, "byte_size": 8}

    assert (200, []) == ask(server, "GET", f"{path}/status")
    assert error(404, "Unable to find cuda shared memory region: 'r'") == ask(
        server, "GET", f"{path}/region/r/status"
    )
    text = "failed to register CUDA shared memory region: 'r', GPUs not supported"
    assert error(400, text) == ask(server, "POST", f"{path}/region/r/register", good)
    for wrong in ("", "###", "AAAA", base64.b64encode(bytes(65)).decode(), 5):
        answer = ask(
            server, "POST", f"{path}/region/r/register", {**good, "raw_handle": {"b64": wrong}}
        )
        text = "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t"
        assert error(400, text) == answer
    for wrong_device in (-1, 2**70, "0", 1.5):
        answer = ask(
            server, "POST", f"{path}/region/r/register", {**good, "device_id": wrong_device}
        )
        assert 400 == answer[0]
    text = "Shared memory register request has no 'raw_handle' field"
    assert error(400, text) == ask(server, "POST", f"{path}/region/r/register", {})
    for kind, prefix in (("cuda", path), ("system", "/v2/systemsharedmemory")):
        text = f"'region name' is necessary to register {kind} shared memory region"
        assert error(400, text) == ask(server, "POST", f"{prefix}/register", {})
        assert (200, None) == ask(server, "POST", f"{prefix}/unregister")


@pytest.mark.row("D10")
def test_cuda_regions_are_refused_over_grpc_too(rpc: Any) -> None:
    request = service_pb2.CudaSharedMemoryRegisterRequest(
        name="r", raw_handle=bytes(64), device_id=0, byte_size=8
    )

    text = "failed to register CUDA shared memory region: 'r', GPUs not supported"
    assert ("INVALID_ARGUMENT", text) == refusal(rpc.CudaSharedMemoryRegister, request)
    assert {} == dict(
        rpc.CudaSharedMemoryStatus(service_pb2.CudaSharedMemoryStatusRequest()).regions
    )


@pytest.mark.row("C90")
@pytest.mark.parametrize(
    ("document", "status", "text"),
    [
        ({"byte_size": 4}, 400, "Shared memory register request has no 'key' field"),
        ({"key": "/x"}, 400, "Shared memory register request has no 'byte_size' field"),
        (
            {"key": "/zmqtriton_none", "byte_size": 4},
            500,
            "Unable to open shared memory region: '/zmqtriton_none'",
        ),
    ],
)
def test_a_registration_that_lacks_something_says_what(
    server: Server, document: Any, status: int, text: str
) -> None:
    path = "/v2/systemsharedmemory/region/r/register"

    assert error(status, text) == ask(server, "POST", path, document)
    assert error(404, "Unable to find system shared memory region: 'r'") == ask(
        server, "GET", "/v2/systemsharedmemory/region/r/status"
    )
