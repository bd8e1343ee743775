"""Forms that clients send, and those that nobody would."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

import pytest

from zmqtriton_extras.routes.backend import multipart
from zmqtriton_extras.routes.backend.multipart import Part, RefusedError, parts_of, read_form

TYPE = "multipart/form-data; boundary=b"


def part(content: bytes, head: bytes = b'Content-Disposition: form-data; name="f"') -> bytes:
    return b"--b\r\n" + head + b"\r\n\r\n" + content + b"\r\n"


class Slices:
    """A body that lies elsewhere, as a file does; notes how much is read at a time."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.largest = 0

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, where: slice) -> bytes:
        some = self._data[where]
        self.largest = max(self.largest, len(some))
        return some


def contents(body: Any, content_type: str = TYPE) -> list[bytes]:
    parts: list[Part] = list(parts_of(content_type, body))
    return [bytes(body[one.begin : one.end]) for one in parts]


def test_fields_and_files_are_told_apart() -> None:
    head = b'content-disposition: form-data; name="file"; filename="../a \\"b\\".txt"'
    body = part(b"two words") + part(b"\x80\r\n--c", head + b"\r\nContent-Type: text/x") + b"--b--"

    fields, files = read_form(TYPE, memoryview(body))

    assert fields == {"f": "two words"}
    [file] = files.values()
    assert (
        file.filename,
        file.content_type,
        file.bytes,
    ) == ('../a "b".txt', "text/x", b"\x80\r\n--c")


@pytest.mark.parametrize("size", [0, 1, 90, 97, 98, 99, 100, 101, 102, 103, 104, 199, 200, 205])
def test_a_boundary_is_found_wherever_it_lies(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multipart, "_WINDOW_BYTES", 100)
    content = bytes(size)
    body = Slices(part(content) + part(b"2") + b"--b--\r\n")

    assert [content, b"2"] == contents(body)
    assert body.largest <= multipart.MAX_HEADERS


def test_text_that_begins_like_a_boundary_is_text() -> None:
    text = b"--b\n--bc\r\n--bc\r\n--b-\r\n--"

    assert [text] == contents(part(text) + b"--b-- \t")


@pytest.mark.parametrize(
    ("content_type", "body", "status", "text"),
    [
        ("text/plain", b"", 415, "expects a form"),
        ("multipart/form-data", b"", 400, "needs a boundary"),
        (TYPE, b"", 400, "last boundary"),
        (TYPE, part(b"1"), 400, "last boundary"),
        (TYPE, b"--b\r\n\r\n--b--", 400, "needs headers"),
        (TYPE, b"--b\r\nwords\r\n\r\n\r\n--b--", 400, "invalid header"),
        (TYPE, b"--b\r\n\r\n\r\n--b--", 400, "needs a name"),
        (TYPE, b"--b\r\nA: " + b"x" * 9000 + b"\r\n\r\n\r\n--b--", 400, "not so long"),
        (TYPE, b"--b\r\nA: \x80\r\n\r\n\r\n--b--", 400, "must be multipart"),
        (TYPE, part(b"") * 1001 + b"--b--", 413, "at most 1000 parts"),
        (TYPE, b"--b\r\n" + b"\r\n--bx" * 1001, 413, "at most 1000 parts"),
    ],
)
def test_what_is_no_form_is_refused(content_type: str, body: bytes, status: int, text: str) -> None:
    with pytest.raises(RefusedError) as caught:
        contents(body, content_type)

    assert status == caught.value.args[0]
    assert text in caught.value.args[1]


def test_a_body_needs_a_length_and_slices_alone() -> None:
    assert isinstance(Slices(b""), Sized)
    assert contents(memoryview(part(b"1") + b"--b--")) == [b"1"]


@pytest.mark.slow
def test_a_url_encoded_form_is_decoded_up_to_a_limit() -> None:
    """All routes of a model wait while it is decoded."""
    kind = "application/x-www-form-urlencoded"
    longest = b"a=" + b"%41" * ((multipart.MAX_ENCODED_BYTES - 2) // 3)
    fields, _ = read_form(kind, memoryview(longest))
    assert len(longest) // 3 == len(fields["a"])

    with pytest.raises(RefusedError) as refused:
        read_form(kind, memoryview(longest + b"%41"))
    assert refused.value.args[0] == 413
