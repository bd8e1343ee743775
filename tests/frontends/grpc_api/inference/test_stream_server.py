"""Streams of requests over a real connection; what stands behind them is the test's."""

from __future__ import annotations

import queue
from typing import Any

import grpc
import pytest

from tests.frontends.fake_gateway import version_info
from tests.frontends.grpc_api.fake_gateway import STREAM, FakeGateway, written
from tests.frontends.grpc_api.serving import GrpcServerThread
from tests.support.streams import failure, final, item
from tests.support.waiting import eventually
from zmqtriton_floor.errors import NotFound
from zmqtriton_protos import message

pytestmark = pytest.mark.usefixtures("each_transport")

RESPONSE = message("inference.ModelStreamInferResponse")


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway(version_info("m"), version_info("d", decoupled=True))


class Stream:
    """A client's side of one."""

    def __init__(
        self, server: GrpcServerThread, metadata: tuple[tuple[str, str], ...] = ()
    ) -> None:
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._channel = grpc.insecure_channel(server.address)
        method = self._channel.stream_stream(STREAM)
        self.call = method(iter(self._requests.get, None), metadata=metadata, timeout=20)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        self.half_close()
        self._channel.close()

    def send(self, model: str, request_id: str) -> None:
        self._requests.put(written(model, request_id))

    def half_close(self) -> None:
        self._requests.put(None)

    def get(self) -> Any:
        return RESPONSE.FromString(next(self.call))


@pytest.mark.row("D05", "D32")
def test_requests_to_several_models_share_a_stream_that_ends_in_order(
    server: GrpcServerThread,
) -> None:
    server.run_function(lambda: server.gateway.fake_streams.put("b", item(b"x"), final()))

    with Stream(server) as stream:
        stream.send("m", "a")
        stream.send("d", "b")
        ids = {stream.get().infer_response.id for _ in range(2)}
        stream.half_close()

        assert ids == {"a", "b"}
        assert list(stream.call) == []
        assert stream.call.code() == grpc.StatusCode.OK


@pytest.mark.row("D36")
@pytest.mark.parametrize("way", ["cancels", "goes away"])
def test_a_client_that_cancels_or_goes_away_has_its_requests_cancelled(
    server: GrpcServerThread, way: str
) -> None:
    server.run_function(lambda: server.gateway.fake_streams.put("b", item(b"x")))

    with Stream(server) as stream:
        stream.send("d", "b")
        stream.get()
        {"cancels": stream.call.cancel, "goes away": stream.leave}[way]()

        eventually(
            lambda: server.run_function(lambda: server.gateway.fake_streams.cancelled == ["b"]), 30
        )


@pytest.mark.row("D35")
def test_an_error_has_its_status_where_the_client_wants_that(server: GrpcServerThread) -> None:
    server.run_function(lambda: server.gateway.fake_streams.put("b", failure(NotFound("lost"))))

    with Stream(server, metadata=(("triton_grpc_error", "true"),)) as stream:
        stream.send("d", "b")
        with pytest.raises(grpc.RpcError) as caught:
            stream.get()

    assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.NOT_FOUND, "lost")


@pytest.mark.slow
def test_a_server_that_stops_finishes_what_a_stream_has_and_then_ends_it(
    server: GrpcServerThread,
) -> None:
    server.run_function(lambda: server.gateway.fake_streams.put("b", item(b"x")))
    with Stream(server) as stream:
        stream.send("d", "b")
        stream.get()

        stopped = server.begin_stop(within_s=10)
        server.run_function(lambda: server.gateway.fake_streams.put("b", item(b"y", is_final=True)))

        assert stream.get().infer_response.raw_output_contents[0][4:] == b"y"
        with pytest.raises(grpc.RpcError) as caught:
            stream.get()
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        stopped()
