"""The addresses on which gRPC listens."""

from __future__ import annotations

from pathlib import Path

import pytest
import tritonclient.grpc as triton

from tests.frontends.grpc_api.fake_gateway import FakeGateway, version_info
from tests.frontends.grpc_api.serving import serving


@pytest.mark.usefixtures("each_transport")
def test_all_addresses_of_ipv6_are_those_of_ipv4_too(tmp_path: Path) -> None:
    settings = {"runtime_directory": str(tmp_path), "grpc_address": "::"}

    with serving(FakeGateway(version_info("m"), settings=settings)) as server:
        port = server.address.rpartition(":")[2]
        for host in ("127.0.0.1", "[::1]"):
            with triton.InferenceServerClient(f"{host}:{port}") as client:
                assert client.is_server_live()
