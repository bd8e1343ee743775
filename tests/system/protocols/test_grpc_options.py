"""Options of gRPC reach its processes: what a client can see of them."""

from __future__ import annotations

import grpc
import numpy as np
import pytest

from tests.support.clients import infer_message
from tests.support.server import Server
from zmqtriton_protos import message

_COUNT = 1000


pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        models=["identity_fp32"],
        options=(
            "--grpc-infer-response-compression-level=low",
            "--grpc-max-connection-age=600000",
            "--grpc-max-input-size=100000",
        ),
        frontends=("grpc",),
    ),
]


@pytest.mark.row("D14")
def test_the_services_of_a_server_can_be_listed(server: Server) -> None:
    request = message("grpc.reflection.v1.ServerReflectionRequest")(list_services="")
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
        answers = channel.stream_stream(path)(iter([request.SerializeToString()]), timeout=30)
        answer = message("grpc.reflection.v1.ServerReflectionResponse").FromString(next(answers))

    names = [service.name for service in answer.list_services_response.service]
    assert "inference.GRPCInferenceService" in names


@pytest.mark.row("D44", "--grpc-infer-response-compression-level")
def test_the_answers_of_a_server_are_compressed(server: Server) -> None:
    request = infer_message("identity_fp32", INPUT0=np.zeros(_COUNT, np.float32))
    # The client hands over what travelled.
    options = [("grpc.per_message_decompression", 0)]
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}", options=options) as channel:
        infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")

        answer = infer(request, timeout=30)

    assert answer.startswith(b"\x1f\x8b")
    assert len(answer) < 4 * _COUNT
