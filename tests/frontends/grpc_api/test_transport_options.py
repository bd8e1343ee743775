"""Options of gRPC itself: compression of answers, and how old a connection may become."""

from __future__ import annotations

import asyncio
import gzip
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import tritonclient.grpc as triton

from tests.frontends.fake_gateway import version_info
from tests.frontends.grpc_api.fake_gateway import INFER, STREAM, FakeGateway, infer_request, written
from tests.frontends.grpc_api.serving import GrpcServerThread, serving
from tests.support import raw_http2 as h2
from tests.support.certificates import Authority
from tests.support.waiting import eventually
from zmqtriton_protos import message

pytestmark = [pytest.mark.usefixtures("each_transport"), pytest.mark.slow]

_SERVICE = "inference.GRPCInferenceService"
#: Then a client hands over messages as they travelled.
_AS_SENT = [("grpc.per_message_decompression", 0)]
_COUNT = 1000
REQUEST = written(count=_COUNT)


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

    answer = as_sent(level, method, REQUEST, is_stream=is_stream)

    kind = "inference.ModelStreamInferResponse" if is_stream else "inference.ModelInferResponse"
    read = message(kind).FromString(unpack(answer))
    response = read.infer_response if is_stream else read
    assert [b"abcd" * _COUNT] == list(response.raw_output_contents)
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
        answer = channel.unary_unary(INFER)(REQUEST, compression=algorithm, timeout=20)

    response = message("inference.ModelInferResponse").FromString(answer)
    assert [b"abcd" * _COUNT] == list(response.raw_output_contents)


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
        ask = channel.unary_unary(INFER)

        def is_answered() -> bool:
            try:
                return bool(ask(REQUEST, timeout=20))
            except grpc.RpcError:
                return False  # on a slow machine the connection was too old before that

        eventually(is_answered, 60, "an answer")
        eventually(lambda: ready in seen and seen[-1] is not ready, 60, "the connection has ended")
        eventually(is_answered, 60, "another answer")


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
            streams = [channel.stream_stream(STREAM)(timeout=60) for _ in range(1000)]
            # Each stays open until the last has been answered.
            await asyncio.gather(*(stream.write(REQUEST) for stream in streams))
            answers = await asyncio.gather(*(stream.read() for stream in streams))
            for stream in streams:
                stream.cancel()
            return list(answers)

    with serving(FakeGateway(version_info("m"))) as server:
        answers = asyncio.run(converse(server.address))

    assert 1000 == len(answers)
    kind = message("inference.ModelStreamInferResponse")
    assert {""} == {kind.FromString(answer).error_message for answer in answers}


# ------------------------------------------------------------------- addresses


@pytest.mark.usefixtures("each_transport")
def test_all_addresses_of_ipv6_are_those_of_ipv4_too(tmp_path: Path) -> None:
    settings = {"runtime_directory": str(tmp_path), "grpc_address": "::"}

    with serving(FakeGateway(version_info("m"), settings=settings)) as server:
        port = server.address.rpartition(":")[2]
        for host in ("127.0.0.1", "[::1]"):
            with triton.InferenceServerClient(f"{host}:{port}") as client:
                assert client.is_server_live()


# ------------------------------------------------------------------- encryption


def test_only_clients_whom_the_authority_has_signed_are_answered(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    ours, theirs = authority.issue("server"), authority.issue("client")
    settings = {
        "grpc_use_ssl": True,
        "grpc_use_ssl_mutual": True,
        "grpc_server_cert": str(ours.cert),
        "grpc_server_key": str(ours.key),
        "grpc_root_cert": str(authority.cert),
    }
    root, signed = authority.cert.read_bytes(), [path.read_bytes() for path in reversed(theirs)]

    with serving(FakeGateway(version_info("m"), settings=settings)) as server:
        plain = grpc.insecure_channel(server.address)
        stranger, friend = (
            grpc.secure_channel(server.address, grpc.ssl_channel_credentials(root, *own))
            for own in ([], signed)
        )
        for channel in (plain, stranger):
            with channel, pytest.raises(grpc.RpcError, match=r"UNAVAILABLE|TLS"):
                channel.unary_unary(INFER)(REQUEST, timeout=20)
        with friend:
            assert friend.unary_unary(INFER)(REQUEST, timeout=20)


# ------------------------------------------------------------------- limits of messages


#: More than one frame, and more than what a transport looks at in one piece.
LIMIT = 300_000
RESOURCE_EXHAUSTED = b"\x0bgrpc-status\x018"


def inference_of(size: int) -> bytes:
    """An inference whose message has exactly so many bytes."""
    built = infer_request("m", "x", (size - 150) // 4)
    built.id = "x" * (1 + size - built.ByteSize())
    assert size == built.ByteSize()
    return bytes(built.SerializeToString())


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway(version_info("m"), settings={"grpc_max_input_size": LIMIT})


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


@pytest.mark.parametrize("algorithm", grpc.Compression)
def test_a_message_may_have_as_many_bytes_as_the_option_says_also_when_it_is_inflated(
    server: GrpcServerThread, algorithm: grpc.Compression
) -> None:
    assert "OK" == ask(server, inference_of(LIMIT), algorithm)
    assert "RESOURCE_EXHAUSTED" == ask(server, inference_of(LIMIT + 1), algorithm)


@pytest.mark.parametrize("path", [INFER, STREAM])
@pytest.mark.row("D27")
def test_more_is_refused_by_what_is_announced(server: GrpcServerThread, path: str) -> None:
    with server.connect() as connection:
        connection.send(h2.headers_frame(1, path), h2.data_frame(1, b"x", length=LIMIT + 1))

        assert RESOURCE_EXHAUSTED in connection.read_until(RESOURCE_EXHAUSTED)
