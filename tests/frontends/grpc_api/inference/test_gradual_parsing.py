"""Requests that are read a part at a time come to what protobuf makes of them at once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.frontends.grpc_api.fake_gateway import FakeCall
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.wire import RequestBody
from zmqtriton_frontends.grpc_api.call import NoRequestRoomError
from zmqtriton_frontends.grpc_api.inference import gradual_parsing
from zmqtriton_frontends.grpc_api.inference.convert import parse, read_content
from zmqtriton_frontends.grpc_api.inference.gradual_parsing import (
    LARGE_BYTES,
    MAX_FIELDS,
    MAX_GROUP_FIELDS,
    LargeMessage,
    ParsedRequest,
)
from zmqtriton_frontends.grpc_api.inference.infer_request import parse_request
from zmqtriton_frontends.process.ledger import Book, Share
from zmqtriton_protos import message

REQUEST = message("inference.ModelInferRequest")
ANY_MODEL: Any = None
COUNT = 36_000
CONTENTS: dict[str, tuple[str, Any]] = {
    "BOOL": ("bool_contents", [True, False] * COUNT),
    "INT8": ("int_contents", [-1, 100] * COUNT),
    "INT32": ("int_contents", list(range(-COUNT // 2, COUNT // 2))),
    "INT64": ("int64_contents", [-(2**63), 2**63 - 1, 0, 5] * (COUNT // 4)),
    "UINT16": ("uint_contents", list(range(60_000))),
    "UINT64": ("uint64_contents", [2**64 - 1, 1] * (COUNT // 2)),
    "FP32": ("fp32_contents", [0.5, -1.0] * (COUNT // 2)),
    "FP64": ("fp64_contents", [0.1] * COUNT),
    "BYTES": ("bytes_contents", [b"", b"abc", b"x" * 300] * (COUNT // 30)),
}


def tensor(datatype: str, name: str = "A") -> dict[str, Any]:
    field, values = CONTENTS[datatype]
    return {
        "name": name,
        "datatype": datatype,
        "shape": [len(values)],
        "contents": {field: values},
    }


def read(data: bytes, call: FakeCall | None = None) -> ParsedRequest:
    """Read a request that takes long."""
    with pytest.raises(LargeMessage) as caught:
        parse_request(data)
    return asyncio.run(caught.value.read(call or FakeCall()))


def body_of(data: bytes, call: FakeCall | None = None) -> RequestBody:
    parsed = read(data, call)
    return read_content(*parse_request(parsed), True, ANY_MODEL).body


def expected(data: bytes) -> RequestBody:
    request = parse(REQUEST, data)
    return read_content(request, request.raw_input_contents, True, ANY_MODEL).body


@pytest.mark.parametrize("datatype", CONTENTS)
def test_typed_contents_become_a_tensors_bytes_in_turns(datatype: str) -> None:
    inputs = [tensor(datatype), {"name": "B", "datatype": "INT32", "shape": [1]}]
    inputs[1]["contents"] = {"int_contents": [7]}
    data = REQUEST(model_name="m", id="x", inputs=inputs).SerializeToString()
    call = FakeCall()

    body = body_of(data, call)

    assert expected(data) == body
    assert len(body.inputs[0].data) == call.requests.held


def test_others_have_turns_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradual_parsing, "_TURN_S", 0.0)
    data = REQUEST(inputs=[tensor("INT64")] * 4).SerializeToString()
    call = FakeCall()

    read(data, call)

    assert call.turns > 3


def unpacked(number: int, count: int) -> bytes:
    """Return contents in the form of clients of proto2: each element is a field."""
    return bytes((number << 3, 5)) * count


def within(*tags: int, data: bytes) -> bytes:
    """Return a field in a field, from the innermost on."""
    for tag in tags:
        length, left = bytearray(), len(data)
        while left >= 128:
            length.append(left & 127 | 128)
            left >>= 7
        data = bytes((tag << 3 | 2, *length, left)) + data
    return data


def test_contents_in_any_form_and_order_are_read() -> None:
    name = within(1, data=b"A") + within(2, data=b"INT32")
    first, second = (within(5, data=unpacked(2, count)) for count in (34_000, 3))
    data = within(5, data=second + name + first) + within(1, data=b"m")

    assert expected(data) == body_of(data)


@pytest.mark.parametrize("seed", range(2))
def test_any_request_is_read_as_by_protobuf_or_refused_as_by_it(seed: int) -> None:
    chance = random.Random(seed)
    many = {f"p{n}": {"string_param": "v" * 50} for n in range(2000)}
    inputs = [tensor(chance.choice(list(CONTENTS)), f"I{n}") for n in range(3)]
    request = REQUEST(inputs=inputs, parameters=many, id="y")
    data = bytearray(request.SerializeToString(deterministic=True))
    for _ in range(25):
        at = chance.randrange(len(data))
        before, data[at] = data[at], chance.randrange(256)
        right, ours = (outcome(read, bytes(data)) for read in (expected, body_of))
        # what is refused for two reasons may be refused for either
        assert right == ours or (isinstance(right, str) and isinstance(ours, str))
        data[at] = before


GROUP, END = 7 << 3 | 3, 7 << 3 | 4


@pytest.mark.parametrize(
    "group",
    [
        bytes((GROUP, END)),
        bytes((GROUP, 8, 1)) + within(2, data=b"x") + bytes((9 << 3 | 3, 9 << 3 | 4, END)),
        bytes((GROUP,)) * 90 + bytes((END,)) * 90,
        bytes((GROUP,)) * 200 + bytes((END,)) * 200,
        bytes((GROUP, 8, 1)),
        bytes((GROUP, 9 << 3 | 4)),
        bytes((END,)),
        bytes((GROUP, GROUP, END)),
        bytes((GROUP, 8, 1, 9 << 3 | 1, END)),
    ],
    ids="empty fields deep deeper open crossed end inner cut".split(),
)
@pytest.mark.parametrize("tags", [(), (5,), (5, 5), (5, 4)])
def test_groups_are_passed_over_or_refused_as_by_protobuf(
    group: bytes, tags: tuple[int, ...]
) -> None:
    name = within(1, data=b"A") + within(2, data=b"INT32") if tags == (5,) else b""
    contents = within(5, 5, data=unpacked(2, 34_000)) if not tags else b""
    large = within(3, data=b"x" * LARGE_BYTES)
    data = large + within(*reversed(tags), data=name + group) + contents

    assert outcome(expected, data) == outcome(body_of, data)


def outcome(read: Callable[[bytes], RequestBody], data: bytes) -> RequestBody | str:
    try:
        return read(data)
    except InvalidArgument as error:
        return str(error)


@pytest.mark.parametrize(
    "data",
    [
        within(5, data=b"") * MAX_FIELDS + within(6, data=b""),
        within(5, data=within(4, data=b"") * (MAX_FIELDS + 1)),
        within(4, data=within(1, data=b"a")) * (MAX_FIELDS + 1),
        within(3, data=b"x" * LARGE_BYTES) + bytes((GROUP, *([8, 1] * MAX_GROUP_FIELDS), END)),
    ],
    ids=["inputs", "parameters of an input", "parameters", "a group"],
)
def test_very_many_fields_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidArgument, match="at most"):
        read(data)


@pytest.mark.parametrize("tail", [b"\x2a\xff\xff\xff\x7f", b"\x2b", b"\x80" * 12])
def test_what_is_no_message_is_refused(tail: bytes) -> None:
    with pytest.raises(InvalidArgument, match="failed to parse the request"):
        read(within(3, data=b"x" * LARGE_BYTES) + tail)


def test_two_kinds_of_contents_are_refused() -> None:
    both = {"fp32_contents": [1.0] * COUNT, "int_contents": [1] * COUNT}
    data = REQUEST(inputs=[{"name": "A", "datatype": "FP32", "contents": both}]).SerializeToString()

    with pytest.raises(InvalidArgument):
        read(data)


def test_contents_beside_raw_tensors_are_refused() -> None:
    data = REQUEST(inputs=[tensor("FP32")], raw_input_contents=[bytes(4)]).SerializeToString()

    with pytest.raises(InvalidArgument, match="must not be specified when using raw"):
        body_of(data)


def test_what_becomes_of_contents_has_room_first() -> None:
    call = FakeCall()
    call.requests = Share(Book(COUNT))

    with pytest.raises(NoRequestRoomError):
        read(REQUEST(inputs=[tensor("FP64")]).SerializeToString(), call)

    assert 0 == call.requests.held


def test_raw_tensors_take_no_turns_however_large() -> None:
    raw = [bytes(4 << 20)]
    inputs = [{"name": "A", "datatype": "FP32", "shape": [1 << 20]}]
    data = REQUEST(inputs=inputs, raw_input_contents=raw).SerializeToString()

    assert raw == [bytes(one) for one in parse_request(data)[1]]
