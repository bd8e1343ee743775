"""Forms are read as they were written, and any other bytes are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqtriton_extras.routes.backend.multipart import File, RefusedError, read_form

pytestmark = pytest.mark.slow

KIND = "multipart/form-data; boundary=b-0"
_NAMES = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=20)
_CONTENTS = st.binary(max_size=200).filter(lambda content: b"--b-0" not in content)


def quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def written(parts: dict[str, tuple[str | None, bytes]]) -> bytes:
    """Return a form; a part with a file's name is a file."""
    rows = []
    for name, (filename, content) in parts.items():
        head = f'form-data; name="{quoted(name)}"'
        head += "" if filename is None else f'; filename="{quoted(filename)}"'
        rows.append(b"--b-0\r\nContent-Disposition: %b\r\n\r\n" % head.encode() + content + b"\r\n")
    return b"".join([*rows, b"--b-0--\r\n"])


@given(st.dictionaries(_NAMES, st.tuples(_NAMES, _CONTENTS), max_size=5))
def test_files_are_what_was_written(parts: dict[str, tuple[str, bytes]]) -> None:
    fields, files = read_form(KIND, memoryview(written({**parts})))

    assert fields == {}
    assert parts == {name: (file.filename, file.bytes) for name, file in files.items()}


@given(st.dictionaries(_NAMES, st.text(max_size=50).filter(lambda t: "--b-0" not in t), max_size=5))
def test_fields_are_what_was_written(fields: dict[str, str]) -> None:
    parts = {name: (None, text.encode()) for name, text in fields.items()}

    assert (fields, {}) == read_form(KIND, memoryview(written({**parts})))


_PIECES = st.sampled_from(
    [
        b"--b-0",
        b"\r\n",
        b"--",
        b"\n",
        b" ",
        b"\t",
        b"\0",
        b";",
        b'"',
        b"=",
        b"\xff",
        b"x" * 9000,
        b"Content-Disposition:",
        b" form-data;",
        b' name="a"',
        b' filename="b"',
        b"\r\n\r\n",
    ]
)


@given(st.lists(_PIECES, max_size=30).map(b"".join))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    status, fields, files = 200, {}, {}  # type: int, dict[str, str], dict[str, File]
    try:
        fields, files = read_form(KIND, memoryview(body))
    except RefusedError as refusal:
        status = refusal.args[0]

    assert status in (200, 400, 413)
    assert all(type(text) is str for text in fields.values())
    assert all(type(file) is File for file in files.values())
