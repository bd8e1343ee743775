"""The two ways that a test of the handlers may ask: without a line, and over the real server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import grpc
import pytest

from tests.frontends.fake_gateway import version_info
from tests.frontends.grpc_api import serving as serving_with
from tests.frontends.grpc_api.fake_gateway import FakeGateway, InMemoryTransport
from tests.frontends.grpc_api.serving import GrpcServerThread, serving
from zmqtriton_floor import errors
from zmqtriton_protos import SERVICES

_SERVICE = "inference.GRPCInferenceService"
_ERRORS = {
    kind.grpc_status: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.ZmqTritonError)
}


class Transport(Protocol):
    def call_unary(self, method: str, request: Any) -> Any:
        """The response to a unary RPC as a message; what the handler raises is raised."""


class GrpcTransport:
    """A server and a client for one question: slower, and nothing between them is left out."""

    def __init__(self, gateway: FakeGateway) -> None:
        self._gateway = gateway

    def call_unary(self, method: str, request: Any) -> Any:
        kinds = {rpc.name: rpc.response for rpc in SERVICES[_SERVICE]}
        with serving(self._gateway) as server, grpc.insecure_channel(server.address) as channel:
            ask = channel.unary_unary(f"/{_SERVICE}/{method}")
            try:
                return kinds[method].FromString(ask(request.SerializeToString(), timeout=20))
            except grpc.RpcError as error:
                raise _ERRORS[error.code().value[0]](error.details()) from None


@pytest.fixture
def gateway() -> FakeGateway:
    """The gateway behind the server, which a file replaces where it needs more."""
    return FakeGateway(version_info("m"))


@pytest.fixture
def server(gateway: FakeGateway) -> Iterator[GrpcServerThread]:
    with serving(gateway) as running:
        yield running


@pytest.fixture(params=serving_with.SERVERS)
def each_transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs a test once over each transport; its name."""
    name: str = request.param
    monkeypatch.setattr(serving_with, "chosen", name)
    return name


@pytest.fixture(params=[InMemoryTransport, GrpcTransport], ids=["in_memory", "over_grpc"])
def transport(request: pytest.FixtureRequest) -> Callable[[FakeGateway], Transport]:
    return request.param
