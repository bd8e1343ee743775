"""JSON of tensors, and of large answers."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.frontends.http_api.connection_harness import ConnectionHarness
from tests.frontends.http_api.server.test_connections import POST
from tests.support.refusals import refusal
from tests.support.scenarios import scenario
from zmqtriton_floor.datatypes import BY_NAME
from zmqtriton_floor.errors import InternalError, InvalidArgument
from zmqtriton_floor.tensors import encode_bytes
from zmqtriton_frontends.http_api.inference.response_encoding import (
    MAX_COPIED_BYTES,
    PATIENCE_S,
    pieces,
)
from zmqtriton_frontends.http_api.inference.tensor_data import json_from_bytes, json_to_bytes
from zmqtriton_frontends.tensors.arena_body import ByteBudget

# ------------------------------------------------------------------------ json tensors


NUMERIC = ["UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP32", "FP64"]


def read(datatype: str, count: int, data: Any) -> bytes:
    return json_to_bytes("A", BY_NAME[datatype], count, data)


@pytest.mark.parametrize("datatype", NUMERIC)
def test_numbers_take_the_bytes_of_their_datatype(datatype: str) -> None:
    expected = np.array([0, 1, 2, 127], BY_NAME[datatype].numpy).tobytes()

    assert read(datatype, 4, [0, 1, 2, 127]) == expected


@pytest.mark.parametrize(
    "data",
    [
        [1, 2, 3, 4],
        [[1, 2], [3, 4]],
        [[[1], [2]], [[3], [4]]],
        [[1, 2, 3, 4]],
        [[], [1, 2], [3], [4]],
        [1, [2, 3], 4],
        [1, 2, [3, [4]]],
        [[1, 2, 3], 4],
    ],
)
@pytest.mark.row("C22")
def test_rows_may_be_nested_in_any_way_that_has_as_many_elements(data: Any) -> None:
    assert read("INT32", 4, data) == np.arange(1, 5, dtype=np.int32).tobytes()


@pytest.mark.parametrize(
    ("count", "data"),
    [(2, [1]), (2, [1, 2, 3]), (2, []), (0, [1]), (2**62, [1]), (4, [[1, 2], [3]]), (1, [[[]]])],
)
def test_another_number_of_elements_than_the_shape_says_is_refused(count: int, data: Any) -> None:
    size = len(json.dumps(data).replace("[", "").replace("]", "").replace(",", " ").split())
    assert (
        "Unable to parse 'data': Shape does not match true shape of 'data' field "
        f"(input 'A' has {size} elements in 'data' and {count} in 'shape')"
    ) == refusal(InvalidArgument, read, "FP32", count, data)


def test_no_element_is_right_where_the_shape_has_none() -> None:
    assert [read("FP32", 0, []), read("BYTES", 0, []), read("BOOL", 0, [[], []])] == [b""] * 3


@pytest.mark.parametrize(
    ("datatype", "element", "said"),
    [
        ("INT32", 1.0, "Unable to parse 'data': attempt to access JSON non-signed-integer"),
        ("INT32", "1", "Unable to parse 'data': attempt to access JSON non-signed-integer"),
        ("INT32", None, "Unable to parse 'data': attempt to access JSON non-signed-integer"),
        ("INT32", 2**31, "out of range for INT32"),
        ("INT8", -129, "out of range for INT8"),
        ("UINT8", 256, "out of range for UINT8"),
        ("UINT8", [0, 256], "out of range for UINT8"),
        ("UINT8", -(2**70), "attempt to access JSON non-unsigned-integer as unsigned-integer"),
        ("UINT8", -1, "attempt to access JSON non-unsigned-integer as unsigned-integer"),
        ("UINT64", -1, "attempt to access JSON non-unsigned-integer as unsigned-integer"),
        ("UINT64", 1.5, "Unable to parse 'data': attempt to access JSON non-unsigned-integer"),
        ("INT64", 2**63, r"out of range for INT64 \(input 'A'\)"),
        ("FP32", "1", r"attempt to access JSON non-number as double \(input 'A' is FP32\)"),
        ("FP64", {}, "Unable to parse 'data': attempt to access JSON non-number as double"),
        ("BOOL", 1, "Unable to parse 'data': attempt to access JSON non-boolean as boolean"),
        ("BYTES", 1, "Unable to parse JSON bytes array: attempt to access JSON non-string"),
        ("FP16", 1, "receiving FP16 data via JSON is not supported"),
        ("BF16", 1, "Please use the binary data format for input A"),
    ],
)
@pytest.mark.row("C22")
def test_an_element_that_is_none_of_its_datatype_is_refused(
    datatype: str, element: Any, said: str
) -> None:
    data = element if type(element) is list else [element]
    with pytest.raises(InvalidArgument, match=said):
        read(datatype, len(data), data)


#: Elements of all kinds that JSON has, with numbers at the ends of the datatypes.
ELEMENTS: Any = (
    st.none()
    | st.booleans()
    | st.sampled_from(
        [
            sign * 2**bits - less
            for sign in (1, -1)
            for bits in (7, 8, 15, 16, 31, 32)
            for less in (0, 1)
        ]
    )
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
    | st.just({})
)


LISTS: Any = st.lists(ELEMENTS, max_size=4) | st.lists(st.integers(-300, 300), max_size=3).flatmap(
    lambda numbers: st.lists(ELEMENTS, max_size=2).map(lambda others: [*numbers, *others])
)


def count_leaves(data: Any) -> int:
    return sum(map(count_leaves, data)) if type(data) is list else 1


@pytest.mark.slow
@given(
    st.sampled_from([*BY_NAME]),
    st.recursive(LISTS, lambda inner: st.lists(inner | ELEMENTS, max_size=3), max_leaves=5),
)
@example("UINT8", [300, None])
@example("INT16", [-(2**40), "1"])
@example("UINT64", [2**63, -1, 0.5])
@example("FP32", [0.5, True, []])
def test_elements_of_mixed_kinds_become_bytes_or_are_refused(
    datatype: str, data: list[Any]
) -> None:
    count = count_leaves(data)

    try:
        made = read(datatype, count, data)
    except InvalidArgument:
        return

    size = BY_NAME[datatype].size
    assert len(made) == size * count if size else len(made) >= 4 * count


@pytest.mark.parametrize("data", ["x", 3, {}, None, True])
def test_data_that_are_no_list_are_refused(data: Any) -> None:
    with pytest.raises(InvalidArgument, match="attempt to access JSON non-array as array"):
        read("FP32", 1, data)


def test_the_ends_of_the_integer_ranges_survive() -> None:
    assert read("UINT64", 1, [2**64 - 1]) == b"\xff" * 8
    assert read("INT64", 1, [-(2**63)]) == bytes(7) + b"\x80"


def test_a_number_too_large_for_fp32_is_infinite_as_in_triton() -> None:
    assert np.frombuffer(read("FP32", 2, [1e39, -1e39]), np.float32).tolist() == [
        math.inf,
        -math.inf,
    ]


@pytest.mark.slow
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_strings_come_back_as_they_went(strings: list[str]) -> None:
    data = read("BYTES", len(strings), strings)

    assert json_from_bytes("A", BY_NAME["BYTES"].number, data) == strings


@pytest.mark.slow
@given(st.lists(st.booleans()))
def test_booleans_come_back_as_they_went(values: list[bool]) -> None:
    data = read("BOOL", len(values), values)

    assert json_from_bytes("A", BY_NAME["BOOL"].number, data) == values


@pytest.mark.parametrize("count", [3, 5000])
def test_a_long_tensor_has_the_same_digits_as_a_short_one(count: int) -> None:
    data = np.full(count, 0.1, np.float32).tobytes()

    values = json_from_bytes("A", BY_NAME["FP32"].number, data)

    assert list(values) == [0.10000000149011612] * count


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
@pytest.mark.row("C27")
def test_halves_are_not_written_as_json(datatype: str) -> None:
    with pytest.raises(
        InvalidArgument,
        match=f"sending {datatype} data via JSON is not supported. "
        "Please use the binary data format for output",
    ):
        json_from_bytes("A", BY_NAME[datatype].number, b"\0\0")


def test_bytes_that_are_no_text_are_not_written_as_json() -> None:
    data = encode_bytes(np.array([b"\xff"], object))

    with pytest.raises(InvalidArgument, match=r"not UTF-8 .* use the binary data format"):
        json_from_bytes("A", BY_NAME["BYTES"].number, data)


def test_malformed_bytes_of_a_model_are_its_fault() -> None:
    with pytest.raises(InternalError):
        json_from_bytes("A", BY_NAME["BYTES"].number, b"\xff\xff\xff\xff")


# ------------------------------------------------------------------------ large answer
# Large outputs are passed on as they lie, and copied for a client that takes its time.


SIZE = 10_000_000


def _output(byte: int) -> Any:
    return np.full(SIZE, byte, np.uint8)


@scenario(asyncio.run)
async def test_all_of_it_comes_in_order_and_nothing_is_copied() -> None:
    first, second = _output(1), _output(2)
    tail: list[Any] = [memoryview(first), memoryview(second)]

    read_pieces = [piece async for piece in pieces(b"head", tail, lambda: 0.0)]

    whole = b"head" + first.tobytes() + second.tobytes()
    assert whole == b"".join(b"".join(piece) for piece in read_pieces)
    assert {id(first), id(second)} == {id(piece.view.obj) for piece in read_pieces}


@pytest.mark.slow
@scenario(asyncio.run)
async def test_a_client_that_is_slow_keeps_no_memory_of_a_model() -> None:
    now = [0.0]
    outputs = [_output(1), _output(2)]
    alive = [weakref.ref(output) for output in outputs]
    tail: list[Any] = [memoryview(output) for output in outputs]
    del outputs
    body = pieces(b"", tail, lambda: now[0])
    got = [b"".join(await anext(body))]
    now[0] = PATIENCE_S + 1

    got.append(b"".join(await anext(body)))

    gc.collect()
    assert [None, None] == [output() for output in alive]
    got += [b"".join(piece) async for piece in body]
    assert _output(1).tobytes() + _output(2).tobytes() == b"".join(got)


@pytest.mark.slow
@scenario(asyncio.run)
async def test_copies_are_bounded_and_given_back() -> None:
    now = [0.0]
    copies = ByteBudget(MAX_COPIED_BYTES)
    before = copies.reserve(MAX_COPIED_BYTES - SIZE)
    first, second = (
        pieces(b"", [memoryview(_output(n)), memoryview(_output(n))], lambda: now[0], copies)
        for n in (1, 2)
    )
    await anext(first)
    now[0] = PATIENCE_S + 1

    got = await anext(first)
    assert isinstance(got.view.obj, np.ndarray)  # no room for a copy of what is left

    copies.release(before)
    assert isinstance((await anext(first)).view.obj, bytes)
    await first.aclose()
    assert MAX_COPIED_BYTES == copies.reserve(MAX_COPIED_BYTES)
    await second.aclose()


@scenario(asyncio.run)
async def test_an_application_sends_pieces_as_they_are() -> None:
    output = _output(7)

    class Sender(ConnectionHarness):
        async def application(self, scope: Any, receive: Any, send: Any) -> None:
            headers = [(b"content-length", str(SIZE + 4).encode())]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            async for piece in pieces(b"head", [memoryview(output)], lambda: 0.0):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body"})

    async with Sender().serve() as party:
        reader, _ = await party.connect(POST % 0)
        await reader.readuntil(b"\r\n\r\n")
        assert b"head" + output.tobytes() == await reader.readexactly(SIZE + 4)
