"""Shared memory and contents of files over HTTP."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.frontends.http_api.fakes import Client, FakeGateway
from zmqtriton_floor.errors import InvalidArgument, NotFound
from zmqtriton_floor.wire import AddRegion
from zmqtriton_frontends.http_api import administration
from zmqtriton_frontends.http_api.administration import decode

# ----------------------------------------------------------------------- shared memory


SYSTEM = "/v2/systemsharedmemory"


def register(gateway: FakeGateway, body: Any) -> Any:
    data = json.dumps(body).encode()
    return Client(gateway).request("POST", f"{SYSTEM}/region/r/register", data)


@pytest.mark.slow
def test_a_region_is_registered_by_the_supervisor(gateway: FakeGateway) -> None:
    result = register(gateway, {"key": "/k", "byte_size": 64})

    assert (200, b"") == (result.status_code, result.content)
    # nobody knows the user, for there is no connection
    named = {"kind": "system", "name": "r", "key": "/k", "offset": 0, "byte_size": 64, "user": -1}
    assert [("regions.register", named)] == gateway.calls


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({}, "Shared memory register request has no 'key' field"),
        ([], "Shared memory register request has no 'key' field"),
        ({"key": "k"}, "Shared memory register request has no 'byte_size' field"),
        ({"key": 1, "byte_size": 1}, "attempt to access JSON non-string as string"),
        *(
            (body, "attempt to access JSON non-unsigned-integer as unsigned-integer")
            for body in (
                {"key": "k", "byte_size": -1},
                {"key": "k", "byte_size": "12"},
                {"key": "k", "byte_size": 1.5},
                {"key": "k", "byte_size": 2**64},
                {"key": "k", "byte_size": 1, "offset": True},
            )
        ),
    ],
)
def test_what_is_missing_or_no_number_is_said(gateway: FakeGateway, body: Any, text: str) -> None:
    result = register(gateway, body)

    assert (400, text) == (result.status_code, result.json["error"])
    assert [] == gateway.calls


def test_regions_are_unregistered_one_by_one_or_all(gateway: FakeGateway) -> None:
    client = Client(gateway)

    client.request("POST", f"{SYSTEM}/region/r/unregister")
    client.request("POST", f"{SYSTEM}/unregister")

    assert [
        ("regions.unregister", {"kind": "system", "name": "r"}),
        ("regions.unregister", {"kind": "system", "name": ""}),
    ] == gateway.calls


def test_cuda_regions_are_the_supervisors_to_refuse(gateway: FakeGateway) -> None:
    gateway.control_result = NotFound("Unable to find cuda shared memory region: 'r'")

    result = Client(gateway).request("GET", "/v2/cudasharedmemory/region/r/status")

    assert (404, gateway.control_result.text) == (result.status_code, result.json["error"])
    assert [("regions.status", {"kind": "cuda", "name": "r"})] == gateway.calls


def test_a_handle_of_a_gpu_is_passed_on(gateway: FakeGateway) -> None:
    handle = base64.b64encode(bytes(64)).decode()
    document = {"raw_handle": {"b64": handle}, "device_id": 1, "byte_size": 8}
    path = "/v2/cudasharedmemory/region/r/register"

    assert 200 == Client(gateway).request("POST", path, json.dumps(document).encode()).status_code
    details = {"raw_handle": handle, "device_id": 1, "byte_size": 8}
    assert [("regions.register", {"kind": "cuda", "name": "r", **details})] == gateway.calls


@pytest.fixture
def memory(gateway: FakeGateway, client_memory: int) -> Iterator[int]:
    os.pwrite(client_memory, b"\0\0\x80\x3f\0\0\0\x40", 0)  # 1.0 and 2.0
    gateway.catalogue.regions.add(AddRegion(1, "r", 0, 16), os.dup(client_memory))
    yield client_memory
    gateway.catalogue.regions.close()


def infer(gateway: FakeGateway, parameters: Any, outputs: Any = None) -> Any:
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [2], "parameters": parameters}
    document = {"inputs": [tensor], **({} if outputs is None else {"outputs": outputs})}
    return Client(gateway).request(
        "POST", "/v2/models/identity/infer", json.dumps(document).encode()
    )


def test_tensors_travel_through_shared_memory(gateway: FakeGateway, memory: int) -> None:
    region = {"shared_memory_region": "r", "shared_memory_byte_size": 8}
    behind = {**region, "shared_memory_offset": 8}

    result = infer(gateway, region, [{"name": "OUTPUT0", "parameters": behind}])

    assert [{"name": "OUTPUT0", "datatype": "FP32", "shape": [2]}] == result.json["outputs"]
    assert os.pread(memory, 8, 0) == os.pread(memory, 8, 8)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"shared_memory_byte_size": 4}, "input byte size mismatch"),
        ({"shared_memory_byte_size": 17}, "Invalid offset + byte size"),
        ({"shared_memory_offset": 2**64 - 32}, "Invalid offset for shared memory region: 'r'"),
        ({"shared_memory_offset": -1}, "non-unsigned-integer"),
        ({"shared_memory_byte_size": "8"}, "non-unsigned-integer"),
        ({"binary_data_size": 8}, "But set 'binary_data_size' 'shared_memory_region'"),
    ],
)
def test_what_does_not_lie_in_the_region_is_refused(
    gateway: FakeGateway, memory: int, changes: Any, text: str
) -> None:
    result = infer(gateway, {"shared_memory_region": "r", "shared_memory_byte_size": 8, **changes})

    assert result.status_code == 400
    assert text in result.json["error"]


@pytest.mark.parametrize(
    ("changes", "status", "text"),
    [
        (
            {"shared_memory_byte_size": 4},
            500,
            "(4 bytes) should be at least 8 bytes to hold the results",
        ),
        (
            {"classification": 2},
            400,
            "Output can't set both 'shared_memory_region' and 'classification'",
        ),
    ],
)
def test_an_output_fits_into_its_region_and_has_one_form(
    *, gateway: FakeGateway, memory: int, changes: dict[str, int], status: int, text: str
) -> None:
    region = {"shared_memory_region": "r", "shared_memory_byte_size": 8}

    result = infer(gateway, region, [{"name": "OUTPUT0", "parameters": {**region, **changes}}])

    assert result.status_code == status
    assert text in result.json["error"]


# ----------------------------------------------------------------------- file contents
# The files of a load in JSON: base64, decoded a part at a time.


@pytest.fixture(autouse=True)
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(administration, "_STEP", 10)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 14, 15, 16, 100, 1001])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.encodebytes])
def test_content_is_decoded_whatever_its_size_and_lines(size: int, encode: object) -> None:
    content = os.urandom(size)
    assert callable(encode)

    assert {"file:a": content} == decode({"file:a": encode(content).decode()})


@pytest.mark.parametrize(
    "text", ["A", "AAAAAAAAAAA", "QQ==QQ==", "QQ==" + "\n" * 10 + "QQ==", "AAAAAAAAAAA!", "é" * 12]
)
def test_what_is_not_base64_is_refused_wherever_it_stands(text: str) -> None:
    with pytest.raises(InvalidArgument, match="'file:a' is not base64"):
        decode({"file:a": text})
