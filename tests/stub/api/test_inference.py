from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import pytest

from tests.stub.fakes import LOAD, FakeLink, body, fp32
from tests.support.refusals import refusal
from zmqtriton_floor import wire
from zmqtriton_stub import instance
from zmqtriton_stub.api import pb_utils
from zmqtriton_stub.api.functions import shared_memory
from zmqtriton_stub.api.inference import received
from zmqtriton_stub.instance import Instance


def _received(link: FakeLink, request: wire.RequestBody) -> pb_utils.InferenceRequest:
    pending = link.add_request(request)
    pending.work = wire.BatchedRequest(1, 3, 5, 1, "sequence", 0, 1500)
    pending.outputs = request.outputs
    return received(pending, request.request_id, request.parameters, request.inputs)


def test_a_received_request_tells_what_the_client_sent() -> None:
    request = _received(FakeLink(), body(fp32("IN"), outputs=["B", "A"]))

    assert ("r1", "sequence") == (request.request_id(), request.correlation_id())
    assert request.flags() == pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START
    assert request.timeout() == 1500
    assert json.loads(request.parameters()) == {"a": 1}
    assert request.requested_output_names() == {"A", "B"}
    assert [tensor.name() for tensor in request.inputs()] == ["IN"]
    assert request.trace().get_context() is None


def test_a_request_that_names_no_outputs_wants_all_of_the_configuration() -> None:
    link = FakeLink()
    request = _received(link, body(fp32("IN")))
    assert request.requested_output_names() == set()

    output = {"name": "OUT", "data_type": "TYPE_FP32", "dims": [1]}
    link.instance.configure(json.dumps({"name": "m", "output": [output]}))

    assert request.requested_output_names() == {"OUT"}


def test_what_a_model_does_to_the_list_of_inputs_is_its_own_business() -> None:
    request = _received(FakeLink(), body(fp32("IN")))

    request.inputs().clear()

    assert len(request.inputs()) == 1


def test_inputs_and_outputs_are_found_by_name_and_none_where_absent() -> None:
    request = _received(FakeLink(), body(fp32("IN")))
    response = pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.zeros(1))])

    tensor = pb_utils.get_input_tensor_by_name(request, "IN")
    assert tensor is not None
    assert tensor.as_numpy().tolist() == [1.0]
    assert pb_utils.get_input_tensor_by_name(request, "X") is None
    assert pb_utils.get_output_tensor_by_name(response, "OUT") is not None
    assert pb_utils.get_output_tensor_by_name(response, "X") is None


def test_cancellation_is_read_when_asked_for() -> None:
    link = FakeLink()
    request = _received(link, body())
    assert not request.is_cancelled()

    link.turn_actions.append(lambda: setattr(link.pending[3, 5], "is_cancelled", True))

    assert request.is_cancelled()
    assert request.get_response_sender().is_cancelled()


def test_a_request_to_another_model_takes_triton_s_arguments() -> None:
    tensor = pb_utils.Tensor("IN", np.zeros(1))

    request = pb_utils.InferenceRequest(
        inputs=[tensor],
        requested_output_names=["OUT"],
        model_name="other",
        correlation_id="x",
        parameters={"k": True},
    )

    assert request.inputs() == [tensor]
    assert request.correlation_id() == "x"
    assert json.loads(request.parameters()) == {"k": True}
    assert not request.is_cancelled()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"correlation_id": 1.5}, "Correlation ID must be integer or string"),
        (
            {"request_id": "7", "requested_output_names": [""]},
            "Requested output name for request with id '7' and model name 'other' should not be "
            "empty.",
        ),
        (
            {"inputs": [None]},
            "Input tensor for request with id '' and model name 'other' should not be empty.",
        ),
        (
            {"parameters": {"a": 1.5}},
            "Expect parameters values to have type bool/int/str, found type <class 'float'>",
        ),
        (
            {"parameters": {1: "a"}},
            "Expect parameters keys to have type str, found type <class 'int'>",
        ),
    ],
)
def test_a_wrong_request_to_another_model_is_refused(arguments: dict[str, Any], text: str) -> None:
    right: dict[str, Any] = {"inputs": [], "requested_output_names": [], "model_name": "other"}

    assert (
        refusal(pb_utils.TritonModelException, pb_utils.InferenceRequest, **{**right, **arguments})
        == text
    )


