from __future__ import annotations

import asyncio
import json
import math
import threading
from typing import Any

import numpy as np
import pytest

from tests.support.scenarios import scenario
from tests.support.waiting import eventually
from zmqtriton_floor.documents import LIMITS, STEP
from zmqtriton_floor.errors import NO_MEMORY, InvalidArgument, Unavailable
from zmqtriton_frontends.http_api.inference import json_documents

pytestmark = pytest.mark.slow


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


@pytest.mark.row("C27")
def test_nan_and_infinity_are_read_as_numbers() -> None:
    document = json_documents.parse(b'{"data": [NaN, Infinity, -Infinity, 1]}')

    assert math.isnan(document["data"][0])
    assert document["data"][1:] == [math.inf, -math.inf, 1]


@pytest.mark.parametrize("around", [b"%s", b"[NaN, %s]"])
def test_integers_beyond_64_bits_become_floats_with_either_parser(around: bytes) -> None:
    text = around % b"[18446744073709551615, 18446744073709551616, -9223372036854775809]"

    document = json_documents.parse(text)

    numbers = document if around == b"%s" else document[1]
    assert numbers == [2**64 - 1, float(2**64), float(-(2**63) - 1)]
    assert [type(number) for number in numbers] == [int, float, float]


@pytest.mark.parametrize("depth", [1, 99, 100])
def test_a_document_may_nest_a_hundred_deep(depth: int) -> None:
    assert json_documents.parse(nested(depth)) == json.loads(nested(depth))


@pytest.mark.parametrize(
    "text",
    [
        nested(101),
        nested(1000),
        nested(250_000),
        b"[" * 250_000,
        b"[NaN, " + nested(250_000) + b"]",
        b'{"a":' * 101 + b"1" + b"}" * 101,
        b"[" + b"[],[],[]," * 50 + nested(101) + b"]",
    ],
    ids=["101", "1000", "250000", "open", "with NaN", "objects", "behind others"],
)
@pytest.mark.row("C22")
def test_a_document_that_nests_deeper_is_refused(text: bytes) -> None:
    with pytest.raises(
        InvalidArgument, match=r"JSON nesting depth exceeds maximum allowed limit \(100\)"
    ):
        json_documents.parse(text)


def test_many_shallow_rows_are_no_depth() -> None:
    rows = [[1.5, 2.5]] * 5000

    assert json_documents.parse(json.dumps(rows).encode()) == rows


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{,}",
        b"[1] 2",
        b'"\xff"',
        b'"\\ud800"',
        b'["\\ud800", NaN]',
        b"[NaN, 1e",
        b'["\xff", NaN]',
        b"9" * 5000,
        b"nan",
    ],
)
def test_what_is_no_json_is_refused_with_tritons_text(text: bytes) -> None:
    with pytest.raises(InvalidArgument, match=r"failed to parse the request JSON buffer: .* at "):
        json_documents.parse(text)


def test_escaped_pairs_are_read_beside_nan() -> None:
    assert json_documents.parse(b'["\\ud83d\\ude00", NaN]')[0] == "\U0001f600"


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"data": [1.0, 0.1]}, b'{"data":[1.0,0.1]}'),
        ({"data": [math.nan, math.inf, -math.inf]}, b'{"data":[NaN,Infinity,-Infinity]}'),
        ({"data": np.array([1, 2], np.int32)}, b'{"data":[1,2]}'),
        ({"data": np.array([1.0, math.nan])}, b'{"data":[1.0,NaN]}'),
        (
            {"of": [{"data": np.array([math.inf, 1.0, -math.inf, math.nan])}, {"x": ["null"]}]},
            b'{"of":[{"data":[Infinity,1.0,-Infinity,NaN]},{"x":["null"]}]}',
        ),
        ({"value": math.inf}, b'{"value":Infinity}'),
        ({"data": ["null", "é"]}, '{"data":["null","é"]}'.encode()),
    ],
)
@pytest.mark.row("C27")
def test_documents_are_written_as_triton_does(document: Any, text: bytes) -> None:
    assert json_documents.write(document) == text


def test_a_document_of_very_many_arrays_is_refused_unread() -> None:
    text = b"[" + b"[]," * LIMITS.containers + b"0]"

    with pytest.raises(InvalidArgument, match=r"^request JSON has more than 2097152 arrays and"):
        json_documents.parse(text)


