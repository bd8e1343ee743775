"""Messages whose model is read without decoding them."""

from __future__ import annotations

import pytest
from tritonclient.grpc import service_pb2

from zmqtriton_extras.fleet.serve.ingress import STREAM, UNARY, Message, add_servicer, model_of


@pytest.mark.parametrize("name", ["m", "résumé", "x" * 300])
def test_the_model_is_read_from_the_bytes(name: str) -> None:
    infer = service_pb2.ModelInferRequest(model_name=name, model_version="1", id="7")

    assert name == model_of(infer.SerializeToString())
    assert name == model_of(service_pb2.ModelReadyRequest(name=name).SerializeToString())


def test_messages_without_a_model_have_none() -> None:
    assert model_of(b"") == ""
    assert model_of(service_pb2.RepositoryIndexRequest(ready=True).SerializeToString()) == ""
    assert model_of(b"\x0a\xff\xff\xff\xff\xff\xff") == ""


def test_a_response_is_its_own_bytes() -> None:
    assert Message(b"abc").SerializeToString() == b"abc"


def test_the_methods_are_those_of_the_service() -> None:
    methods = {
        m.name for m in service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods
    }
    added = []

    class Server:
        def add_generic_rpc_handlers(self, handlers: tuple) -> None:
            added.extend(handlers[0]._method_handlers)

    class Servicer:
        def __getattr__(self, name: str) -> None: ...

    add_servicer(Servicer(), Server())

    assert {*UNARY, STREAM} <= methods
    assert {f"/inference.GRPCInferenceService/{name}" for name in (*UNARY, STREAM)} == set(added)
