from __future__ import annotations

import asyncio
import json
from typing import Any

import numpy as np
import pytest
from falcon.testing import Result

from tests.frontends.fake_gateway import failing
from tests.frontends.http_api.fakes import Client, FakeGateway
from tests.frontends.http_api.in_process_server import HttpHarness, run_scenario
from tests.support.quick import every
from tests.support.raw_http import connect_narrow, raw_request
from tests.support.scenarios import scenario
from tests.support.waiting import loop_turns
from zmqtriton_floor.datatypes import BY_NAME
from zmqtriton_floor.errors import Cancelled, InternalError, Unavailable, UnknownError
from zmqtriton_floor.wire import ANY_VERSION, RequestBody, ResponseBody, Tensor
from zmqtriton_frontends.inference.admission import SchedulingOptions

FP32 = BY_NAME["FP32"].number
TWO = np.array([1.5, 2.5], np.float32).tobytes()
LENGTH = "Inference-Header-Content-Length"


def described(**changes: Any) -> dict[str, Any]:
    entry = {"name": "INPUT0", "datatype": "FP32", "shape": [2], "data": [1.5, 2.5], **changes}
    return {key: value for key, value in entry.items() if value is not ...}


def document(*inputs: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"inputs": list(inputs or [described()]), **fields}


def infer(
    gateway: FakeGateway,
    body: Any,
    model: str = "identity",
    headers: dict[str, str] | None = None,
) -> Result:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Client(gateway).request("POST", f"/v2/models/{model}/infer", data, headers)


def infer_binary(
    gateway: FakeGateway, body: dict[str, Any], tail: bytes, model: str = "identity"
) -> Result:
    text = json.dumps(body).encode()
    return infer(gateway, text + tail, model, {LENGTH: str(len(text))})


@pytest.mark.row("C20", "C25")
def test_json_becomes_a_request_and_the_response_becomes_json(gateway: FakeGateway) -> None:
    result = infer(gateway, document(id="a", parameters={"k": "v"}))

    assert gateway.requests[0].body == RequestBody(
        "a", {"k": "v"}, [], [Tensor("INPUT0", FP32, [2], TWO)]
    )
    assert result.content == (
        b'{"id":"a","model_name":"identity","model_version":"1","outputs":'
        b'[{"name":"OUTPUT0","datatype":"FP32","shape":[2],"data":[1.5,2.5]}]}'
    )
    assert result.headers["content-type"] == "application/json"
    assert LENGTH not in result.headers


@pytest.mark.row("C25")
def test_parameters_of_the_response_stand_before_its_outputs(gateway: FakeGateway) -> None:
    gateway.respond = lambda request: ResponseBody({"n": 1}, [])

    assert infer(gateway, document()).content == (
        b'{"model_name":"identity","model_version":"1","parameters":{"n":1},"outputs":[]}'
    )


@pytest.mark.parametrize(
    "kind", ["application/json", "application/x-www-form-urlencoded", "nonsense", ""]
)
@pytest.mark.row("C35")
def test_the_content_type_of_a_request_means_nothing(kind: str) -> None:
    assert infer(FakeGateway(), document(), headers={"Content-Type": kind}).status_code == 200


@pytest.mark.row("C28")
def test_options_reach_the_scheduler_and_not_the_model(gateway: FakeGateway) -> None:
    parameters = {
        "sequence_id": 7,
        "sequence_start": True,
        "sequence_end": True,
        "priority": 3,
        "timeout": 1000,
        "binary_data_output": False,
        "own": 1.5,
    }

    infer(gateway, document(parameters=parameters))

    request = gateway.requests[0]
    assert request.options == SchedulingOptions(
        flags=3 | ANY_VERSION, priority=3, timeout_us=1000, correlation=7
    )
    assert request.body.parameters == {"own": 1.5}


@pytest.mark.row("C28")
def test_a_sequence_id_may_be_a_string(gateway: FakeGateway) -> None:
    infer(gateway, document(parameters={"sequence_id": "abc"}))

    assert gateway.requests[0].options.correlation == "abc"


