"""The counts of calls, by the status that their clients get."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from tests.frontends.grpc_api.fake_gateway import FakeGateway, version_info
from tests.frontends.grpc_api.serving import GrpcServerThread, serving
from tests.support import raw_http2 as h2
from tests.support.waiting import eventually
from zmqtriton_frontends.grpc_api.transport import call_counts
from zmqtriton_protos import message

pytestmark = pytest.mark.slow

SERVICE = "/inference.GRPCInferenceService"
INFER = f"{SERVICE}/ModelInfer"
LIVE, STREAM = f"{SERVICE}/ServerLive", f"{SERVICE}/ModelStreamInfer"


@pytest.fixture
def server() -> Iterator[GrpcServerThread]:
    with serving(FakeGateway(version_info("m"))) as running:
        yield running


def forget_now() -> None:
    call_counts.by_status[:] = [0] * len(call_counts.NAMES)


@pytest.fixture(autouse=True)
def no_counts() -> None:
    forget_now()


def request(model: str = "m") -> bytes:
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1]}
    body: Any = message("inference.ModelInferRequest")(
        model_name=model, inputs=[tensor], raw_input_contents=[bytes(4)]
    )
    return bytes(body.SerializeToString())


def status_of(call: Any) -> str:
    """Return the status with which a call of gRPC's own library has ended."""
    try:
        call()
    except grpc.RpcError as error:
        code: grpc.StatusCode = error.code()
        return code.name
    return "OK"


def is_counted(counts: dict[str, int]) -> None:
    eventually(lambda: call_counts.counts() == counts, 60, f"{counts}")


def test_each_call_is_counted_once_by_the_status_that_its_client_gets(
    server: GrpcServerThread,
) -> None:
    with grpc.insecure_channel(server.address) as channel:
        infer, stream = channel.unary_unary(INFER), channel.stream_stream(STREAM)
        unknown = channel.unary_unary(f"{SERVICE}/NoSuchMethod")
        statuses = [
            status_of(lambda: infer(request(), timeout=20)),
            status_of(lambda: list(stream(iter([request(), request()]), timeout=20))),
            status_of(lambda: infer(request("no_such_model"), timeout=20)),
            status_of(lambda: infer(b"\xff", timeout=20)),
            status_of(lambda: unknown(b"", timeout=20)),
        ]

    assert statuses[:2] == ["OK", "OK"]
    assert "OK" not in statuses[2:]
    is_counted({name: statuses.count(name) for name in statuses})


def test_calls_that_are_not_answered_are_counted_too(server: GrpcServerThread) -> None:
    server.run_function(lambda: setattr(server.gateway, "gate", asyncio.Event()))
    with grpc.insecure_channel(server.address) as channel:
        infer = channel.unary_unary(INFER)
        assert "DEADLINE_EXCEEDED" == status_of(lambda: infer(request(), timeout=0.2))
    # a client may end its call a moment before the server does
    eventually(lambda: sum(call_counts.counts().values()) == 1, 60)
    forget_now()

    # When clients leave, one of them with a stream
    with h2.Connection(server.port) as connection:
        connection.send(h2.headers_frame(1, INFER), h2.data_frame(1, request()))
        connection.send(h2.headers_frame(3, STREAM), h2.data_frame(3, request()))
        eventually(lambda: len(server.gateway.requests) >= 3, 60)
        connection.send(h2.reset_frame(1))
        is_counted({"CANCELLED": 1})

    is_counted({"CANCELLED": 2})


def test_a_client_that_leaves_an_answer_unread_does_not_make_it_two(
    server: GrpcServerThread,
) -> None:
    with h2.Connection(server.port, h2.PREFACE + h2.NO_WINDOW) as connection:
        connection.send(
            h2.headers_frame(1, INFER), h2.data_frame(1, request(), flags=h2.END_STREAM)
        )
        is_counted({"OK": 1})
        connection.send(h2.reset_frame(1))
        connection.send(h2.headers_frame(3, LIVE), h2.data_frame(3, b"", flags=h2.END_STREAM))
        eventually(lambda: call_counts.counts() != {"OK": 1}, 60)

    assert {"OK": 2} == call_counts.counts()
