"""Messages of inference as they are read, and the room for them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from tests.faults.attacks.target import message_frames
from tests.frontends.fake_gateway import version_info
from tests.frontends.grpc_api.fake_gateway import INFER, FakeCall, FakeGateway, NotedAnswers, Silent
from tests.frontends.grpc_api.serving import serving
from tests.support import raw_http2 as h2
from tests.support.scenarios import scenario
from tests.support.shares import share_of
from tests.support.waiting import eventually, loop_turns
from zmqtriton_floor.arena import INLINE_BYTES
from zmqtriton_floor.errors import InvalidArgument, ZmqTritonError
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
    split_raw,
)
from zmqtriton_frontends.grpc_api.inference.infer import ModelInfer, parse_request
from zmqtriton_frontends.grpc_api.inference.stream_infer import Streaming
from zmqtriton_frontends.inference.load_on_demand import OnDemandLoader
from zmqtriton_frontends.process.ledger import Book
from zmqtriton_protos import message

# ------------------------------------------------------------------------ request room
# Room in the ledger for requests that wait for their answers.


KIB, LIMIT = 1 << 10, 1 << 20


def written(model: str, *kib: int) -> bytes:
    """Return a request with tensors of these sizes."""
    request: Any = message("inference.ModelInferRequest")(model_name=model)
    for number, size in enumerate(kib):
        request.inputs.add(name=f"INPUT{number}", datatype="FP32", shape=[size * KIB // 4])
        request.raw_input_contents.append(bytes(size * KIB))
    return bytes(request.SerializeToString())


@pytest.mark.parametrize("model", ["m", "d"])
@scenario(asyncio.run)
async def test_requests_of_a_stream_have_room_until_they_are_answered(model: str) -> None:
    async def requests() -> AsyncIterator[Any]:
        for _ in range(30):
            yield written(model, 60)
        await asyncio.Event().wait()

    gateway, call, book = Silent(), FakeCall(), Book(LIMIT)
    call.requests = share_of(book)
    responses = Streaming(gateway).infer(requests(), call)
    answers = aiter(responses)
    try:
        await loop_turns()

        begun = len(gateway.replies)
        assert 10 < begun < LIMIT // (60 * KIB)
        assert begun * 60 * KIB <= book.held + 8 * KIB <= LIMIT

        for reply in gateway.replies:
            if reply is not None:
                reply.set_exception(ZmqTritonError("no"))
        gateway.may_end.set()
        before = begun if model == "m" else 0  # those of the other have no message
        texts = [await asyncio.wait_for(anext(answers), 20) for _ in range(before + 1)]
        assert b"Too many large requests" in bytes(texts[-1])
        await loop_turns()
        assert 0 == book.held
    finally:
        await responses.aclose()


@scenario(asyncio.run)
async def test_nothing_is_held_for_a_stream_that_is_closed() -> None:
    async def requests() -> AsyncIterator[Any]:
        yield written("m", 60)
        await asyncio.Event().wait()

    gateway, call, book = Silent(), FakeCall(), Book(LIMIT)
    call.requests = share_of(book)
    responses = Streaming(gateway).infer(requests(), call)
    await loop_turns()
    assert book.held >= 52 * KIB

    await responses.aclose()

    assert 0 == book.held


@scenario(asyncio.run)
async def test_what_lies_in_shared_memory_takes_no_room_of_requests() -> None:
    gateway, call = Silent(), FakeCall()
    answer: Any = None
    ModelInfer(gateway).begin(written("m", INLINE_BYTES // KIB + 1), call, answer)
    assert 0 == call.requests.held

    ModelInfer(gateway).begin(written("m", 40), call, answer)
    assert 40 * KIB <= call.requests.held <= 41 * KIB


@scenario(asyncio.run)
async def test_a_request_has_room_when_its_model_was_loaded_for_it() -> None:
    gateway, call, answer = Silent(), FakeCall(), NotedAnswers()

    async def load(verb: str, arguments: dict[str, Any]) -> None:
        gateway.catalogue.update(version_info("late"))

    gateway.catalogue.demand = OnDemandLoader(load, 60.0)
    inference = ModelInfer(gateway)
    pending = inference.begin(written("late", 40), call, answer)
    await loop_turns()
    assert 40 * KIB <= call.requests.held <= 41 * KIB
    assert 1 == len(gateway.replies)
    pending.cancel()

    gateway.catalogue.forget("late")
    call.requests = share_of(Book(16 * KIB))
    inference.begin(written("late", 40), call, answer)
    await loop_turns()
    [refusal] = answer.all
    assert isinstance(refusal, NoRequestRoomError)
    assert 8 == refusal.grpc_status  # RESOURCE_EXHAUSTED


def test_unary_requests_of_a_client_are_bounded_and_go_with_it() -> None:
    gateway = FakeGateway(version_info("m"), settings={"client_memory_byte_size": 8 * LIMIT})
    with serving(gateway) as server:
        release = server.hold()
        with h2.Connection(server.port) as client:
            data = written("m", 60)
            for number in range(1, 400, 2):
                begun = h2.headers_frame(number, INFER)
                client.send(begun, message_frames(number, data, is_last=True))

            client.send(h2.frame(h2.PING, 0, 0, b"the last"))
            client.read_until(b"the last")
            assert 2 * LIMIT < server.ledger.requests.held <= 8 * LIMIT
            assert 35 < len(gateway.requests) < 140

        eventually(lambda: server.ledger.requests.held == 0, within_s=20)
        release()


# --------------------------------------------------------------------- gradual parsing
# Requests that are read a part at a time come to what protobuf makes of them at once.


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
    return read_content(*parse_request(read(data, call)), True, ANY_MODEL).body


def expected(data: bytes) -> RequestBody:
    request = parse(REQUEST, data)
    return read_content(request, request.raw_input_contents, True, ANY_MODEL).body


@pytest.mark.parametrize("datatype", CONTENTS)
def test_typed_contents_become_a_tensors_bytes_in_turns(datatype: str) -> None:
    # a name that is a part by itself
    inputs = [tensor(datatype, "A" * 20_000), {"name": "B", "datatype": "INT32", "shape": [1]}]
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


@pytest.mark.slow
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


def test_contents_beside_raw_tensors_are_refused() -> None:
    data = REQUEST(inputs=[tensor("FP32")], raw_input_contents=[bytes(4)]).SerializeToString()

    with pytest.raises(InvalidArgument, match="must not be specified when using raw"):
        body_of(data)


def test_what_becomes_of_contents_has_room_first() -> None:
    call = FakeCall()
    call.requests = share_of(Book(COUNT))

    with pytest.raises(NoRequestRoomError):
        read(REQUEST(inputs=[tensor("FP64")]).SerializeToString(), call)

    assert 0 == call.requests.held


def test_raw_tensors_take_no_turns_however_large() -> None:
    raw = [bytes(4 << 20)]
    inputs = [{"name": "A", "datatype": "FP32", "shape": [1 << 20]}]
    data = REQUEST(inputs=inputs, raw_input_contents=raw).SerializeToString()

    assert raw == [bytes(one) for one in parse_request(data)[1]]


# ------------------------------------------------------------------------- raw tensors


requests = st.builds(
    lambda name, request_id, inputs, raw: REQUEST(
        model_name=name,
        id=request_id,
        inputs=[{"name": n, "datatype": "FP32", "shape": s} for n, s in inputs],
        raw_input_contents=raw,
    ),
    st.text(st.characters(codec="utf-8"), max_size=200),
    st.text(st.characters(codec="utf-8"), max_size=5),
    st.lists(
        st.tuples(
            st.text(st.characters(codec="utf-8"), max_size=5),
            st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3),
        ),
        max_size=3,
    ),
    st.lists(st.binary(max_size=400), max_size=5),
)


def joined(parts: tuple[bytes, list[memoryview]]) -> Any:
    rest, raw = parts
    request = REQUEST.FromString(rest)
    assert len(request.raw_input_contents) == 0
    request.raw_input_contents.extend(bytes(r) for r in raw)
    return request


@pytest.mark.slow
@given(requests)
def test_what_is_split_is_what_protobuf_reads(request_: Any) -> None:
    parts = split_raw(request_.SerializeToString())

    assert parts is not None
    assert joined(parts) == request_


@pytest.mark.slow
@given(st.binary(max_size=60), requests, st.integers(0, 3000))
def test_nothing_is_read_into_bytes_that_protobuf_refuses(
    noise: bytes, request_: Any, cut: int
) -> None:
    whole = request_.SerializeToString()
    data = whole[: cut % (len(whole) + 1)] + noise

    parts = split_raw(data)

    if parts is None:
        return
    try:
        expected = REQUEST.FromString(data)
    except DecodeError:
        with pytest.raises(DecodeError):
            REQUEST.FromString(parts[0])
    else:
        assert joined(parts) == expected
