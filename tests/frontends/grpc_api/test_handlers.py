from __future__ import annotations

import asyncio
import base64
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.frontends.fake_gateway import version_info
from tests.frontends.grpc_api.conftest import Transport
from tests.frontends.grpc_api.fake_gateway import (
    FakeCall,
    FakeGateway,
    InMemoryTransport,
    infer_request,
)
from tests.support.scenarios import scenario
from zmqtriton.options.values import CATEGORIES
from zmqtriton_floor import TRITON_VERSION
from zmqtriton_floor.errors import (
    InvalidArgument,
    NotFound,
    Unavailable,
    Unsupported,
    ZmqTritonError,
)
from zmqtriton_floor.settings.frontends import Restriction
from zmqtriton_floor.wire import ResponseBody, Tensor
from zmqtriton_frontends.grpc_api.handlers import table
from zmqtriton_protos import SERVICES, message

pytestmark = pytest.mark.slow

#: What answers over either transport.
Ask = Callable[[FakeGateway], Transport]


def a(kind: str, /, **fields: Any) -> Any:
    return message(f"inference.{kind}")(**fields)


# --------------------------------------------------------------------- the table


def test_the_table_has_every_rpc() -> None:
    gateway = FakeGateway(settings={"grpc_reflection": True})

    offered = {(row.service, row.method) for row in table(gateway, None)}

    defined = {(service, rpc.name) for service, rpcs in SERVICES.items() for rpc in rpcs}
    older = ("grpc.reflection.v1alpha.ServerReflection", "ServerReflectionInfo")
    assert offered == {*defined, older}


def test_every_rpc_has_a_category_and_one_way_to_be_answered() -> None:
    for row in table(FakeGateway(), None):
        assert row.category in CATEGORIES, row
        ways = [way for way in (row.unary, row.exchange) if way is not None]
        assert len(ways) == 1, row


def test_tokens_for_some_models_are_looked_at_where_a_call_names_one() -> None:
    assert {row.method for row in table(FakeGateway(), None) if row.names_model} == {
        *(f"Model{word}" for word in ("Ready", "Metadata", "Config", "Statistics")),
        *("ModelInfer", "ModelStreamInfer", "TraceSetting"),
        *("RepositoryModelLoad", "RepositoryModelUnload"),
    }


def test_rpcs_stream_where_the_services_say_so() -> None:
    kinds = {(s, rpc.name): rpc for s, rpcs in SERVICES.items() for rpc in rpcs}

    for row in table(FakeGateway(), None):
        rpc = kinds[row.service.replace("v1alpha", "v1"), row.method]
        assert (row.exchange is not None) == rpc.server_streaming, row


def test_the_handlers_need_no_grpc() -> None:
    program = (
        "import sys, zmqtriton_frontends.grpc_api.handlers\n"
        "print([name for name in sys.modules if name.partition('.')[0] == 'grpc'])"
    )
    environment = {"PYTHONPATH": ":".join(sys.path)}

    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )

    assert done.stdout == "[]\n"


# --------------------------------------------------------------------- inference


@pytest.mark.row("D04", "D25", "D26")
@pytest.mark.parametrize(("wish", "version"), [("", "3"), ("1", "1")])
def test_an_inference_comes_back_with_its_id_model_and_version(
    transport: Ask, wish: str, version: str
) -> None:
    response = transport(FakeGateway(version_info("m"), version_info("m", version=3))).call_unary(
        "ModelInfer", infer_request("m", "seven", model_version=wish)
    )

    assert response == a(
        "ModelInferResponse",
        model_name="m",
        model_version=version,
        id="seven",
        outputs=[{"name": "OUTPUT0", "datatype": "FP32", "shape": [1]}],
        raw_output_contents=[b"abcd"],
    )


def test_the_deadline_and_the_parameters_reach_the_gateway(gateway: FakeGateway) -> None:
    request = infer_request(
        parameters={"timeout": {"int64_param": 5}, "mine": {"string_param": "x"}},
        outputs=[{"name": "OUTPUT0"}],
    )

    InMemoryTransport(gateway).call_unary("ModelInfer", request, call=FakeCall(deadline_ns=77))

    (checked,) = gateway.requests
    assert (checked.options.deadline_ns, checked.options.timeout_us) == (77, 5)
    assert (checked.body.parameters, checked.body.outputs) == ({"mine": "x"}, ["OUTPUT0"])


