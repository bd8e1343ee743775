"""Reads the lines of a file, each a request, one after the other."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson

MAX_LINES = 1_000_000
#: Maximum bytes of a line, and values in it; each value takes at least 50 bytes of memory.
MAX_LINE_BYTES, _MAX_VALUES = 16 << 20, 250_000
_MAX_ID = 512
_MAX_FAULTS = 100
_DUPLICATE = "The custom_id of this request is that of an earlier line."
_SKIPPED_BYTES = 1 << 20
#: The bytes of requests that are read at a time, unless the first one has more.
_READ_BYTES = 1 << 20


class Text(NamedTuple):
    """A file, the begin and end of its lines, and the longest allowed line."""

    path: Path
    begin: int
    end: int
    max_line: int


class Line(NamedTuple):
    custom_id: str
    model: str
    body: bytes


class FaultyLineError(Exception):
    """Raised for a line that is not a valid request, with a code, a text and the field."""


class Validation(NamedTuple):
    total: int
    #: First faults, in OpenAI's form.
    faults: list[dict[str, Any]]


def _lines(text: Text) -> Iterator[tuple[int, bytes]]:
    """Yield each line with the position of its end; a line that is too long is cut."""
    with text.path.open("rb") as file:
        at = file.seek(text.begin)
        while at < text.end:
            line = file.readline(min(text.end - at, text.max_line + 1))
            if not line:
                raise EOFError(f"{text.path} is shorter than it was")
            at += len(line)
            rest = line
            while at < text.end and not rest.endswith(b"\n"):
                rest = file.readline(min(text.end - at, _SKIPPED_BYTES))
                at += len(rest)
            yield at, line


def _parse(line: bytes, text: Text, endpoint: str) -> Line:
    """Return the request in a line. Raises FaultyLineError."""
    if len(line) > text.max_line:
        raise FaultyLineError(
            "line_too_long", f"A line can have at most {text.max_line} bytes.", None
        )
    if sum(map(line.count, (b",", b"[", b"{"))) > _MAX_VALUES:
        raise FaultyLineError(
            "line_too_long", f"A line can have at most {_MAX_VALUES} values.", None
        )
    try:
        fields = orjson.loads(line)
    except ValueError:
        fields = None
    if type(fields) is not dict:
        raise FaultyLineError("invalid_json_line", "This line must be a JSON object.", None)
    custom_id, body = fields.get("custom_id"), fields.get("body")
    if type(custom_id) is not str or not 0 < len(custom_id) <= _MAX_ID:
        fault = f"'custom_id' must be a text of 1 to {_MAX_ID} characters."
        raise FaultyLineError("invalid_custom_id", fault, "custom_id")
    if fields.get("method") != "POST":
        raise FaultyLineError("invalid_method", "'method' must be 'POST'.", "method")
    if fields.get("url") != endpoint:
        fault = f"The URL of this request is not the batch's endpoint, '{endpoint}'."
        raise FaultyLineError("invalid_url", fault, "url")
    if type(body) is not dict or type(body.get("model")) is not str:
        fault = "'body' must be a request that names its model."
        raise FaultyLineError("missing_required_parameter", fault, "body.model")
    if body.get("stream"):
        raise FaultyLineError(
            "invalid_request", "A batch has no streams: leave 'stream' out.", "body.stream"
        )
    return Line(custom_id, body["model"], orjson.dumps(body))


def validate(text: Text, endpoint: str, is_over: Callable[[], bool]) -> Validation:
    """Read all lines; may take seconds, and ends early once `is_over` returns True."""
    faults: list[dict[str, Any]] = []
    hashes, numbers = array("Q"), array("L")

    def note(number: int, code: str, message: str, field: str | None) -> None:
        faults.append({"code": code, "line": number, "message": message, "param": field})

    for number, (_, line) in zip(count(1), _lines(text), strict=False):
        if is_over() or len(faults) >= _MAX_FAULTS:
            break
        if not line.strip():
            continue
        if len(numbers) >= MAX_LINES:
            note(number, "too_many_requests", f"A batch may have {MAX_LINES} requests.", None)
            break
        try:
            custom_id = _parse(line, text, endpoint).custom_id.encode()
        except FaultyLineError as fault:
            note(number, *fault.args)
            continue
        hashes.append(int.from_bytes(blake2b(custom_id, digest_size=8).digest(), "little"))
        numbers.append(number)
    for number in _duplicates(hashes, numbers)[: _MAX_FAULTS - len(faults)]:
        note(number, "duplicate_custom_id", _DUPLICATE, "custom_id")
    if not numbers and not faults:
        note(1, "empty_file", "The file has no requests.", None)
    return Validation(len(numbers), sorted(faults, key=lambda fault: int(fault["line"])))


def _duplicates(hashes: array[int], numbers: array[int]) -> list[int]:
    """Return the numbers of lines whose id an earlier line has.

    Of a million different ids two have the same hash in one of 37 million files.
    """
    if not hashes:
        return []
    values = np.frombuffer(hashes, np.uint64)
    order = np.argsort(values, kind="stable")
    in_order = values[order]
    again = order[1:][in_order[1:] == in_order[:-1]]
    return sorted(numbers[int(place)] for place in again)


def read_some(text: Text, endpoint: str, limit: int) -> tuple[list[Line], int]:
    """Return the next requests of a text that was validated, and where the next one begins."""
    lines: list[Line] = []
    size, at = 0, text.begin
    for at, line in _lines(text):  # noqa: B007 - the last one counts
        if line.strip():
            lines.append(_parse(line, text, endpoint))
            size += len(line)
        if len(lines) >= limit or size >= _READ_BYTES:
            break
    return lines, at
