"""A request from a real client through frontend, broker and stub, and back."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import urllib.error
import urllib.request
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.grpc.aio as grpc_aio
import tritonclient.http as http_client
import tritonclient.http.aio as http_aio
from tritonclient.utils import InferenceServerException

from tests.support.server import Server
from tests.system.shared_server import SharedServer

pytestmark = pytest.mark.system

SHARED = True

A = np.arange(16, dtype=np.float32).reshape(1, 16)
B = np.full((1, 16), 2, dtype=np.float32)


MODELS = ["add_sub", "string_upper", "identity_fp32"]


def _inputs(client: Any, **tensors: tuple[np.ndarray, str]) -> list[Any]:
    inputs = []
    for name, (array, datatype) in tensors.items():
        entry = client.InferInput(name, list(array.shape), datatype)
        entry.set_data_from_numpy(array)
        inputs.append(entry)
    return inputs


def _add_sub(client: Any) -> list[Any]:
    return _inputs(client, INPUT0=(A, "FP32"), INPUT1=(B, "FP32"))


def _check(result: Any) -> None:
    assert np.array_equal(A + B, result.as_numpy("OUTPUT0"))
    assert np.array_equal(A - B, result.as_numpy("OUTPUT1"))


def test_tritonclient_over_http(server: Server) -> None:
    with http_client.InferenceServerClient(server.url.removeprefix("http://")) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("add_sub")
        _check(client.infer("add_sub", _add_sub(http_client), request_id="7"))


def test_tritonclient_over_http_with_asyncio(server: Server) -> None:
    async def ask() -> None:
        url = server.url.removeprefix("http://")
        async with http_aio.InferenceServerClient(url) as client:
            answers = [client.infer("add_sub", _add_sub(http_client)) for _ in range(20)]
            for result in await asyncio.gather(*answers):
                _check(result)

    asyncio.run(ask())


def test_tritonclient_over_grpc(server: Server) -> None:
    with grpc_client.InferenceServerClient(server.grpc_address) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("add_sub", "1")
        result = client.infer("add_sub", _add_sub(grpc_client), request_id="7")
        _check(result)
        response = result.get_response()
        assert ("7", "add_sub", "1") == (response.id, response.model_name, response.model_version)


def test_tritonclient_over_grpc_with_asyncio(server: Server) -> None:
    async def ask() -> None:
        async with grpc_aio.InferenceServerClient(server.grpc_address) as client:
            answers = [client.infer("add_sub", _add_sub(grpc_client)) for _ in range(20)]
            for result in await asyncio.gather(*answers):
                _check(result)

    asyncio.run(ask())


def test_plain_json_as_curl_sends_it(server: Server) -> None:
    body = {
        "id": "a",
        "inputs": [{"name": "TEXT", "shape": [1, 1], "datatype": "BYTES", "data": ["hé"]}],
    }
    body["inputs"][0]["name"] = _only_input(server, "string_upper")  # type: ignore[index]
    request = urllib.request.Request(
        f"{server.url}/v2/models/string_upper/infer",
        json.dumps(body).encode(),
        {"Content-Type": "application/x-www-form-urlencoded"},
    )

    with urllib.request.urlopen(request, timeout=30) as answer:
        result = json.load(answer)

    assert ("a", "string_upper", "1") == (
        result["id"],
        result["model_name"],
        result["model_version"],
    )
    assert ["HÉ"] == result["outputs"][0]["data"]


def _only_input(server: Server, model: str) -> str:
    with urllib.request.urlopen(f"{server.url}/v2/models/{model}", timeout=30) as answer:
        return str(json.load(answer)["inputs"][0]["name"])


@pytest.mark.parametrize("elements", [0, 1, 1000, 150_000, 4_000_000])
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_tensors_of_any_size_come_back_the_same(
    server: Server, protocol: str, elements: int
) -> None:
    array = np.random.default_rng(elements).random(elements, dtype=np.float32)
    module: Any = http_client if protocol == "http" else grpc_client
    url = server.url.removeprefix("http://") if protocol == "http" else server.grpc_address

    with module.InferenceServerClient(url) as client:
        result = client.infer("identity_fp32", _inputs(module, INPUT0=(array, "FP32")))

    assert np.array_equal(array, result.as_numpy("OUTPUT0"))


def test_many_clients_at_once_each_get_their_own_answer(server: Server) -> None:
    def ask(number: int) -> bool:
        data = [float(number)] * (number % 50 + 1)
        tensor = {"name": "INPUT0", "shape": [len(data)], "datatype": "FP32", "data": data}
        path = "/v2/models/identity_fp32/infer"
        got = [_post(server, path, {"inputs": [tensor]}) for _ in range(20)]
        return all(data == answer["outputs"][0]["data"] for answer in got)

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(64)))


@pytest.mark.parametrize(
    ("change", "status", "text"),
    [
        ({"inputs": []}, 400, "expected 2 inputs but got 0"),
        ({"model": "nobody"}, 400, "Request for unknown model: 'nobody' is not found"),
        ({"model": "add_sub/versions/9"}, 404, "version 9 is not found"),
    ],
)
def test_a_bad_request_is_refused_and_the_next_one_answered(
    server: Server, change: dict[str, Any], status: int, text: str
) -> None:
    data = {"shape": [1, 16], "datatype": "FP32", "data": [1.0] * 16}
    body = {"inputs": [{"name": "INPUT0", **data}, {"name": "INPUT1", **data}]}
    bad = {**body, **{k: v for k, v in change.items() if k != "model"}}

    model = change.get("model", "add_sub")
    with pytest.raises(urllib.error.HTTPError) as error:
        _post(server, f"/v2/models/{model}/infer", bad)
    with error.value:
        assert status == error.value.code
        assert text in json.load(error.value)["error"]
    assert "outputs" in _post(server, "/v2/models/add_sub/infer", body)


def _post(server: Server, path: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(f"{server.url}{path}", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def test_a_model_that_raises_answers_with_its_traceback_and_lives_on(
    shared: SharedServer,
) -> None:
    server = shared
    server.load("raising")
    pids = server.stub_pids("raising")
    with grpc_client.InferenceServerClient(server.grpc_address) as client:
        for _ in range(2):
            inputs = _inputs(grpc_client, INPUT0=(np.ones(1, np.float32), "FP32"))
            with pytest.raises(InferenceServerException) as error:
                client.infer("raising", inputs)
            message = str(error.value.message())
            assert "Failed to process the request(s) for model 'raising_0_0', message: " in message
            assert "ValueError: on purpose\n\nAt:\n" in message
            assert "model.py(" in message
            assert "StatusCode.INTERNAL" == error.value.status()
    assert pids == server.stub_pids("raising")


def test_processes_say_what_they_are(server: Server) -> None:
    pids = server.pids()

    assert {"supervisor", "fork-server", "broker", "http", "grpc", "metrics", "stub"} == set(pids)
    assert 1 == len(server.stub_pids("add_sub"))
    assert 1 == len(server.stub_pids("string_upper"))