# -------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    "shape",
    [
        [2**31, 2**31],
        [16, 2**60 + 2],
        [4, 2**60 + 2],
        [-1],
        [2, -5],
        [0, 2**62],
        [1.5],
        ["1"],
        [True],
        None,
        "2",
        {},
        [],
        [1] * 10_000,
        [1] * 33,
        [2**63],
        [2**64],
        [3],
        [0],
    ],
    ids=str,
)
@pytest.mark.parametrize("form", every(2, ["json", "binary"]))
def test_a_shape_that_is_none_or_not_the_datas_is_refused(
    gateway: FakeGateway, shape: Any, form: str
) -> None:
    if form == "json":
        result = infer(gateway, document(described(shape=shape)))
    else:
        entry = described(shape=shape, data=..., parameters={"binary_data_size": 8})
        result = infer_binary(gateway, document(entry), TWO)

    assert result.status_code == 400, result.text
    assert gateway.requests == []
    assert len(result.content) < 4096


def test_a_number_without_end_in_a_shape_is_refused() -> None:
    text = json.dumps(document()).replace("[2]", "[1e400]").encode()

    assert infer(FakeGateway(), text).status_code == 400


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ([], "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'"),
        ("a", "Unable to parse 'inputs': attempt to access non-existing object member"),
        ({}, "Unable to parse 'inputs': attempt to access non-existing object member"),
        ({"inputs": {}}, "Unable to parse 'inputs': attempt to access JSON non-array as array"),
        ({"inputs": [1]}, "Input must set only one of the following fields: 'data'"),
        (document(described(name=...)), "Unable to parse 'name': attempt to access non-existing"),
        (document(described(name=1)), "Unable to parse 'name': attempt to access JSON non-string"),
        (document(described(name="x" * 1025)), "Unable to parse 'name': longer than 1024"),
        (document(described(datatype=1)), "Unable to parse 'datatype': attempt to access JSON"),
        (document(described(datatype=...)), "Unable to parse 'datatype': attempt to access non-"),
        (document(described(datatype="FP8")), "invalid datatype for input INPUT0"),
        (
            document(described(datatype="FLOAT")),
            "invalid datatype for input INPUT0 ('FLOAT'; did you mean 'FP32'?)",
        ),
        (document(described(shape=...)), "Unable to parse 'shape': attempt to access non-exis"),
        (document(id=3), "Unable to parse 'id': attempt to access JSON non-string as string"),
        (document(outputs={}), "Unable to parse 'outputs': attempt to access JSON non-array"),
        (document(outputs=[{}]), "Unable to parse 'name': attempt to access non-existing"),
        (document(outputs=[{"name": "O"}] * 50_000), "a request cannot have more than 1024"),
        (document(*[described()] * 1025), "a request cannot have more than 1024 inputs and out"),
        (document(parameters=[]), "failed to get request params.: attempt to get members for"),
        (document(parameters={str(i): 1 for i in range(100_000)}), "a request cannot have more "),
        (
            document(described(), described()),
            "[request id: <id_unknown>] input 'INPUT0' already exists in request",
        ),
        (
            document(outputs=[{"name": "OUTPUT0"}] * 2),
            "output 'OUTPUT0' already exists in request",
        ),
        (
            document(described(data=...)),
            "Input must set only one of the following fields: 'data', 'binary_data_size' in "
            "'parameters', 'shared_memory_region' in 'parameters'. But no field is set",
        ),
        (
            document(described(parameters={"binary_data_size": 8})),
            "Input must set only one of the following fields: 'data', 'binary_data_size' in "
            "'parameters', 'shared_memory_region' in 'parameters'. But set 'data' "
            "'binary_data_size'",
        ),
        (
            document(outputs=[{"name": "OUTPUT0", "parameters": {"binary_data": 1}}]),
            "Unable to parse 'binary_data': attempt to access JSON non-boolean as boolean",
        ),
        (
            document(outputs=[{"name": "X"}], id="r"),
            "[request id: r] unexpected inference output 'X' for model 'identity'",
        ),
    ],
    ids=lambda value: str(value)[:60] if isinstance(value, str) else "",
)
@pytest.mark.row("C20", "C21", "C49")
def test_a_malformed_request_is_refused_with_tritons_text(
    gateway: FakeGateway, body: Any, said: str
) -> None:
    result = infer(gateway, body)

    assert (400, said) == (result.status_code, result.json["error"][: len(said)])
    assert gateway.requests == []


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"sequence_id": -1}, "Unable to parse 'sequence_id'"),
        ({"sequence_id": 1.5}, "Unable to parse 'sequence_id'"),
        ({"sequence_id": True}, "Unable to parse 'sequence_id'"),
        ({"sequence_id": 2**64}, "Unable to parse 'sequence_id'"),
        ({"sequence_id": "a" * 129}, "string correlation ID cannot be longer than 128 characters"),
        ({"sequence_start": 1}, "Unable to parse 'sequence_start': attempt to access JSON non-b"),
        ({"sequence_end": "x"}, "Unable to parse 'sequence_end'"),
        ({"priority": -1}, "Unable to parse 'priority': attempt to access JSON non-unsigned"),
        ({"priority": 2**64}, "Unable to parse 'priority'"),
        ({"timeout": -1}, "Unable to parse 'timeout'"),
        ({"timeout": 2**63}, "Unable to parse 'timeout'"),
        ({"timeout": "x"}, "Unable to parse 'timeout'"),
        ({"binary_data_output": 1}, "Unable to parse 'binary_data_output'"),
        ({"triton_x": 1}, "parameter keys starting with 'triton_' are reserved for Triton usage"),
        ({"x" * 1025: 1}, ""),
        ({"x": []}, "parameter 'x' has invalid type. It should be either 'int', 'bool', or 'str"),
        ({"x": {}}, "parameter 'x' has invalid type"),
        ({"x": None}, "parameter 'x' has invalid type"),
    ],
    ids=str,
)
@pytest.mark.row("C28")
def test_a_parameter_of_the_wrong_kind_is_refused(
    gateway: FakeGateway, parameters: Any, said: str
) -> None:
    result = infer(gateway, document(parameters=parameters))

    assert (400, said) == (result.status_code, result.json["error"][: len(said)])
    assert gateway.requests == []


