"""Bodies that differ from earlier ones in the data of tensors alone, and others like them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.frontends.fake_gateway import version_info
from tests.frontends.grpc_api.fake_gateway import (
    FakeCall,
    FakeGateway,
    InMemoryTransport,
    infer_request,
)
from tests.frontends.http_api.in_process_server import HttpHarness, run_scenario
from tests.support.raw_http import raw_request
from tests.support.scenarios import scenario
from zmqtriton_floor.errors import InvalidArgument, Unsupported
from zmqtriton_floor.wire import RequestBody, Tensor
from zmqtriton_frontends.grpc_api.inference.infer import Messages
from zmqtriton_frontends.inference.layouts import Layouts

INFER = "/v2/models/identity/infer"
PLACE = {"datatype": "FP32", "parameters": {"binary_data_size": 8}}
HEAD = json.dumps(
    {
        "inputs": [{"name": "INPUT0", "shape": [2], **PLACE}],
        "parameters": {"binary_data_output": True},
    }
).encode()


def binary(data: bytes, head: bytes = HEAD, **headers: str) -> bytes:
    length = str(len(HEAD))
    return raw_request(
        "POST", INFER, head + data, Inference_Header_Content_Length=length, **headers
    )


@scenario(run_scenario, http_header_forward_pattern="x-my-")
async def test_requests_with_one_layout_have_data_and_headers_of_their_own(
    house: HttpHarness, /
) -> None:
    datas = [b"abcdefgh", b"ijklmnop", b"qrstuvwx"]
    reader, writer = await house.connections.connect()
    for number, data in enumerate(datas):
        writer.write(binary(data, X_My_Key="7") if number == 1 else binary(data))
        assert data in await reader.readuntil(data)

    layouts = house.gateway.catalogue.find("identity").layouts
    (layout,) = layouts.values()
    assert layout is not None
    requests = house.gateway.requests
    assert datas == [request.body.inputs[0].data for request in requests]
    assert [{}, {"X-My-Key": "7"}, {}] == [request.body.parameters for request in requests]


@pytest.mark.parametrize(
    "other",
    [
        binary(b"abcdefgh", HEAD.replace(b"INPUT0", b"INPUT9")),
        binary(b"abcdefgh", HEAD.replace(b"[2]", b"[3]")),
        binary(b"abcdefgh").replace(b"Content-Length: %d" % len(HEAD), b"Content-Length: 9", 1),
    ],
    ids=["a name", "a shape", "a length of the JSON"],
)
@scenario(run_scenario)
async def test_a_request_that_differs_in_more_is_read_anew(
    house: HttpHarness, /, other: bytes
) -> None:
    reader, writer = await house.connections.connect()
    for number, status in enumerate((b"200", b"200", b"400")):
        writer.write(other if number == 2 else binary(b"abcdefgh"))
        assert status == (await reader.readuntil(b"\r\n\r\n"))[9:12]
        await reader.read(1 << 16)


def field(number: int, data: bytes) -> bytes:
    return bytes((number << 3 | 2, len(data))) + data


INPUT = infer_request("m").inputs[0]
START, RAW = field(1, b"m") + field(5, INPUT.SerializeToString()), field(7, b"DATA")


@pytest.mark.parametrize(
    "form",
    [
        START + RAW,
        RAW + START,
        field(1, b"m") + RAW + field(5, INPUT.SerializeToString()),
        START + RAW + field(15, b":abcd"),
        field(7, b"same") + START + field(15, RAW),
        field(3, b"7") + START + RAW,
        START + bytes((7 << 3 | 2, 0x84, 0)) + b"DATA",
    ],
    ids=["usual", "first", "between", "not last", "in another field", "with an id", "a long size"],
)
def test_a_message_is_read_as_protobuf_reads_it_whatever_was_read_before(form: bytes) -> None:
    model: Any = FakeGateway(version_info("m")).catalogue.find("m")
    reader = Messages()

    def body(messages: Messages, data: bytes) -> Any:
        ask, _ = messages.ask(data, FakeCall())
        return (ask.content or ask.read(model)).body

    for data in (b"abcd", b"efgh", b"ijkl"):
        message = form.replace(b"DATA", data)
        assert body(Messages(), message) == body(reader, message)


@pytest.mark.parametrize(
    ("fields", "error"),
    [({"datatype": "INT32"}, InvalidArgument), ({"decoupled": True}, Unsupported)],
)
def test_the_next_version_checks_a_layout_of_the_one_before(
    fields: Any, error: type[Exception]
) -> None:
    gateway: Any = FakeGateway(version_info("m"))
    transport, request = InMemoryTransport(gateway), infer_request("m", "")
    for _ in range(2):
        transport.call_unary("ModelInfer", request)

    gateway.catalogue.update(version_info("m", **fields))

    with pytest.raises(error):
        transport.call_unary("ModelInfer", request)


def test_a_place_keeps_few_layouts() -> None:
    body, layouts = RequestBody("", {}, [], [Tensor("INPUT0", 11, [1], b"abcd")]), Layouts()
    for size in range(2000):
        assert [False, True] == [layouts.is_common(size, body) for _ in range(2)]
        layouts.learn(size, size + 4, [bytes(size)], body, ())

    assert 0 < len(layouts) <= 64
