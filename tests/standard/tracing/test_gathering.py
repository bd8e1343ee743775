"""Traces from what several processes tell of them, their exemplars, and the file of traces."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from zmqtriton_standard.tracing import gathering
from zmqtriton_standard.tracing.exemplars import Exemplars, ExemplarSocket
from zmqtriton_standard.tracing.gathering import LINGER_S, MAX_LINGER_S, RequestSpan, TraceAssembler
from zmqtriton_standard.tracing.trace_file import TraceFile

_TRACE = "0af7651916cd43dd8448eb211c80319c"


def name(span: int, trace: str = _TRACE) -> str:
    return f"00-{trace}-{span:016x}-01"


def end(**fields: Any) -> dict[str, Any]:
    return {"root": "m", "count": -1, "log_frequency": 0, "parent": "", **fields}


def test_what_a_trace_is_known_to_lack_is_waited_for_but_not_for_ever() -> None:
    assembler = TraceAssembler()
    assembler.add(name(1), end(), 1, 0.0)
    assert LINGER_S == assembler.next_due_s()
    assembler.add(name(4), end(), 1, 0.0)
    assert [] == assembler.pop_complete(LINGER_S)  # the broker has told nothing yet

    for span, above in ((2, 1), (3, 2), (5, 4)):
        assembler.add(name(span), {"parent": f"{above:016x}", "executed": span != 2}, 1, 0.4)
    assert [] == assembler.pop_complete(2 * LINGER_S)  # nor has the stub of either

    assembler.add(name(3), {"marks": [["COMPUTE_START", 1], ["COMPUTE_END", 2]]}, 1, 1.0)
    assert [f"{1:016x}"] == [trace.id for trace in assembler.pop_complete(1.0)]
    assert [] == assembler.pop_complete(MAX_LINGER_S - 0.1)
    assert [f"{4:016x}"] == [trace.id for trace in assembler.pop_complete(MAX_LINGER_S)]
    assert None is assembler.next_due_s()


def test_no_more_are_whole_than_are_wanted_whoever_has_chosen_them() -> None:
    assembler = TraceAssembler()

    for span in range(1, 5):
        assembler.add(name(span), end(count=2), 1, 0.0)

    assert 2 == len(assembler.pop_complete(MAX_LINGER_S))


def test_what_nobody_ends_goes_when_room_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "MAX_SPANS", 2)
    assembler = TraceAssembler()
    for span in (8, 9):  # complete at the same time, and out of the way
        assembler.add(name(span), end(), 1, 0.0)
    assert 2 == len(assembler.pop_complete(MAX_LINGER_S))

    for number in range(3):
        assembler.add(name(1, f"{number + 1:032x}"), {"model": "m"}, 1, 0.0)

    assert 1 == assembler.lost_spans


def test_what_was_lost_on_its_way_is_counted() -> None:
    assembler = TraceAssembler()

    assembler.add(name(1), {"lost": 3}, 1, 0.0)

    assert 3 == assembler.lost_spans


def test_a_client_that_has_one_trace_for_all_its_requests_fills_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gathering, "MAX_BYTES", 100)
    monkeypatch.setattr(gathering, "MAX_SPANS", 5)
    assembler = TraceAssembler()
    assembler.add(name(1), {"model": "always open"}, 10, 0.0)

    for number in range(100, 200):
        assembler.add(name(number + 1000), {"parent": f"{number:016x}", "model": "m"}, 20, 0.0)
        assembler.add(name(number), end(parent="b7ad6b7169203331"), 20, 0.0)
        (trace,) = assembler.pop_complete(LINGER_S)
        assert ["m"] == [child.model for child in trace.children]

    assert 0 == assembler.lost_spans


def test_what_is_told_to_be_below_itself_ends_nothing() -> None:
    assembler = TraceAssembler()
    for span in (1, 2):
        assembler.add(name(span), {"parent": f"{3 - span:016x}"}, 1, 0.0)
    assembler.add(name(1), end(), 1, 0.0)

    (trace,) = assembler.pop_complete(LINGER_S)

    assert [[]] == [child.children for child in trace.children]


def test_how_many_traces_a_limited_setting_has_had_is_told_once() -> None:
    found = TraceAssembler()
    for span in range(4):
        found.add(name(span), end(root="limited", count=3), 1, 0.0)
        found.add(name(span + 10), end(root="unlimited"), 1, 0.0)

    assert {"limited": 3} == found.pop_counts()
    assert {} == found.pop_counts()


MS = 10**6
TRACE = "0af7651916cd43dd8448eb211c80319c"


def span(number: int, *children: RequestSpan, ms: int = 0, **fields: Any) -> RequestSpan:
    marks = {"REQUEST_START": 5 * MS, "REQUEST_END": (5 + ms) * MS} if ms else {"HTTP_RECV": 1}
    context = f"00-{TRACE}-{number:016x}-01"
    return RequestSpan(context, marks=marks, children=list(children), **fields)


def test_each_bucket_has_the_last_request_of_a_version_wherever_it_stands_in_a_trace() -> None:
    exemplars = Exemplars()
    below = span(3, ms=700, model="b", version=2)

    exemplars.add(span(1, span(2, below, ms=800, model="a", version=1)), 10**9)
    exemplars.add(span(4, span(5, ms=900, model="a", version=1)), 10**9)
    exemplars.add(span(6, span(7, ms=20, model="a", version=1)), 10**9)

    assert [
        ("a", 1, 0.9, TRACE, f"{5:016x}", 1.905),
        ("a", 1, 0.02, TRACE, f"{7:016x}", 1.025),
        ("b", 2, 0.7, TRACE, f"{3:016x}", 1.705),
    ] == exemplars.rows()


def test_a_request_that_failed_or_has_no_times_is_none() -> None:
    exemplars = Exemplars()

    exemplars.add(span(1, span(2, ms=5, model="a", version=1, error="no")), 0)
    exemplars.add(span(1, model="a", version=1), 0)

    assert [] == exemplars.rows()


def test_versions_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zmqtriton_standard.tracing.exemplars._MAX_VERSIONS", 2)
    exemplars = Exemplars()

    for name in ("a", "b", "c"):
        exemplars.add(span(1, ms=5, model=name, version=1), 0)

    assert ["b", "c"] == [row[0] for row in exemplars.rows()]


def test_who_connects_reads_them_once(tmp_path: Path) -> None:
    exemplars = Exemplars()
    exemplars.add(span(1, ms=5, model="a", version=1), 0)
    path = tmp_path / "s"
    path.touch()  # an earlier process's
    served = ExemplarSocket(str(path), exemplars)

    with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as gone:
        one.connect(str(path))
        gone.connect(str(path))
        gone.close()
        served.answer()
        answer = one.makefile().read()
    served.answer()
    served.close()

    assert [list(row) for row in exemplars.rows()] == json.loads(answer)
    assert not path.exists()


_WRITTEN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def written_span(**fields: Any) -> RequestSpan:
    return RequestSpan(_WRITTEN, model="m", version=1, **fields)


@pytest.mark.row("I20")
def test_objects_are_those_of_triton(tmp_path: Path) -> None:
    path = tmp_path / "t"
    tensor = {"activity": "TENSOR_QUEUE_INPUT", "name": "X", "data": "1", "shape": "1"}
    below = written_span(marks={"REQUEST_START": 3})
    trace = written_span(
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
    file.write(written_span())
    before = json.loads(path.read_text())
    pwrite, calls = os.pwrite, []

    def half(descriptor: int, data: bytes, at: int) -> int:
        calls.append(at)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        return pwrite(descriptor, data[: len(data) // 2] if len(calls) == 1 else data, at)

    monkeypatch.setattr(os, "pwrite", half)
    with pytest.raises(OSError, match="No space left"):
        file.write(written_span())

    assert before == json.loads(path.read_text())
    file.write(written_span())
    assert 2 == len(json.loads(path.read_text()))