@pytest.mark.parametrize(
    ("classes", "status"),
    [(0, 200), (-1, 400), (1.5, 400), ("1", 400), (True, 400), (2**64, 400), (2, 200)],
)
def test_the_number_of_classes_is_a_count(classes: Any, status: int) -> None:
    outputs = [{"name": "OUTPUT0", "parameters": {"classification": classes}}]

    assert infer(FakeGateway(), document(outputs=outputs)).status_code == status


@pytest.mark.parametrize(
    ("model", "status", "said"),
    [
        (
            "decoupled",
            501,
            "HTTP end point doesn't support models with decoupled transaction policy. "
            "Use generate_stream or infer_stream, or ModelStreamInfer over gRPC",
        ),
        ("nope", 400, "Request for unknown model: 'nope' is not found"),
        (
            "identity/versions/9",
            404,
            "Request for unknown model: 'identity' version 9 is not found",
        ),
    ],
)
@pytest.mark.row("C29", "C40", "C41")
def test_what_is_not_served_here_is_named(model: str, status: int, said: str) -> None:
    result = infer(FakeGateway(), document(), model)

    assert (result.status_code, result.json) == (status, {"error": said})


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (Unavailable("Exceeds maximum queue size"), 503, "Exceeds maximum queue size"),
        (InternalError("it failed"), 500, "it failed"),
        (UnknownError("who knows"), 400, "who knows"),
        (Cancelled("gone"), 400, "gone"),
        (ZeroDivisionError("/secret/path"), 500, "internal error"),
    ],
)
def test_an_error_has_its_code_and_text_and_a_fault_of_ours_says_nothing_of_our_insides(
    gateway: FakeGateway, error: Exception, status: int, text: str
) -> None:
    gateway.respond = failing(error)

    result = infer(gateway, document())

    assert (result.status_code, result.json) == (status, {"error": text})


