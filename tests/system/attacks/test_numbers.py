"""Numbers that are no limits: each is refused where it would become one, on a real server."""

from __future__ import annotations

import json
from typing import Any

import grpc
import pytest

from tests.faults.requests import INFER, grpc_request, int32
from tests.support.server import Server, exchange, tensor

pytestmark = [pytest.mark.system, pytest.mark.server(models=["add_sub"])]

NEVER = ("NaN", "Infinity", "-Infinity", "1e400", "-1", str(-(2**63)), str(2**70))
LONG = "9" * 5000
INPUTS = [tensor(f"INPUT{n}", "INT32", list(range(16))) for n in range(2)]


def _post(server: Server, document: Any, value: str, **headers: str) -> int:
    text = json.dumps(document).replace('"@"', value).encode()
    return server.exchange("/v2/models/add_sub/infer", text, headers).status


@pytest.mark.parametrize("value", [*NEVER, LONG])
@pytest.mark.parametrize("name", ["timeout", "priority", "sequence_id"])
def test_no_parameter_of_a_request(server: Server, name: str, value: str) -> None:
    assert 400 == _post(server, {"inputs": INPUTS, "parameters": {name: "@"}}, value)


@pytest.mark.parametrize("value", [*NEVER, LONG])
@pytest.mark.parametrize(
    "parameters",
    [
        {"classification": "@"},
        {"shared_memory_region": "r", "shared_memory_byte_size": "@"},
        {
            "shared_memory_region": "r",
            "shared_memory_byte_size": 1,
            "shared_memory_offset": "@",
        },
    ],
)
def test_no_parameter_of_an_output(server: Server, parameters: dict[str, Any], value: str) -> None:
    output = {"name": "OUTPUT0", "parameters": parameters}

    assert 400 == _post(server, {"inputs": INPUTS, "outputs": [output]}, value)


@pytest.mark.parametrize("value", [*NEVER, LONG])
def test_no_header(server: Server, value: str) -> None:
    for name in ("X-Request-Timeout", "Inference-Header-Content-Length"):
        assert 400 == _post(server, {"inputs": INPUTS}, "", **{name: value})


@pytest.mark.parametrize("value", [*NEVER, LONG])
def test_no_version_and_no_part_of_a_history(server: Server, value: str) -> None:
    for path in (
        f"/v2/models/add_sub/versions/{value}",
        f"/v2/zmqtriton/history?seconds={value}",
        f"/v2/zmqtriton/logs?lines={value}",
    ):
        assert exchange(f"{server.url}{path}").status in (400, 404)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 1e300])
@pytest.mark.parametrize("name", ["timeout", "priority", "sequence_id"])
def test_no_parameter_of_grpc(server: Server, name: str, value: float) -> None:
    request = grpc_request("add_sub", INPUT0=int32(*range(16)), INPUT1=int32(*range(16)))
    request.parameters[name].double_param = value
    with grpc.insecure_channel(server.grpc_address) as channel:
        infer = channel.unary_unary(INFER, type(request).SerializeToString)
        with pytest.raises(grpc.RpcError) as caught:
            infer(request)

    assert grpc.StatusCode.INVALID_ARGUMENT is caught.value.code()
