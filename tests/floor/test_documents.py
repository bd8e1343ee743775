"""Documents in pieces, and numbers of clients that become limits."""

from __future__ import annotations

import json
import math
import random
import tracemalloc
from typing import Any

import numpy as np
import pytest

from tests.support.quick import every
from zmqtriton_floor import documents
from zmqtriton_floor.descriptions import MAX_TEXT_BYTES, clipped, described, shown
from zmqtriton_floor.documents import DocumentError, DocumentLimits
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.numbers import in_text, integer, number

_TEXTS = ("", "a,b", '"', "\\", '\\"', "\\\\", "[{", "é,", "x" * 40, "\\" * 5 + '"')
_KEYS = ("a", "b", "", 'x"y', "\\", '\\\\"', ",", "]", "é")


def value(chance: random.Random, depth: int = 0) -> Any:
    kind = chance.random()
    if depth < 5 and kind < 0.3:
        return [value(chance, depth + 1) for _ in range(chance.randrange(6))]
    if depth < 5 and kind < 0.55:
        keys = chance.choices(_KEYS, k=chance.randrange(6))
        return {key: value(chance, depth + 1) for key in keys}
    return chance.choice([1, 2.5, True, None, *_TEXTS])


def written(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


@pytest.fixture(params=[1, 3, 8, 50])
def tiny_pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(documents, "PIECE_BYTES", request.param)
    monkeypatch.setattr(documents, "STEP", request.param)
    return int(request.param)


@pytest.mark.parametrize("seed", every(6, range(60)))
def test_a_document_in_pieces_is_the_whole_one(tiny_pieces: int, seed: int) -> None:
    chance = random.Random(seed)
    document = [value(chance), {"k": value(chance)}, value(chance)]
    text = json.dumps(document, ensure_ascii=chance.random() < 0.5, indent=chance.choice([None, 1]))

    assert document == documents.parse(text.encode())
    with documents.opened(text.encode(), documents.parse_piece) as lent:
        assert document == lent
    assert written(document) == b"".join(documents.pieces(document, written))


@pytest.mark.parametrize("seed", every(6, range(60)))
def test_a_damaged_document_is_refused_in_pieces_too(tiny_pieces: int, seed: int) -> None:
    chance = random.Random(seed)
    text = written([value(chance) for _ in range(3)])
    at = chance.randrange(len(text))
    mark = chance.choice([b"", b",", b"]", b"{", b'"', b"\\", b":"])
    damaged = text[:at] + mark + text[at + 1 :]
    try:
        expected = json.loads(damaged)
    except ValueError:
        with pytest.raises(DocumentError):
            documents.parse(damaged)
    else:
        assert expected == documents.parse(damaged)


@pytest.mark.parametrize(
    "text", [b"[1,]", b"[,1]", b"[1,,2]", b'{"a":1,}', b"[1],[2]", b"[1,2", b"1,2"]
)
def test_commas_at_cuts_have_values_on_both_sides(tiny_pieces: int, text: bytes) -> None:
    with pytest.raises(DocumentError, match=r"failed to parse the request JSON buffer: .* at "):
        documents.parse(text)


def test_the_last_of_equal_keys_counts_across_pieces(tiny_pieces: int) -> None:
    text = b'{"a":[1,2],"b":{"c":1},"a":[3,{"d":4,"d":5},6],"b":7}'

    assert json.loads(text) == documents.parse(text)


@pytest.mark.parametrize(
    ("text", "limits", "what"),
    [
        (b"[" + b"[]," * 9 + b"[]]", DocumentLimits(containers=5), "5 arrays and objects"),
        (
            b"{" + b",".join([b'"a" : 1'] * 9) + b"}",
            DocumentLimits(members=5),
            "5 members of objects",
        ),
        (b"[" + b"0," * 9 + b"0]", DocumentLimits(values=5), "5 values"),
        (b"[" * 9 + b"]" * 9, DocumentLimits(depth=5), "nesting depth"),
        (b"[" + b"0," * 9 + b"0]", DocumentLimits(bytes=9), "9 bytes"),
    ],
)
def test_what_is_beyond_a_limit_is_refused_before_anything_is_built(
    monkeypatch: pytest.MonkeyPatch, text: bytes, limits: DocumentLimits, what: str
) -> None:
    monkeypatch.setattr(documents, "PIECE_BYTES", 4)

    def build(text: bytes, offset: int) -> Any:
        raise AssertionError(text)

    with pytest.raises(DocumentError, match=what):
        documents.parse(text, build, limits)


def test_a_long_text_without_commas_is_too_deep_as_a_short_one_is() -> None:
    for text in (b"[" * 2_000_000, b'{"a":' * 400_000):
        with pytest.raises(DocumentError, match="nesting depth exceeds"):
            documents.parse(text)


def test_strings_are_no_containers_members_or_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "PIECE_BYTES", 4)
    document = ["[[[", "{{:,:,:,", '\\",[[', "\\"]

    assert document == documents.parse(written(document), limits=DocumentLimits(64, 1, 0, 3, 1))


