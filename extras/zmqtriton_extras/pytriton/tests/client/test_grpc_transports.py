"""Refusals of gRPC before anything is sent, and a server that is not there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.support.server import free_ports
from zmqtriton_extras.pytriton.client.exceptions import PyTritonClientValueError
from zmqtriton_extras.pytriton.client.wire.calls import ServerError, TritonUrl
from zmqtriton_extras.pytriton.client.wire.grpc_transports import (
    AsyncGrpcTransport,
    GrpcCalls,
    GrpcTransport,
)

Ask = Callable[[dict[str, str]], object]


def _nowhere() -> TritonUrl:
    return TritonUrl("grpc", "127.0.0.1", free_ports(1)[0])


def _ask_from_a_thread(headers: dict[str, str]) -> object:
    transport = GrpcTransport(_nowhere())
    try:
        return transport.exchange(GrpcCalls().server_live().request, headers, 10.0)
    finally:
        transport.close()


def _ask_from_a_loop(headers: dict[str, str]) -> object:
    async def ask() -> object:
        transport = AsyncGrpcTransport(_nowhere())
        try:
            return await transport.exchange(GrpcCalls().server_live().request, headers, 10.0)
        finally:
            await transport.close()

    return asyncio.run(ask())


@pytest.fixture(params=[_ask_from_a_thread, _ask_from_a_loop], ids=["thread", "loop"])
def ask(request: pytest.FixtureRequest) -> Ask:
    return request.param


@pytest.mark.parametrize("headers", [{"x": "a\nb"}, {"x": "é"}, {"ü": "a"}])
def test_headers_that_grpc_cannot_carry(ask: Ask, headers: dict[str, str]) -> None:
    with pytest.raises(PyTritonClientValueError, match="must be printable ASCII"):
        ask(headers)


def test_nobody_listens(ask: Ask) -> None:
    with pytest.raises(ServerError, match=r"[Cc]onnect"):
        ask({})