def test_parameters_of_the_response_are_passed_on(gateway: FakeGateway, transport: Ask) -> None:
    gateway.respond = lambda request: ResponseBody(
        {"final": True}, [Tensor("OUTPUT0", 13, [1], b"\1\0\0\0a")]
    )

    response = transport(gateway).call_unary("ModelInfer", infer_request())

    assert response.parameters["final"].bool_param is True
    assert response.outputs[0].datatype == "BYTES"


@pytest.mark.row("D04", "D25")
@pytest.mark.parametrize(
    ("request_", "error", "text"),
    [
        (
            infer_request("none", raw_input_contents=[]),
            InvalidArgument,
            "Request for unknown model: 'none' is not found",
        ),
        (
            infer_request(model_version="9"),
            NotFound,
            "Request for unknown model: 'm' version 9 is not found",
        ),
        (infer_request(model_version="x"), InvalidArgument, None),
        (
            infer_request(model_version="-1"),
            InvalidArgument,
            "invalid model version specified '-1' , version should be an integral value > 0",
        ),
        (
            infer_request(model_version="99999999999999999999"),
            InvalidArgument,
            "failed to get model version from specified version string '99999999999999999999', "
            "version should be an integral value > 0",
        ),
        (
            infer_request(model_version="0"),
            NotFound,
            "Request for unknown model: 'm' version 0 is not found",
        ),
        (
            infer_request("loading", model_version="1"),
            Unavailable,
            "Request for unknown model: 'loading' version 1 is not at ready state. It is being "
            "loaded, so retry later",
        ),
        (
            infer_request("stream", raw_input_contents=[]),
            Unsupported,
            "ModelInfer RPC doesn't support models with decoupled transaction policy. "
            "Use ModelStreamInfer",
        ),
        (
            infer_request("m", "5", raw_input_contents=[b"abc"]),
            InvalidArgument,
            "[request id: 5] input byte size mismatch for input 'INPUT0' for model 'm'. "
            "Expected 4, got 3",
        ),
    ],
)
def test_a_wrong_request_hears_what_is_wrong(
    request_: Any, error: type[ZmqTritonError], text: str | None, transport: Ask
) -> None:
    gateway = FakeGateway(
        version_info("m"),
        version_info("loading", state="LOADING"),
        version_info("stream", decoupled=True),
    )

    with pytest.raises(error) as caught:
        transport(gateway).call_unary("ModelInfer", request_)

    assert type(caught.value) is error
    assert text is None or caught.value.text == text
    assert gateway.requests == []


@scenario(asyncio.run)
async def test_cancelling_who_waits_cancels_at_the_gateway(gateway: FakeGateway) -> None:
    gateway.gate = asyncio.Event()
    waiting = asyncio.ensure_future(
        InMemoryTransport(gateway).call_unary_async("ModelInfer", infer_request())
    )
    while not gateway.requests:
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})

    assert gateway.cancelled == 1


@pytest.mark.parametrize(("key", "may"), [("schlüssel", True), ("€", False)])
def test_who_has_the_key_of_statistics_is_told_the_load(key: str, may: bool) -> None:
    settings = {"grpc_restricted_protocol": (Restriction(("statistics",), "X-Key", "schlüssel"),)}
    gateway, call = FakeGateway(version_info("m"), settings=settings), FakeCall()
    gateway.counters = {"loads": []}
    call.metadata = [("endpoint-load-metrics-format", "json"), ("x-key", key)]

    answer = InMemoryTransport(gateway).call_unary("ModelInfer", infer_request(), call=call)

    assert [b"abcd"] == list(answer.raw_output_contents)
    assert may is bool(call.trailers)


# ---------------------------------------------------------- models and their counters


@pytest.mark.row("D03")
def test_the_server_says_what_it_is(transport: Ask) -> None:
    gateway = FakeGateway(settings={"id": "mine"})

    response = transport(gateway).call_unary("ServerMetadata", a("ServerMetadataRequest"))

    assert (response.name, response.version) == ("mine", TRITON_VERSION)
    assert tuple(response.extensions) == gateway.settings.server.extensions


