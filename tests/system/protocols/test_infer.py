"""A request from a real client through frontend, broker and stub, and back."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.grpc.aio as grpc_aio
import tritonclient.http as http_client
import tritonclient.http.aio as http_aio

from tests.support.clients import infer_inputs, module_of, open_client
from tests.support.scenarios import scenario
from tests.support.server import Server

A = np.arange(16, dtype=np.float32).reshape(1, 16)
B = np.full((1, 16), 2, dtype=np.float32)


pytestmark = [
    pytest.mark.system,
    pytest.mark.large_tensors,
    pytest.mark.server(models=["add_sub", "string_upper", "identity_fp32"]),
]


def _add_sub(client: Any) -> list[Any]:
    return infer_inputs(client, INPUT0=A, INPUT1=B)


def _check(result: Any) -> None:
    assert np.array_equal(A + B, result.as_numpy("OUTPUT0"))
    assert np.array_equal(A - B, result.as_numpy("OUTPUT1"))


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_tritonclient_gets_its_answer(server: Server, protocol: str) -> None:
    with open_client(server, protocol) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("add_sub", "1")
        result = client.infer("add_sub", _add_sub(module_of(client)), request_id="7")

    _check(result)
    response = result.get_response(**({"as_json": True} if protocol == "grpc" else {}))
    assert ("7", "add_sub", "1") == (
        response["id"],
        response["model_name"],
        response["model_version"],
    )


@pytest.mark.parametrize("module", [http_aio, grpc_aio])
@scenario(asyncio.run)
async def test_tritonclient_with_asyncio_gets_its_answers(server: Server, module: Any) -> None:
    sync = http_client if module is http_aio else grpc_client
    address = server.url.removeprefix("http://") if module is http_aio else server.grpc_address
    async with module.InferenceServerClient(address) as client:
        for result in await asyncio.gather(
            *(client.infer("add_sub", _add_sub(sync)) for _ in range(20))
        ):
            _check(result)


@pytest.mark.parametrize("elements", [0, 1, 1000, 150_000, 4_000_000])
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_tensors_of_any_size_come_back_the_same(
    server: Server, protocol: str, elements: int
) -> None:
    array = np.random.default_rng(elements).random(elements, dtype=np.float32)

    with open_client(server, protocol) as client:
        result = client.infer("identity_fp32", infer_inputs(module_of(client), INPUT0=array))

    assert np.array_equal(array, result.as_numpy("OUTPUT0"))