def test_the_three_required_arguments_of_a_request_are_required() -> None:
    with pytest.raises(TypeError):
        pb_utils.InferenceRequest(inputs=[], requested_output_names=[])


@pytest.mark.parametrize(
    "arguments",
    [
        {"flags": -1},
        {"flags": 1 << 32},
        {"timeout": -1},
        {"timeout": 1.5},
        {"requested_output_names": "OUT"},
        {"preferred_memory": 1},
        {"trace": "trace"},
        {"unknown": 1},
    ],
)
def test_arguments_of_other_types_are_refused(arguments: dict[str, Any]) -> None:
    right: dict[str, Any] = {"inputs": [], "requested_output_names": [], "model_name": "other"}

    with pytest.raises(TypeError):
        pb_utils.InferenceRequest(**{**right, **arguments})


def test_memory_is_preferred_by_kind_and_number() -> None:
    preferred = pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU, 0)

    assert preferred.memory_type is pb_utils.MemoryType.TRITONSERVER_MEMORY_CPU
    assert [0, 1] == [
        int(pb_utils.TRITONSERVER_MEMORY_GPU),
        int(pb_utils.TRITONSERVER_MEMORY_CPU),
    ]
    with pytest.raises(TypeError):
        pb_utils.PreferredMemory(1)  # type: ignore[arg-type]


def test_a_response_holds_tensors_and_parameters_or_an_error() -> None:
    tensor = pb_utils.Tensor("OUT", np.zeros(1))

    good = pb_utils.InferenceResponse([tensor], parameters={"a": 1})
    bad = pb_utils.InferenceResponse(error=pb_utils.TritonError("no"))

    assert (good.output_tensors(), good.has_error(), good.error()) == ([tensor], False, None)
    assert json.loads(good.parameters()) == {"a": 1}
    assert bad.has_error()
    assert bad.parameters() == "{}"


def test_a_response_refuses_what_is_no_tensor() -> None:
    with pytest.raises(pb_utils.TritonModelException) as caught:
        pb_utils.InferenceResponse([None])  # type: ignore[list-item]
    assert str(caught.value) == "Output tensor for inference response should not be empty."

    with pytest.raises(TypeError):
        pb_utils.InferenceResponse([np.zeros(1)])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        pb_utils.InferenceResponse(error="text")  # type: ignore[arg-type]


def test_an_error_has_a_message_and_a_code() -> None:
    error = pb_utils.TritonError("gone", pb_utils.TritonError.NOT_FOUND)

    assert (error.message(), error.code()) == ("gone", pb_utils.TritonError.NOT_FOUND)
    assert pb_utils.TritonError("x").code() == pb_utils.TritonError.INTERNAL
    assert [int(code) for code in type(error.code())] == list(range(8))


def test_a_test_of_a_model_may_bring_requests_and_tensors_of_its_own() -> None:
    class Tensor:
        def name(self) -> str:
            return "IN"

    class Request:
        def inputs(self) -> list[Tensor]:
            return [tensor]

    tensor = Tensor()
    request: Any = Request()

    same_tensor: Any = pb_utils.get_input_tensor_by_name(request, "IN")

    assert same_tensor is tensor


def test_numbers_names_and_types_of_numpy_translate() -> None:
    assert pb_utils.triton_string_to_numpy("TYPE_FP16") is np.float16
    assert pb_utils.triton_string_to_numpy("TYPE_BOOL") is bool
    assert pb_utils.triton_to_numpy_type(13) is np.object_
    assert pb_utils.triton_to_numpy_type(14) is None
    assert pb_utils.triton_to_numpy_type(99) is None
    assert pb_utils.numpy_to_triton_type(np.dtype("int64")) == 9
    assert pb_utils.numpy_to_triton_type(np.bytes_) == 13
    assert pb_utils.numpy_to_triton_type(np.complex64) is None
    for name in ("TYPE_BF16", "FP32"):
        with pytest.raises(KeyError):
            pb_utils.triton_string_to_numpy(name)


