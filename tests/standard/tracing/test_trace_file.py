"""The file of traces: a whole document after each write, also where a disk is full."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from zmqtriton_standard.tracing.gathering import RequestSpan
from zmqtriton_standard.tracing.trace_file import TraceFile

_TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def span(**fields: Any) -> RequestSpan:
    return RequestSpan(_TRACE, model="m", version=1, **fields)


@pytest.mark.row("I20")
def test_objects_are_those_of_triton(tmp_path: Path) -> None:
    path = tmp_path / "t"
    tensor = {"activity": "TENSOR_QUEUE_INPUT", "name": "X", "data": "1", "shape": "1"}
    below = span(marks={"REQUEST_START": 3})
    trace = span(
        marks={"REQUEST_END": 9, "QUEUE_START": 2},
        request_id="r",
        tensors=[{**tensor, "dtype": "FP32"}],
        children=[below],
    )

    TraceFile(str(path)).write(trace)

    shown = {"name": "X", "data": "1", "shape": "1", "dtype": "FP32"}
    assert [
        {"id": 2, "model_name": "m", "model_version": 1, "parent_id": 1},
        {"id": 2, "timestamps": [{"name": "REQUEST_START", "ns": 3}]},
        {"id": 1, "model_name": "m", "model_version": 1, "request_id": "r"},
        {"id": 1, "timestamps": [{"name": "QUEUE_START", "ns": 2}]},
        {"id": 1, "activity": "TENSOR_QUEUE_INPUT", "tensor": shown},
        {"id": 1, "timestamps": [{"name": "REQUEST_END", "ns": 9}]},
    ] == json.loads(path.read_text())


def test_a_full_disk_leaves_what_was_there_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t"
    file = TraceFile(str(path))
    file.write(span())
    before = json.loads(path.read_text())
    pwrite, calls = os.pwrite, []

    def half(descriptor: int, data: bytes, at: int) -> int:
        calls.append(at)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        return pwrite(descriptor, data[: len(data) // 2] if len(calls) == 1 else data, at)

    monkeypatch.setattr(os, "pwrite", half)
    with pytest.raises(OSError, match="No space left"):
        file.write(span())

    assert before == json.loads(path.read_text())
    file.write(span())
    assert 2 == len(json.loads(path.read_text()))
