"""Differences between captured responses and those of a later run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zmqtriton_extras.capture.comparison import CLOSE, DIFFERENT, EQUAL, Difference, compare
from zmqtriton_extras.capture.records import LINES, Record, read
from zmqtriton_extras.capture.replaying import FAILED, Report, Result

FLOATS = {"name": "Y", "datatype": "FP32", "shape": [3], "data": [1.0, 0.0, 100.0]}
TEXTS = {"name": "T", "datatype": "BYTES", "shape": [1], "data": ["a"]}


def record(*entries: dict[str, Any]) -> Record:
    return Record({"responses": [{"outputs": list(entries)}]}, Path("/none"))


def floats(*values: float) -> dict[str, Any]:
    return {"Y": np.array(values, np.float32)}


@pytest.mark.parametrize(
    ("outputs", "kind", "text"),
    [
        (floats(1, 0, 100), EQUAL, ""),
        (floats(1.0005, 0.0005, 100.05), CLOSE, ""),
        (floats(1, 0, 101), DIFFERENT, "differs in 1 of 3 elements, by up to 1"),
        (floats(1, 0), DIFFERENT, "has the shape [2], not [3]"),
        ({"Y": np.array([1, 0, 100.0])}, DIFFERENT, "is float64, not float32"),
        ({}, DIFFERENT, "is missing"),
        ({**floats(1, 0, 100), "more": np.ones(1)}, EQUAL, ""),
    ],
)
def test_numbers(outputs: dict[str, Any], kind: str, text: str) -> None:
    verdict = compare(record(FLOATS), [outputs], 1e-3)

    assert kind == verdict.kind
    assert [text] * (kind == DIFFERENT) == [difference.text for difference in verdict.differences]


@pytest.mark.parametrize(("value", "kind"), [(b"a", EQUAL), (b"b", DIFFERENT)])
def test_texts(value: bytes, kind: str) -> None:
    assert kind == compare(record(TEXTS), [{"T": np.array([value], object)}], 1.0).kind


def test_bits_of_types_that_numpy_lacks_are_numbers(tmp_path: Path) -> None:
    (tmp_path / "b.bin").write_bytes(np.array([16256], np.uint16).tobytes())  # 1.0
    entry = {"name": "B", "datatype": "BF16", "shape": [1], "file": "b.bin"}
    captured = Record({"responses": [{"outputs": [entry]}]}, tmp_path)
    next_one = {"B": np.array([16257], np.uint16)}

    assert compare(captured, [next_one], 0.01).kind == CLOSE
    assert compare(captured, [next_one], 0.0).kind == DIFFERENT


def test_what_was_not_captured_is_not_compared_and_responses_are_counted() -> None:
    left_out = {"name": "Y", "omitted": True}

    assert compare(record(left_out), [{}], 0.0).kind == EQUAL
    [difference] = compare(record(left_out), [{}, {}], 0.0).differences
    assert difference.text == "2 responses, not 1"


def test_a_report_has_the_reasons_of_failures_behind_many_differences() -> None:
    report = Report()
    for number in range(50):
        report.add(Result(f"d{number}", "m", DIFFERENT, [Difference("OUT", "1.0")]))
    report.add(Result("f", "m", FAILED, [Difference("", "no such model")]))

    assert [r.differences[0].text for r in report.shown if r.id == "f"] == ["no such model"]
    assert len(report.shown) < 50


@pytest.mark.parametrize(
    "damage",
    [{"error": 5}, {"responses": None}, {"request": []}, {"id": None}, {"duration_ms": "x"}],
)
def test_a_damaged_record_is_left_out(tmp_path: Path, damage: dict[str, Any]) -> None:
    whole: dict[str, Any] = {
        "id": "a",
        "model": "m",
        "time": "2026-01-01T00:00:00Z",
        "duration_ms": 1.0,
    }
    whole |= {"error": None, "request": {"inputs": []}, "responses": []}
    documents: list[Any] = [{**whole, **damage}, whole, {}, []]
    lines = [json.dumps(document) for document in documents]
    (tmp_path / LINES).write_text("\n".join(lines) + "\n")

    assert [whole] == [record.document for record in read(tmp_path)]