@pytest.mark.row("D03")
def test_a_model_says_what_it_takes_and_gives(transport: Ask) -> None:
    gateway = FakeGateway(
        version_info("m", version=1, max_batch_size=4, datatype="STRING"),
        version_info("m", version=2),
    )

    response = transport(gateway).call_unary(
        "ModelMetadata", a("ModelMetadataRequest", name="m", version="1")
    )

    assert response == a(
        "ModelMetadataResponse",
        name="m",
        versions=["1"],
        platform="python",
        inputs=[{"name": "INPUT0", "datatype": "BYTES", "shape": [-1, -1]}],
        outputs=[{"name": "OUTPUT0", "datatype": "BYTES", "shape": [-1, -1]}],
    )


@pytest.mark.row("D06")
def test_the_configuration_is_the_one_the_server_settled_on(
    gateway: FakeGateway, transport: Ask
) -> None:
    response = transport(gateway).call_unary("ModelConfig", a("ModelConfigRequest", name="m"))

    assert (response.config.name, response.config.backend) == ("m", "python")


STATISTICS = {
    "model_stats": [
        {
            "name": "m",
            "version": "1",
            "last_inference": 1700000000000,
            "inference_count": 4,
            "execution_count": 2,
            "inference_stats": {"success": {"count": 3, "ns": 2**40}},
            "response_stats": {"0": {"success": {"count": 1, "ns": 5}}},
            "batch_stats": [{"batch_size": 2, "compute_infer": {"count": 2, "ns": 7}}],
            "memory_usage": [{"type": "CPU", "id": 0, "byte_size": 9}],
        }
    ]
}


@pytest.mark.row("D07")
def test_counters_are_the_brokers(gateway: FakeGateway, transport: Ask) -> None:
    gateway.counters = STATISTICS

    response = transport(gateway).call_unary("ModelStatistics", a("ModelStatisticsRequest"))

    assert gateway.statistics_calls == [("", -1)]
    assert response == a("ModelStatisticsResponse", **STATISTICS)
    assert response.model_stats[0].inference_stats.success.ns == 2**40


@pytest.mark.row("D07")
def test_counters_of_one_version_are_asked_for_by_number(transport: Ask) -> None:
    gateway = FakeGateway(version_info("m", version=2))

    transport(gateway).call_unary(
        "ModelStatistics", a("ModelStatisticsRequest", name="m", version="2")
    )

    assert gateway.statistics_calls == [("m", 2)]


@pytest.mark.row("D07")
@pytest.mark.parametrize(
    ("fields", "error"),
    [({"name": "x" * 2000}, InvalidArgument), ({"version": "7"}, InvalidArgument)],
)
def test_counters_of_what_is_unknown_are_not_asked_for(
    gateway: FakeGateway, fields: Any, error: type[ZmqTritonError], transport: Ask
) -> None:
    request = a("ModelStatisticsRequest", **{"name": "m", **fields})
    with pytest.raises(error):
        transport(gateway).call_unary("ModelStatistics", request)

    assert gateway.statistics_calls == []


# ------------------------------------------------------------------ the repository


@pytest.mark.row("D08")
def test_the_index_has_only_the_fields_that_are_known(gateway: FakeGateway, transport: Ask) -> None:
    gateway.control_result = [
        {"name": "m", "version": "1", "state": "READY"},
        {"name": "n"},
    ]

    response = transport(gateway).call_unary(
        "RepositoryIndex", a("RepositoryIndexRequest", ready=True)
    )

    assert gateway.calls == [("index", {"ready": True})]
    assert response == a(
        "RepositoryIndexResponse",
        models=[{"name": "m", "version": "1", "state": "READY"}, {"name": "n"}],
    )


@pytest.mark.row("D08")
def test_a_load_takes_a_configuration_and_stages_files(transport: Ask, tmp_path: Path) -> None:
    gateway = FakeGateway(settings={"runtime_directory": str(tmp_path)})
    parameters = {
        "config": {"string_param": "{}"},
        "file:1/model.py": {"bytes_param": b"\xff\x00"},
    }

    transport(gateway).call_unary(
        "RepositoryModelLoad",
        a("RepositoryModelLoadRequest", model_name="m", parameters=parameters),
    )

    ((verb, arguments),) = gateway.calls
    name = arguments["files"]["staged"]
    assert ("load", "m", {"config": "{}"}) == (verb, arguments["model"], arguments["parameters"])
    assert b"\xff\x00" == (tmp_path / "files" / name / "1" / "model.py").read_bytes()


