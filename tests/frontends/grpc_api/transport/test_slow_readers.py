"""A reader of a gRPC stream that is slow and steady: what it reads lets its model go on."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Any

import pytest

from tests.frontends.grpc_api.fake_gateway import FakeGateway, version_info
from tests.frontends.grpc_api.serving import serving
from tests.support import raw_http2 as h2
from tests.support.certificates import Authority
from tests.support.raw_http import connect_narrow, read_some
from tests.support.streams import item
from tests.support.waiting import value_at_rest
from zmqtriton_protos import message

STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
#: More data than there will be, so that the connection itself is what is slow.
WIDE = h2.PREFACE + h2.settings_frame({4: 2**31 - 1})
WIDE += h2.frame(h2.WINDOW, 0, 0, (1 << 30).to_bytes(4, "big"))
SIZE = 4096
#: Far less than what the kernel would keep, and is rid of before it takes more.
STEP_BYTES = 512 << 10


def ask(request_id: str) -> bytes:
    """Return a stream with one request."""
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1]}
    request: Any = message("inference.ModelInferRequest")(
        model_name="d", id=request_id, inputs=[tensor], raw_input_contents=[bytes(4)]
    )
    return h2.headers_frame(1, STREAM) + h2.data_frame(1, request.SerializeToString())


def test_a_little_that_is_read_of_a_flood_lets_the_model_go_on() -> None:
    gateway = FakeGateway(version_info("d", decoupled=True))
    streams = gateway.fake_streams
    streams.put("slow", *(item(b"x" * SIZE) for _ in range(4000)))

    with serving(gateway) as server:
        port = int(server.address.rpartition(":")[2])
        with connect_narrow(port) as client:
            client.sendall(WIDE + ask("slow"))

            def consumed() -> int:
                return streams.consumed.get("slow", 0)

            for _ in range(3):
                before = value_at_rest(consumed)
                read_some(client, STEP_BYTES)

                assert before < value_at_rest(consumed)


def test_over_tls_a_little_that_is_not_read_is_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path)
    pair, context = authority.issue("server"), ssl.create_default_context(cafile=authority.cert)
    context.set_alpn_protocols(["h2"])
    settings: dict[str, Any] = {"grpc_use_ssl": True, "grpc_use_ssl_mutual": False}
    settings |= {"grpc_server_cert": str(pair.cert), "grpc_server_key": str(pair.key)}
    gateway = FakeGateway(version_info("d", decoupled=True), settings=settings)
    streams, count = gateway.fake_streams, 4000

    async def put_one_by_one() -> None:
        for _ in range(count):
            streams.put("slow", item(b"x" * SIZE))
            await asyncio.sleep(0)

    with serving(gateway) as server:
        client = context.wrap_socket(connect_narrow(server.port), server_hostname="127.0.0.1")
        with client:
            client.sendall(WIDE + ask("slow"))
            server.run_coroutine(put_one_by_one())
            assert value_at_rest(lambda: streams.consumed.get("slow", 0)) < count

            read_some(client, count * SIZE)

    assert count == streams.consumed["slow"]
    # what calls back from within what it calls ends in an error that the loop logs
    assert [] == [each.message for each in caplog.records if each.levelno >= logging.ERROR]
