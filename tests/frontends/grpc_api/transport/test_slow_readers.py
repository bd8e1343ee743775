"""A reader of a gRPC stream that is slow and steady: what it reads lets its model go on."""

from __future__ import annotations

from typing import Any

from tests.frontends.grpc_api.fake_gateway import FakeGateway, version_info
from tests.frontends.grpc_api.serving import serving
from tests.support import raw_http2 as h2
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


def test_a_little_that_is_read_of_a_flood_lets_the_model_go_on() -> None:
    gateway = FakeGateway(version_info("d", decoupled=True))
    streams = gateway.fake_streams
    streams.put("slow", *(item(b"x" * SIZE) for _ in range(4000)))
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1]}
    asked: Any = message("inference.ModelInferRequest")(
        model_name="d", id="slow", inputs=[tensor], raw_input_contents=[bytes(4)]
    )

    with serving(gateway) as server:
        port = int(server.address.rpartition(":")[2])
        with connect_narrow(port) as client:
            client.sendall(WIDE + h2.headers_frame(1, STREAM))
            client.sendall(h2.data_frame(1, asked.SerializeToString()))

            def consumed() -> int:
                return streams.consumed.get("slow", 0)

            for _ in range(3):
                before = value_at_rest(consumed)
                read_some(client, STEP_BYTES)

                assert before < value_at_rest(consumed)