@pytest.mark.parametrize(
    ("parameters", "expected"), [({}, False), ({"unload_dependents": {"bool_param": True}}, True)]
)
def test_an_unload_may_take_the_dependents_along(
    gateway: FakeGateway, parameters: Any, expected: bool, transport: Ask
) -> None:
    transport(gateway).call_unary(
        "RepositoryModelUnload",
        a("RepositoryModelUnloadRequest", model_name="m", parameters=parameters),
    )

    assert gateway.calls == [("unload", {"model": "m", "unload_dependents": expected})]


@pytest.mark.row("D08")
@pytest.mark.parametrize(
    ("method", "fields", "error", "text"),
    [
        (
            "RepositoryIndex",
            {"repository_name": "r"},
            Unsupported,
            "'repository_name' specification is not supported",
        ),
        (
            "RepositoryModelLoad",
            {"repository_name": "r"},
            Unsupported,
            "'repository_name' specification is not supported",
        ),
        (
            "RepositoryModelUnload",
            {"repository_name": "r"},
            Unsupported,
            "'repository_name' specification is not supported",
        ),
        (
            "RepositoryModelLoad",
            {"parameters": {"config": {"bytes_param": b"{}"}}},
            InvalidArgument,
            "invalid value type for load parameter 'config', expected string_param.",
        ),
        (
            "RepositoryModelLoad",
            {"parameters": {"file:a": {"string_param": "a"}}},
            InvalidArgument,
            "invalid value type for load parameter 'file:a', expected bytes_param.",
        ),
        (
            "RepositoryModelLoad",
            {"parameters": {"other": {"string_param": "a"}}},
            InvalidArgument,
            "unrecognized load parameter 'other'.",
        ),
        (
            "RepositoryModelUnload",
            {"parameters": {"unload_dependents": {"int64_param": 1}}},
            InvalidArgument,
            "invalid value type for 'unload_dependents' parameter, expected bool_param.",
        ),
    ],
)
def test_a_wrong_control_call_does_not_reach_the_supervisor(
    gateway: FakeGateway,
    method: str,
    fields: Any,
    error: type[ZmqTritonError],
    text: str,
    transport: Ask,
) -> None:
    with pytest.raises(error) as caught:
        transport(gateway).call_unary(method, a(f"{method}Request", **fields))

    assert (type(caught.value), caught.value.text) == (error, text)
    assert gateway.calls == []


# ----------------------------------------------------------- clients' shared memory


@pytest.mark.row("D09")
def test_regions_are_the_supervisors(gateway: FakeGateway) -> None:
    region = {"name": "r", "key": "/k", "offset": 8, "byte_size": 64}
    gateway.control_result = [region]

    register = a("SystemSharedMemoryRegisterRequest", **region)
    memory = InMemoryTransport(gateway)
    memory.call_unary("SystemSharedMemoryRegister", register)
    status = memory.call_unary("SystemSharedMemoryStatus", a("SystemSharedMemoryStatusRequest"))
    memory.call_unary("SystemSharedMemoryUnregister", a("SystemSharedMemoryUnregisterRequest"))

    (name,) = status.regions
    status_of_region = status.regions[name]
    assert region == {key: getattr(status_of_region, key) for key in region}
    assert [
        ("regions.register", {"kind": "system", **region, "user": -1}),
        ("regions.status", {"kind": "system", "name": ""}),
        ("regions.unregister", {"kind": "system", "name": ""}),
    ] == gateway.calls


@pytest.mark.row("D10")
def test_cuda_regions_are_the_supervisors_to_refuse(gateway: FakeGateway, transport: Ask) -> None:
    gateway.control_result = InvalidArgument("GPUs not supported")
    request = a("CudaSharedMemoryRegisterRequest", name="r", raw_handle=b"x" * 64, byte_size=8)

    with pytest.raises(InvalidArgument):
        transport(gateway).call_unary("CudaSharedMemoryRegister", request)

    details = {"raw_handle": base64.b64encode(b"x" * 64).decode(), "device_id": 0, "byte_size": 8}
    assert [("regions.register", {"kind": "cuda", "name": "r", **details})] == gateway.calls