def test_strings_are_serialized_as_triton_s_functions_do() -> None:
    data = pb_utils.serialize_byte_tensor(np.array([[b"a", "é"], [1, b""]], np.object_))

    assert data == b"\x01\0\0\0a\x02\0\0\0\xc3\xa9\x01\0\0\x001\0\0\0\0"
    assert pb_utils.deserialize_bytes_tensor(data).tolist() == [b"a", "é".encode(), b"1", b""]
    assert pb_utils.serialize_byte_tensor(np.empty(0, np.object_)) == ()
    assert pb_utils.serialize_byte_tensor(np.zeros(1)) is None


def test_a_configuration_is_searched_by_name() -> None:
    config = {"input": [{"name": "A"}], "model_transaction_policy": {"decoupled": True}}

    assert pb_utils.get_input_config_by_name(config, "A") == {"name": "A"}
    assert pb_utils.get_input_config_by_name(config, "B") is None
    assert pb_utils.get_output_config_by_name(config, "A") is None
    assert pb_utils.using_decoupled_model_transaction_policy(config)
    assert not pb_utils.using_decoupled_model_transaction_policy({})


def test_a_log_line_without_a_server_names_the_caller(capsys: pytest.CaptureFixture[str]) -> None:
    pb_utils.Logger.log("hello", pb_utils.Logger.WARNING)

    line = capsys.readouterr().err
    assert line.startswith("W")
    assert "test_inference.py:" in line
    assert line.endswith('] "hello"\n')


def test_only_text_is_logged() -> None:
    with pytest.raises(TypeError):
        pb_utils.Logger.log_info(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        pb_utils.Logger.log("x", 1)  # type: ignore[arg-type]


@pytest.mark.row("A09")
def test_the_directory_is_the_version_s_where_the_code_lies_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load = LOAD._replace(path="/backends/shared/model.py")
    monkeypatch.setattr(instance, "current", Instance(load, lambda message: None))

    assert pb_utils.get_model_dir() == "/repository/m/1"


def test_a_directory_without_a_server_is_refused() -> None:
    with pytest.raises(pb_utils.TritonModelException, match="being served"):
        pb_utils.get_model_dir()


@pytest.mark.parametrize("version", [-(1 << 63), (1 << 63) - 1])
def test_a_version_has_64_bits(version: int) -> None:
    request = pb_utils.InferenceRequest(
        model_name="m", model_version=version, requested_output_names=[], inputs=[]
    )

    assert version == request._model_version


@pytest.mark.parametrize("version", [-(1 << 63) - 1, 1 << 63])
def test_a_larger_version_is_refused(version: int) -> None:
    with pytest.raises(TypeError, match="64 bits"):
        pb_utils.InferenceRequest(
            model_name="m", model_version=version, requested_output_names=[], inputs=[]
        )


def test_the_time_that_remains_counts_to_the_deadline_and_not_below_zero() -> None:
    pending = FakeLink().add_request(body())
    now_ns = time.monotonic_ns()

    def remaining(deadline_ns: int) -> float | None:
        pending.work = pending.work._replace(deadline_ns=deadline_ns)
        return received(pending, "", {}, []).remaining_s()

    assert remaining(0) is None
    assert 0.0 == remaining(now_ns)
    left = remaining(now_ns + 3600 * 10**9)
    assert left is not None
    assert 3000 < left <= 3600


def test_without_a_server_no_shared_memory_is_unused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 == shared_memory.free_memory()

    monkeypatch.setattr(instance, "current", Instance(LOAD, lambda message: None))

    assert 0 == shared_memory.free_memory()
