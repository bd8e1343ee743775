"""Options of gRPC itself: compression of answers, and how old a connection may become."""

from __future__ import annotations

import asyncio
import gzip
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
import tritonclient.grpc as triton

from tests.frontends.grpc_api.fake_gateway import FakeGateway, version_info
from tests.frontends.grpc_api.serving import serving
from tests.support.waiting import eventually
from zmqtriton_protos import message

pytestmark = pytest.mark.usefixtures("each_transport")

_SERVICE = "inference.GRPCInferenceService"
#: Then a client hands over messages as they travelled.
_AS_SENT = [("grpc.per_message_decompression", 0)]
_COUNT = 1000


def request(model: str = "m") -> bytes:
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [_COUNT]}
    built = message("inference.ModelInferRequest")(
        model_name=model, inputs=[tensor], raw_input_contents=[bytes(4 * _COUNT)]
    )
    data: bytes = built.SerializeToString()
    return data


def as_sent(level: str, method: str, data: bytes, *, is_stream: bool = False) -> bytes:
    """The first answer, as it was on the line, of a server with this level."""
    gateway = FakeGateway(
        version_info("m"), settings={"grpc_infer_response_compression_level": level}
    )
    with (
        serving(gateway) as server,
        grpc.insecure_channel(server.address, options=_AS_SENT) as channel,
    ):
        path = f"/{_SERVICE}/{method}"
        if is_stream:
            return next(iter(channel.stream_stream(path)(iter([data]), timeout=20)))
        return channel.unary_unary(path)(data, timeout=20)


@pytest.mark.row("D44")
@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize(
    ("level", "unpack"),
    [
        ("none", bytes),
        ("low", gzip.decompress),
        ("medium", zlib.decompress),
        ("high", zlib.decompress),
    ],
)
def test_answers_to_inferences_are_compressed_as_the_option_says(
    level: str, unpack: Callable[[bytes], bytes], is_stream: bool
) -> None:
    method = "ModelStreamInfer" if is_stream else "ModelInfer"

    answer = as_sent(level, method, request(), is_stream=is_stream)

    kind = "inference.ModelStreamInferResponse" if is_stream else "inference.ModelInferResponse"
    read = message(kind).FromString(unpack(answer))
    response = read.infer_response if is_stream else read
    assert [bytes(4 * _COUNT)] == list(response.raw_output_contents)
    assert (len(answer) < 4 * _COUNT) == (level != "none")


@pytest.mark.row("D44")
def test_other_answers_are_not_compressed() -> None:
    request = message("inference.ModelReadyRequest")(name="m").SerializeToString()

    answer = as_sent("high", "ModelReady", request)

    assert message("inference.ModelReadyResponse")(ready=True).SerializeToString() == answer


@pytest.mark.row("D44")
@pytest.mark.parametrize("algorithm", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_a_request_may_be_compressed_in_any_way(algorithm: grpc.Compression) -> None:
    with (
        serving(FakeGateway(version_info("m"))) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        ask = channel.unary_unary(f"/{_SERVICE}/ModelInfer")

        answer = ask(request(), compression=algorithm, timeout=20)

    response = message("inference.ModelInferResponse").FromString(answer)
    assert [bytes(4 * _COUNT)] == list(response.raw_output_contents)


@contextmanager
def connectivity_states(channel: Any) -> Iterator[list[grpc.ChannelConnectivity]]:
    """The states that a channel passes through, in their order, as they are reported."""
    seen: list[grpc.ChannelConnectivity] = []
    threads_before = set(threading.enumerate())
    channel.subscribe(seen.append, try_to_connect=True)
    polling = set(threading.enumerate()) - threads_before
    try:
        yield seen
    finally:
        # grpcio's polling thread raises if it meets a closed channel.
        channel.unsubscribe(seen.append)
        for thread in polling:
            thread.join()


@pytest.mark.row("D43", "--grpc-max-connection-age", "--grpc-max-connection-age-grace")
def test_a_connection_ends_at_its_age_and_its_client_connects_anew() -> None:
    ready = grpc.ChannelConnectivity.READY
    settings = {"grpc_max_connection_age": 300, "grpc_max_connection_age_grace": 300}
    with (
        serving(FakeGateway(version_info("m"), settings=settings)) as server,
        grpc.insecure_channel(server.address) as channel,
        connectivity_states(channel) as seen,
    ):
        ask = channel.unary_unary(f"/{_SERVICE}/ModelInfer")

        def is_answered() -> bool:
            try:
                return bool(ask(request(), timeout=20))
            except grpc.RpcError:
                return False  # on a slow machine the connection was too old before that

        eventually(is_answered, 20, "an answer")
        eventually(lambda: ready in seen and seen[-1] is not ready, 20, "the connection has ended")
        eventually(is_answered, 20, "another answer")


@pytest.mark.row("D43")
def test_a_client_with_tritonclients_keepalive_stays_connected() -> None:
    options = triton.KeepAliveOptions()
    with (
        serving(FakeGateway(version_info("m"))) as server,
        triton.InferenceServerClient(server.address, keepalive_options=options) as client,
    ):
        assert [True] * 3 == [client.is_server_live() for _ in range(3)]


@pytest.mark.row("D48")
def test_a_thousand_streams_are_answered_at_once() -> None:
    async def converse(address: str) -> list[bytes]:
        async with grpc.aio.insecure_channel(address) as channel:
            path = f"/{_SERVICE}/ModelStreamInfer"
            streams = [channel.stream_stream(path)(timeout=60) for _ in range(1000)]
            # Each stays open until the last has been answered.
            await asyncio.gather(*(stream.write(request()) for stream in streams))
            answers = await asyncio.gather(*(stream.read() for stream in streams))
            for stream in streams:
                stream.cancel()
            return list(answers)

    with serving(FakeGateway(version_info("m"))) as server:
        answers = asyncio.run(converse(server.address))

    assert 1000 == len(answers)
    kind = message("inference.ModelStreamInferResponse")
    assert {""} == {kind.FromString(answer).error_message for answer in answers}