def test_an_array_that_is_written_in_pieces_is_whole() -> None:
    array = np.arange(150_000, dtype=np.float64)
    array[::70_000] = math.nan

    document = json.loads(json_documents.write({"data": array}))

    assert np.array_equal(array, np.array(document["data"]), equal_nan=True)


@pytest.mark.parametrize("colon", [b":", b" :", b"\n\t :"])
def test_a_document_of_very_many_members_is_refused_unread(colon: bytes) -> None:
    text = b"{" + b",".join([b'"a"' + colon + b"1"] * (LIMITS.members + 1)) + b"}"

    with pytest.raises(InvalidArgument, match="more than 1048576 members"):
        json_documents.parse(text)


def test_values_are_bounded() -> None:
    text = b"[" + b"0," * LIMITS.values + b"0,0]"

    with pytest.raises(InvalidArgument, match="more than 8388608 values"):
        json_documents.parse(text)


@scenario(asyncio.run)
async def test_a_document_waits_for_none_that_is_much_larger() -> None:
    gate = threading.Event()
    large = asyncio.ensure_future(json_documents.aside(1 << 30, gate.wait))

    assert await json_documents.aside(1 << 20, lambda: "read") == "read"

    assert not large.done()
    gate.set()
    await large


# several of the steps that a loop takes over it
LONG = 3 * STEP + 7
ODD = np.arange(LONG, dtype=np.float64)
ODD[::1000] = np.nan
ODD[5::1001] = -np.inf
ROWS: list[dict[str, Any]] = [
    {"name": "a", "data": np.arange(LONG)},
    {"name": "b", "data": ODD},
    {"name": "c", "parameters": {"binary_data_size": 4}},
    {"name": "d", "data": []},
    {"name": "e", "data": ["x", "null", "\n"] * LONG},
    {"name": "f", "data": [True, False]},
]


@pytest.mark.parametrize(
    "document",
    [{"id": "1", "outputs": ROWS}, {"outputs": ROWS[:1]}, {"outputs": []}],
    ids=["all kinds", "one", "none"],
)
def test_the_pieces_of_a_document_are_its_text(document: dict[str, Any]) -> None:
    pieces = json_documents.pieces(document)

    assert json_documents.write(document) == b"".join(pieces)
    assert max(map(len, pieces)) < 4 << 20


def test_colons_within_strings_are_no_members() -> None:
    strings = ["a:b:c", '{"a":1}'] * LIMITS.members

    assert {"x": strings} == json_documents.parse(json.dumps({"x": strings}).encode())


@scenario(asyncio.run)
@pytest.mark.parametrize("size", [1000, json_documents.LARGE_BYTES, 4 << 20])
async def test_a_document_has_room_while_it_exists_or_is_not_read(size: int) -> None:
    text, held = b"[" + b"[]," * (size // 3) + b"0]", [0]

    def hold(size: int) -> None:
        held.append(held[-1] + size)
        if held[-1] > 40 * len(text):
            raise Unavailable(NO_MEMORY)

    def measure(text: bytes) -> int:
        json_documents.parse(text)
        return held[-1]

    during = await json_documents.aside_with_room(hold, text, measure, text)
    assert 30 * len(text) < during < 40 * len(text)
    assert 0 == held[-1]
    assert during == await json_documents.read(hold, text, measure)
    assert during == held[-1], "until its request ends"
    with pytest.raises(Unavailable):
        await json_documents.aside_with_room(hold, text, lambda _: pytest.fail("it was read"), text)


@scenario(asyncio.run)
async def test_the_loop_goes_on_while_a_large_document_is_read() -> None:
    turns = 0

    def wait_for_turns(text: bytes) -> int:
        eventually(lambda: turns > 100, 60, "turns of the loop")
        return len(text)

    reading = asyncio.ensure_future(
        json_documents.read(lambda _: None, bytes(1 << 20), wait_for_turns)
    )
    while not reading.done():
        turns += 1
        await asyncio.sleep(0)

    assert 1 << 20 == await reading


@pytest.mark.parametrize(
    "document",
    [
        {"a": ODD, "b": 'x"y', "c": [], "d": ["null", "\n"] * LONG, "null": 1.5, "n": [1, 2]},
        {"a": np.arange(LONG)},
        {},
    ],
    ids=["all kinds", "one", "none"],
)
def test_the_pieces_of_a_documents_members_are_its_text(document: dict[str, Any]) -> None:
    assert json_documents.write(document) == b"".join(json_documents.pieces(document))
