"""The lines of a batch file: what is refused, and that a long file is never held at once."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from zmqtriton_extras.jobs.batches.process import lines
from zmqtriton_extras.jobs.batches.process.lines import Text, Validation, read_some, validate
from zmqtriton_extras.jobs.tests.batches.requests import CHAT, line, text_of

MAX_LINE = 4096


def text(tmp_path: Path, content: bytes) -> Text:
    """Return a text that lies within a longer file, as it does in a form."""
    path = tmp_path / "file"
    path.write_bytes(b"form\r\n" + content + b"\r\n--b--")
    return Text(path, 6, 6 + len(content), MAX_LINE)


def validated(tmp_path: Path, *rows: Any) -> Validation:
    return validate(text(tmp_path, text_of(*rows)), CHAT, lambda: False)


def faults(tmp_path: Path, *rows: Any) -> list[tuple[int, str]]:
    return [(fault["line"], fault["code"]) for fault in validated(tmp_path, *rows).faults]


@pytest.mark.parametrize(
    ("row", "code"),
    [
        (b"{", "invalid_json_line"),
        (b"[]", "invalid_json_line"),
        (b"\x80", "invalid_json_line"),
        (b"[" * 4000, "invalid_json_line"),
        (b'"' + b"x" * MAX_LINE + b'"', "line_too_long"),
        (line("a", more={"custom_id": None}), "invalid_custom_id"),
        (line(""), "invalid_custom_id"),
        (line("x" * 513), "invalid_custom_id"),
        (line("a", more={"method": "GET"}), "invalid_method"),
        (line("a", more={"url": "/v1/embeddings"}), "invalid_url"),
        (line("a", more={"url": "/v2/repository/index"}), "invalid_url"),
        (line("a", more={"body": None}), "missing_required_parameter"),
        (line("a", more={"body": {}}), "missing_required_parameter"),
        (line("a", more={"body": {"model": "m", "stream": True}}), "invalid_request"),
    ],
)
def test_a_wrong_line_is_named_and_others_are_read(tmp_path: Path, row: Any, code: str) -> None:
    validation = validated(tmp_path, line("first"), row, line("last"))

    assert [(2, code)] == [(fault["line"], fault["code"]) for fault in validation.faults]
    assert validation.total == 2


def test_a_line_that_would_become_a_hundred_times_as_large_is_not_read(tmp_path: Path) -> None:
    bomb = line("a", more={"body": {"model": "m", "messages": [[]] * 300_000}})
    whole = text(tmp_path, text_of(bomb, line("b")))._replace(max_line=1 << 24)
    tracemalloc.start()
    try:
        validation = validate(whole, CHAT, lambda: False)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert [(one["line"], one["code"]) for one in validation.faults] == [(1, "line_too_long")]
    assert peak < 8 << 20


def test_each_line_has_an_id_of_its_own(tmp_path: Path) -> None:
    rows = [line("a"), line("b"), b"", line("a"), line("c"), line("b")]

    assert faults(tmp_path, *rows) == [(4, "duplicate_custom_id"), (6, "duplicate_custom_id")]


def test_a_file_without_requests_is_refused(tmp_path: Path) -> None:
    assert [(1, "empty_file")] == faults(tmp_path) == faults(tmp_path, b"", b"  ")


def test_a_file_has_no_more_requests_than_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MAX_LINES", 2)

    assert faults(tmp_path, line("a"), b"", line("b")) == []
    assert faults(tmp_path, line("a"), line("b"), line("c")) == [(3, "too_many_requests")]


def test_no_more_than_a_hundred_faults_are_told(tmp_path: Path) -> None:
    assert len(faults(tmp_path, *[b"{"] * 500)) == 100
    assert len(faults(tmp_path, *[line("a")] * 500)) == 100


def test_requests_are_read_from_any_line_on(tmp_path: Path) -> None:
    rows = [line(f"é {number}", more={"method": "POST"}) for number in range(10)]
    whole = text(tmp_path, text_of(*rows[:4], b"", *rows[4:]).rstrip())
    read, at = [], whole.begin
    while at < whole.end:
        some, at = read_some(whole._replace(begin=at), CHAT, 3)
        assert len(some) <= 3
        read += some

    assert [row["custom_id"] for row in rows] == [one.custom_id for one in read]
    assert [row["body"] for row in rows] == [json.loads(one.body) for one in read]


def test_a_line_of_any_length_takes_no_more_memory_than_a_line_may_have(tmp_path: Path) -> None:
    whole = text(tmp_path, b"[" * (8 << 20) + b"\n" + text_of(line("b")))
    tracemalloc.start()
    try:
        validation = validate(whole, CHAT, lambda: False)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert [fault["code"] for fault in validation.faults] == ["line_too_long"]
    assert peak < 4 << 20
