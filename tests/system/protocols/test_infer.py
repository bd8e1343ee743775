"""A request from a real client through frontend, broker and stub, and back."""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.grpc.aio as grpc_aio
import tritonclient.http as http_client
import tritonclient.http.aio as http_aio

from tests.support.clients import infer_inputs
from tests.support.server import Server

pytestmark = pytest.mark.system

SHARED = True

A = np.arange(16, dtype=np.float32).reshape(1, 16)
B = np.full((1, 16), 2, dtype=np.float32)


MODELS = ["add_sub", "string_upper", "identity_fp32"]


def _add_sub(client: Any) -> list[Any]:
    return infer_inputs(client, INPUT0=A, INPUT1=B)


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


@pytest.mark.parametrize("elements", [0, 1, 1000, 150_000, 4_000_000])
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_tensors_of_any_size_come_back_the_same(
    server: Server, protocol: str, elements: int
) -> None:
    array = np.random.default_rng(elements).random(elements, dtype=np.float32)
    module: Any = http_client if protocol == "http" else grpc_client
    url = server.url.removeprefix("http://") if protocol == "http" else server.grpc_address

    with module.InferenceServerClient(url) as client:
        result = client.infer("identity_fp32", infer_inputs(module, INPUT0=array))

    assert np.array_equal(array, result.as_numpy("OUTPUT0"))


def test_many_clients_at_once_each_get_their_own_answer(server: Server) -> None:
    def ask(number: int) -> bool:
        data = [float(number)] * (number % 50 + 1)
        tensor = {"name": "INPUT0", "shape": [len(data)], "datatype": "FP32", "data": data}
        path = "/v2/models/identity_fp32/infer"
        got = [server.request_json(path, {"inputs": [tensor]})[1] for _ in range(20)]
        return all(data == answer["outputs"][0]["data"] for answer in got)

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(64)))


def test_processes_say_what_they_are(server: Server) -> None:
    pids = server.pids()

    assert {"supervisor", "fork-server", "broker", "http", "grpc", "metrics", "stub"} == set(pids)
    assert (1, 1) == (len(server.stub_pids("add_sub")), len(server.stub_pids("string_upper")))
