"""Responses: how they are written and sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.scenarios import scenario
from tests.support.shares import share_of
from tests.support.waiting import loop_turns
from zmqtriton_floor.datatypes import DATATYPES
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.wire import ResponseBody, Tensor
from zmqtriton_frontends.grpc_api.call import NoRoomError
from zmqtriton_frontends.grpc_api.inference import response as module
from zmqtriton_frontends.grpc_api.inference.outbox import StreamOutbox
from zmqtriton_frontends.grpc_api.inference.response import StreamEncoder, encode_in_pieces, varint
from zmqtriton_frontends.process import ledger
from zmqtriton_frontends.process.ledger import Book
from zmqtriton_protos import message

# ---------------------------------------------------------------------------- response


RESPONSE = message("inference.ModelInferResponse")


STREAM_RESPONSE = message("inference.ModelStreamInferResponse")


NAMES = {d.number: d.name for d in DATATYPES}


texts = st.text(st.characters(codec="utf-8"), max_size=200)


tensors = st.builds(
    Tensor,
    texts,
    st.sampled_from([d.number for d in DATATYPES]),
    st.lists(st.integers(0, 2**63 - 1), max_size=6),
    st.binary(max_size=300),
)


parameters = st.dictionaries(
    texts,
    st.booleans() | st.integers(-(2**63), 2**64 - 1) | texts | st.floats(allow_nan=False),
    max_size=4,
)


def encode_response(model: str, version: int, request_id: str, response: ResponseBody) -> bytes:
    return b"".join(encode_in_pieces(model, version, request_id, response)[0])


def value_of(parameter: Any) -> Any:
    return getattr(parameter, parameter.WhichOneof("parameter_choice"))


@pytest.mark.slow
@pytest.mark.row("D22")
@given(texts, st.integers(1, 2**40), texts, parameters, st.lists(tensors, max_size=4))
def test_the_bytes_are_what_protobuf_reads_as_the_response(
    model: str, version: int, request_id: str, parameters: dict[str, Any], outputs: list[Tensor]
) -> None:
    data = encode_response(model, version, request_id, ResponseBody(parameters, outputs))

    read = RESPONSE.FromString(data)
    assert (read.model_name, read.model_version, read.id) == (model, str(version), request_id)
    assert {key: value_of(read.parameters[key]) for key in read.parameters} == parameters
    assert [
        (o.name, o.datatype, list(o.shape), raw)
        for o, raw in zip(read.outputs, read.raw_output_contents, strict=True)
    ] == [(t.name, NAMES[t.datatype], t.shape, t.data) for t in outputs]
    assert not any(o.HasField("contents") for o in read.outputs)


def test_a_response_without_parameters_is_byte_for_byte_protobufs_own() -> None:
    body = ResponseBody({}, [Tensor("O", 11, [1, 300], b"abcd"), Tensor("P", 13, [0], b"")])

    data = encode_response("m", 3, "id", body)

    expected = RESPONSE(
        model_name="m",
        model_version="3",
        id="id",
        outputs=[
            {"name": "O", "datatype": "FP32", "shape": [1, 300]},
            {"name": "P", "datatype": "BYTES", "shape": [0]},
        ],
        raw_output_contents=[b"abcd", b""],
    )
    assert data == expected.SerializeToString()


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (True, "bool_param"),
        (1, "int64_param"),
        (2**63, "uint64_param"),
        (1.0, "double_param"),
        ("1", "string_param"),
    ],
)
def test_a_parameter_goes_into_the_field_of_its_type(value: Any, field: str) -> None:
    read = RESPONSE.FromString(encode_response("m", 1, "", ResponseBody({"k": value}, [])))

    assert read.parameters["k"].WhichOneof("parameter_choice") == field


@pytest.mark.row("D27")
def test_a_response_larger_than_grpc_allows_is_an_error_that_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_MESSAGE_BYTES", 100)
    monkeypatch.setattr(module, "_MAX_BYTES", 84)
    body = ResponseBody({}, [Tensor("O", 2, [100], bytes(100))])

    with pytest.raises(InvalidArgument) as caught:
        encode_response("m", 1, "", body)

    size = RESPONSE(
        model_name="m",
        model_version="1",
        outputs=[{"name": "O", "datatype": "UINT8", "shape": [100]}],
        raw_output_contents=[bytes(100)],
    ).ByteSize()
    assert caught.value.text == (
        f"Response has byte size {size} which exceeds gRPC's byte size limit 100."
    )


@pytest.mark.row("D27")
def test_the_limit_is_that_of_triton() -> None:
    assert module.MAX_MESSAGE_BYTES == 2147483647


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, b"\0"),
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (300, b"\xac\x02"),
        (2**31, b"\x80" * 4 + b"\x08"),
    ],
)
def test_an_integer_takes_seven_bits_a_byte(value: int, expected: bytes) -> None:
    assert varint(value) == expected


@pytest.mark.slow
@given(texts, texts, parameters, st.lists(tensors, max_size=4), st.booleans())
def test_a_response_of_a_stream_is_the_same_in_a_wrapper_and_says_whether_it_is_final(
    model: str, request_id: str, own: dict[str, Any], outputs: list[Tensor], is_final: bool
) -> None:
    body = ResponseBody(own, outputs)

    data = StreamEncoder(request_id, "m" + model, 1).response(body, is_final=is_final)

    read = STREAM_RESPONSE.FromString(data)
    expected = RESPONSE.FromString(encode_response("m" + model, 1, request_id, body))
    expected.parameters["triton_final_response"].bool_param = is_final
    assert read.error_message == ""
    assert read.infer_response == expected


@pytest.mark.slow
@given(texts, texts, st.booleans())
def test_an_error_of_a_stream_names_its_request(text: str, request_id: str, is_final: bool) -> None:
    read = STREAM_RESPONSE.FromString(StreamEncoder(request_id).error(text, is_final=is_final))

    expected = RESPONSE(id=request_id)
    expected.parameters["triton_final_response"].bool_param = is_final
    assert read == STREAM_RESPONSE(error_message=text, infer_response=expected)


# ------------------------------------------------------------------------------ outbox


SIZE = 64


LIMIT = 64 << 20


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 10))


def play(test: Callable[[StreamOutbox], Awaitable[None]]) -> None:
    async def with_outbox() -> None:
        await test(StreamOutbox(share_of(Book(LIMIT))))

    run(with_outbox())


async def fill(outbox: StreamOutbox, message: bytes = b"x") -> None:
    for _ in range(SIZE):
        await outbox.send(message)


@scenario(play)
async def test_a_sender_waits_while_it_is_full_and_none_overtakes_it(
    outbox: StreamOutbox, /
) -> None:
    await fill(outbox)
    first = asyncio.ensure_future(outbox.send(b"first"))
    second = asyncio.ensure_future(outbox.send(b"second"))
    await loop_turns(5)
    assert not first.done()

    await anext(outbox)
    await first
    assert not second.done()
    await anext(outbox)
    await second

    outbox.end()
    assert [b"first", b"second"] == [message async for message in outbox][-2:]


@scenario(play)
async def test_large_messages_fill_it_sooner(outbox: StreamOutbox, /) -> None:
    await outbox.send(bytes(4 << 20))
    waiting = asyncio.ensure_future(outbox.send(b"x"))
    await loop_turns(5)

    assert not waiting.done()
    await anext(outbox)
    await waiting


@scenario(play)
async def test_a_sender_that_gives_up_sends_nothing(outbox: StreamOutbox, /) -> None:
    await fill(outbox)
    waiting = asyncio.ensure_future(outbox.send(b"gone"))
    await loop_turns(5)
    waiting.cancel()
    await loop_turns(5)

    outbox.end()

    assert [b"x"] * SIZE == [message async for message in outbox]


@scenario(play)
async def test_after_an_error_what_was_sent_before_still_comes_out(outbox: StreamOutbox, /) -> None:
    await outbox.send(b"a")
    outbox.end(ValueError("broken"))
    outbox.end()
    await outbox.send(b"too late")

    assert await anext(outbox) == b"a"
    with pytest.raises(ValueError, match="broken"):
        await anext(outbox)


@scenario(play)
async def test_the_end_lets_waiting_senders_go(outbox: StreamOutbox, /) -> None:
    await fill(outbox)
    waiting = asyncio.ensure_future(outbox.send(b"never"))
    await loop_turns(5)

    outbox.end()

    await waiting
    assert [b"x"] * SIZE == [message async for message in outbox]


@scenario(run)
async def test_what_is_encoded_has_room_until_it_is_taken() -> None:
    book = Book(LIMIT)
    outbox = StreamOutbox(share_of(book))
    await outbox.send(bytes(100_000))
    assert 90_000 < book.held < 140_000

    await anext(outbox)

    assert book.held == 0


@scenario(run)
async def test_who_encodes_waits_for_room_and_is_refused_after_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ledger, "WAIT_S", 0.01)

    book = Book(1 << 20)
    other, outbox = share_of(book), StreamOutbox(share_of(book))
    other.add(book.limit)
    with pytest.raises(NoRoomError):
        await outbox.wait_for_room(500_000)
    assert not outbox.admits(500_000)

    waiting = asyncio.ensure_future(outbox.wait_for_room(500_000))
    other.release()
    await waiting

    assert outbox.room >= 500_000
    outbox.close()
    assert book.held == 0
