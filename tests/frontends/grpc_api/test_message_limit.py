"""The operator's limit for what a client may send at once, over each transport."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from tests.frontends.grpc_api.fake_gateway import FakeGateway, version_info
from tests.frontends.grpc_api.serving import GrpcServerThread, serving
from tests.support import raw_http2 as h2
from zmqtriton_protos import message

pytestmark = pytest.mark.usefixtures("each_transport")

_SERVICE = "/inference.GRPCInferenceService/"
INFER, STREAM = _SERVICE + "ModelInfer", _SERVICE + "ModelStreamInfer"
#: More than one frame, and more than what a transport looks at in one piece.
LIMIT = 300_000
RESOURCE_EXHAUSTED = b"\x0bgrpc-status\x018"


def inference_of(size: int) -> bytes:
    """An inference whose message has exactly so many bytes."""

    count = (size - 150) // 4
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [count]}
    built = message("inference.ModelInferRequest")(
        model_name="m", id="x", inputs=[tensor], raw_input_contents=[bytes(4 * count)]
    )
    built.id = "x" * (1 + size - built.ByteSize())
    assert size == built.ByteSize()
    return bytes(built.SerializeToString())


@pytest.fixture
def server() -> Iterator[GrpcServerThread]:
    settings = {"grpc_max_input_size": LIMIT}
    with serving(FakeGateway(version_info("m"), settings=settings)) as running:
        yield running


def ask(server: GrpcServerThread, data: bytes, compression: grpc.Compression | None = None) -> str:
    """The status of each way to infer, which must be the same, and then others are answered."""
    codes: list[str] = []
    named: list[bool] = []
    with grpc.insecure_channel(server.address) as channel:
        unary, stream = channel.unary_unary(INFER), channel.stream_stream(STREAM)
        for infer in (
            lambda one: unary(one, timeout=20, compression=compression),
            lambda one: next(iter(stream(iter([one]), timeout=20, compression=compression))),
        ):
            try:
                infer(data)
                codes.append("OK")
            except grpc.RpcError as error:
                codes.append(error.code().name)
                named.append(str(LIMIT) in error.details())
            assert infer(inference_of(1000))
    assert all(named)
    assert 1 == len(set(codes))
    return codes[0]


def test_a_message_may_have_as_many_bytes_as_the_option_says(server: GrpcServerThread) -> None:
    assert "OK" == ask(server, inference_of(LIMIT))


def test_one_byte_more_is_refused(server: GrpcServerThread) -> None:
    assert "RESOURCE_EXHAUSTED" == ask(server, inference_of(LIMIT + 1))


@pytest.mark.parametrize("algorithm", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_what_is_inflated_may_not_have_more_either(
    server: GrpcServerThread, algorithm: grpc.Compression
) -> None:
    assert "OK" == ask(server, inference_of(LIMIT), algorithm)
    assert "RESOURCE_EXHAUSTED" == ask(server, inference_of(LIMIT + 1), algorithm)


@pytest.mark.parametrize("path", [INFER, STREAM])
def test_more_is_refused_by_what_is_announced(server: GrpcServerThread, path: str) -> None:
    port = int(server.address.rpartition(":")[2])
    with h2.Connection(port) as connection:
        connection.send(h2.headers_frame(1, path), h2.data_frame(1, b"x", length=LIMIT + 1))

        assert RESOURCE_EXHAUSTED in connection.read_until(RESOURCE_EXHAUSTED)
