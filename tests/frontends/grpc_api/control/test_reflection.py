"""Reflection, asked as grpcurl asks: services first, then files until all is known."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool

from tests.frontends.grpc_api.fake_gateway import FakeGateway
from tests.frontends.grpc_api.serving import GrpcServerThread, serving
from zmqtriton_protos import message

_ON = {"grpc_reflection": True}
_REQUEST = message("grpc.reflection.v1.ServerReflectionRequest")
_RESPONSE = message("grpc.reflection.v1.ServerReflectionResponse")
_PATH = "/grpc.reflection.{}.ServerReflection/ServerReflectionInfo"


@pytest.fixture(scope="module")
def server() -> Iterator[GrpcServerThread]:
    with serving(FakeGateway(settings=_ON)) as running:
        yield running


def ask(server: GrpcServerThread, *questions: dict[str, Any], version: str = "v1") -> list[Any]:
    requests = [_REQUEST(**question).SerializeToString() for question in questions]
    with grpc.insecure_channel(server.address) as channel:
        answers = channel.stream_stream(_PATH.format(version))(iter(requests), timeout=20)
        return [_RESPONSE.FromString(answer) for answer in answers]


@pytest.mark.row("D14")
@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_the_services_are_listed(server: GrpcServerThread, version: str) -> None:
    (answer,) = ask(server, {"host": "h", "list_services": "*"}, version=version)

    assert ("h", "*") == (answer.valid_host, answer.original_request.list_services)
    assert [
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "inference.GRPCInferenceService",
    ] == [service.name for service in answer.list_services_response.service]


@pytest.mark.row("D14")
@pytest.mark.parametrize(
    "question",
    [
        {"file_containing_symbol": "inference.GRPCInferenceService"},
        {"file_containing_symbol": "inference.ModelInferRequest"},
        {"file_by_filename": "grpc_service.proto"},
    ],
)
def test_what_is_told_is_enough_to_make_a_request(
    server: GrpcServerThread, question: dict[str, str]
) -> None:
    (answer,) = ask(server, question)

    pool = descriptor_pool.DescriptorPool()
    for data in reversed(answer.file_descriptor_response.file_descriptor_proto):
        pool.Add(descriptor_pb2.FileDescriptorProto.FromString(data))
    service = pool.FindServiceByName("inference.GRPCInferenceService")
    infer = service.methods_by_name["ModelInfer"]
    assert "model_name" in infer.input_type.fields_by_name


@pytest.mark.row("D14")
def test_what_is_unknown_is_an_error_and_the_stream_goes_on(server: GrpcServerThread) -> None:
    answers = ask(
        server,
        {"file_containing_symbol": "nobody.Nothing"},
        {"file_by_filename": "none.proto"},
        {"all_extension_numbers_of_type": "inference.ModelInferRequest"},
        {},
        {"list_services": ""},
    )

    errors = [(a.error_response.error_code, a.error_response.error_message) for a in answers]
    assert [
        (5, "'nobody.Nothing' is not found"),
        (5, "'none.proto' is not found"),
        (5, "there are no extensions"),
        (12, "unknown kind of question"),
        (0, ""),
    ] == errors


@pytest.mark.row("D14")
def test_where_it_is_off_the_error_names_the_option() -> None:
    with serving(FakeGateway()) as server, pytest.raises(grpc.RpcError) as caught:
        ask(server, {"list_services": ""})

    assert grpc.StatusCode.UNIMPLEMENTED == caught.value.code()
    assert "--grpc-reflection=true" in caught.value.details()


def test_a_message_that_is_none_ends_the_stream(server: GrpcServerThread) -> None:
    with (
        grpc.insecure_channel(server.address) as channel,
        pytest.raises(grpc.RpcError) as caught,
    ):
        list(channel.stream_stream(_PATH.format("v1"))(iter([b"\xff"]), timeout=20))

    assert grpc.StatusCode.INVALID_ARGUMENT == caught.value.code()


def test_a_server_that_stops_does_not_wait_for_who_might_ask_more() -> None:
    over = threading.Event()

    def questions() -> Iterator[bytes]:
        yield _REQUEST(list_services="").SerializeToString()
        over.wait(60)

    with (
        serving(FakeGateway(settings=_ON)) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        answers = channel.stream_stream(_PATH.format("v1"))(questions(), timeout=60)
        next(answers)

        server.begin_stop(60)()

        with pytest.raises(grpc.RpcError) as caught:
            next(answers)
        over.set()
    assert grpc.StatusCode.UNAVAILABLE == caught.value.code()