def test_long_lists_are_empty_after_their_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "PIECE_BYTES", 64)
    text = written({"long": [*range(1000)], "shape": [1, 2, 3]})

    with documents.opened(text, documents.parse_piece) as document:
        assert 1000 == len(document["long"])
    assert len(document["long"]) < 100
    assert [1, 2, 3] == document["shape"]


def test_an_array_that_cannot_be_emptied_is_left_as_it_is() -> None:
    array = np.broadcast_to(np.array([b""], np.object_), (3,))

    documents.empty(array)

    assert [b""] * 3 == array.tolist()


@pytest.mark.parametrize(
    "element",
    [
        "[]",
        "{}",
        "[1]",
        '{"a":1}',
        "0.5678%d",
        '"%x"',
        '"' + "a" * 100 + '"',
        '"\\u4e00%d"',
        '"é%d"',
    ],
)
def test_the_cost_of_a_document_is_near_the_memory_that_it_takes(element: str) -> None:
    elements = (element % number if "%" in element else element for number in range(20_000))
    text = f"[{','.join(elements)}]".encode()

    tracemalloc.start()
    document = json.loads(text)
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()

    assert document
    assert taken * 0.8 < documents.cost_of(text) < taken * 2.5


@pytest.mark.slow
def test_no_piece_is_much_longer_than_its_limit() -> None:
    sizes: list[int] = []

    def parse(text: bytes, offset: int) -> Any:
        sizes.append(len(text))
        return json.loads(text)

    for element in (b"[]", b'{"a":1}', b"[1,[2,3]]", b'"a"', b"1.5"):
        documents.parse(b"[" + (element + b",") * 400_000 + element + b"]", parse)

    assert max(sizes) < documents.PIECE_BYTES + 1000


def test_an_array_of_numbers_is_written_in_pieces() -> None:
    sizes: list[int] = []

    def write(value: Any) -> bytes:
        sizes.append(len(value) if type(value) is np.ndarray else 1)
        return json.dumps(value.tolist() if type(value) is np.ndarray else value).encode()

    parts = documents.pieces({"a": np.arange(200_000)}, write)

    assert [*range(200_000)] == json.loads(b"".join(parts))["a"]
    assert max(sizes) <= documents.STEP


@pytest.mark.parametrize("text", ["AA=A", "A", "AA==AAAA", "?AAA", "é"])
def test_what_is_no_base64_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of binascii
        documents.from_base64(text)


def test_base64_is_read_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "_DECODED", 4)

    assert b"abcdefg" == documents.from_base64("YWJjZGVmZw==")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a text", "a text of 6 letters"),
        (b"a", "bytes of 1 byte"),
        ([1, 2], "a list of 2 elements"),
        ({"a": 1}, "an object of 1 member"),
        (1, "an integer"),
        (1 << 63, "an integer of more than 64 bits"),
        (1.5, "a number"),
        (True, "a boolean"),
        (None, "null"),
        (np.zeros((2, 3), np.float32), "an array of float32 of shape [2, 3]"),
        (object(), "a value of type object"),
    ],
)
def test_a_value_is_described_by_type_and_length(value: Any, text: str) -> None:
    assert text == described(value)


def test_errors_and_names_are_cut() -> None:
    text = clipped("é" * 5000 + "end")

    assert len(text.encode()) <= MAX_TEXT_BYTES
    assert text.startswith("éé")
    assert text.endswith("éend")
    assert "n" * 77 + "..." == shown("n" * 78)
    assert "short" == clipped(shown("short"))


def test_long_containers_are_emptied_and_short_ones_kept() -> None:
    array, numbers = np.full((40_000, 2), "a", np.object_), np.zeros(100)
    rows, names, short = [[1, 2]] * 100, dict.fromkeys(range(100)), [1, 2, 3]

    for each in (array, numbers, rows, names, short, "text"):
        documents.empty(each)

    assert {None} == {*array.flat}
    assert len(rows) < 100
    assert len(names) < 100
    assert ([0.0] * 100, [1, 2, 3]) == (numbers.tolist(), short)


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, -math.inf, -1, 1e6 + 1, 2**63, 10**400, True, "5", None, [], 1e400],
)
def test_a_number_that_is_no_limit_is_refused(value: Any) -> None:
    with pytest.raises(InvalidArgument, match="'x' must be a number from 0 to 1,000,000"):
        number("x", value, 0, 1e6)
    with pytest.raises(InvalidArgument, match="'x' must be an integer from 0 to 1,000,000"):
        integer("x", value, 0, 1_000_000)


@pytest.mark.parametrize(
    "text", ["nan", "inf", "1e400", "1_0", " 1", "１", "0x5", "+1", ".5", "1.", "", "1" * 5000]
)
def test_a_text_that_is_no_plain_number_has_none(text: str) -> None:
    assert in_text(text) is None


def test_others_are_as_they_were_written() -> None:
    assert [5, -1, 2.5] == [in_text("5"), in_text("-1"), in_text("2.5")]
    assert 2.5 == number("x", 2.5, 0, 10)
    assert 5 == integer("x", 5, 5, 5)
    with pytest.raises(InvalidArgument, match="an integer"):
        integer("x", 2.5, 0, 10)