@pytest.mark.parametrize("data", [bytes(4), bytes(12), b""])
@pytest.mark.parametrize("is_binary", [True, False])
def test_an_output_whose_bytes_are_not_its_shapes_is_not_sent(
    gateway: FakeGateway, data: bytes, is_binary: bool
) -> None:
    gateway.respond = lambda request: ResponseBody({}, [Tensor("OUTPUT0", FP32, [2], data)])

    result = infer(gateway, document(parameters={"binary_data_output": is_binary}))

    assert result.status_code == 500
    assert result.json["error"] == (
        "invalid output 'OUTPUT0' in the response of model 'identity': "
        "correct its datatype or shape"
    )


# -------------------------------------------------------------- limits, headers


@pytest.mark.row("C31", "--http-max-input-size")
def test_json_above_the_limit_is_refused() -> None:
    text = json.dumps(document()).encode()

    result = infer(FakeGateway(http_max_input_size=len(text) - 1), text)

    assert result.status_code == 400
    assert result.json["error"] == (
        f"request JSON size of {len(text)} bytes exceeds the maximum allowed input size of "
        f"{len(text) - 1} bytes. Use --http-max-input-size to increase the limit."
    )


@pytest.mark.row("C31")
def test_binary_tensors_do_not_count_towards_the_limit() -> None:
    body = document(described(shape=[100], data=..., parameters={"binary_data_size": 400}))
    gateway = FakeGateway(http_max_input_size=len(json.dumps(body)))

    assert infer_binary(gateway, body, bytes(400)).status_code == 200


@pytest.mark.row("C31", "--http-max-input-size")
def test_a_raw_body_above_the_limit_is_refused() -> None:
    assert infer(FakeGateway(http_max_input_size=7), TWO, headers={LENGTH: "0"}).status_code == 400


@pytest.mark.row("--http-header-forward-pattern")
def test_headers_that_match_the_pattern_become_parameters() -> None:
    gateway = FakeGateway(http_header_forward_pattern="x-my-")

    infer(gateway, document(), headers={"X-My-Key": "7", "X-Other": "8"})

    assert gateway.requests[0].body.parameters == {"x-my-key": "7"}


# ------------------------------------------------------------------- room for requests


KIB = 1 << 10
LIMIT, CLIENTS = 4096 * KIB, 60


def _ask(kib: int) -> bytes:
    tensor = {"name": "INPUT0", "shape": [kib << 7], "datatype": "FP32", "data": [0] * (kib << 7)}
    body = json.dumps({"inputs": [tensor]}, separators=(",", ":"))
    return raw_request("POST", "/v2/models/identity/infer", body.ljust(kib << 10).encode())


@pytest.mark.slow
@pytest.mark.parametrize(("kib", "has_room"), [(8, False), (9, True), (100, True)])
@scenario(run_scenario, ledger_bytes=LIMIT)
async def test_whole_requests_have_room_until_they_are_answered(
    harness: HttpHarness, /, kib: int, has_room: bool
) -> None:
    gateway, requests = harness.gateway, harness.connections.ledger.requests
    gate = gateway.gate = asyncio.Event()
    clients = [connect_narrow(harness.connections.address[1]) for _ in range(CLIENTS)]
    try:
        for client in clients:
            await asyncio.to_thread(client.sendall, _ask(kib))
        limit = LIMIT // (kib << 10)
        while len(gateway.requests) + requests.refused < CLIENTS:
            await asyncio.sleep(0.01)
        await loop_turns(10)  # the last one that is refused gives back its room after it counts

        assert min(CLIENTS, limit) >= len(gateway.requests)
        assert requests.held == (len(gateway.requests) * (kib << 10) if has_room else 0)
        gate.set()
        answers = [await asyncio.to_thread(client.recv, 12) for client in clients]
        assert {b"HTTP/1.1 200"} >= set(answers) - {b"HTTP/1.1 503"}
        assert CLIENTS - requests.refused == answers.count(b"HTTP/1.1 200")
        assert not requests.held
    finally:
        for client in clients:
            client.close()
