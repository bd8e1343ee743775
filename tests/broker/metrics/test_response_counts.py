from __future__ import annotations

import json
from typing import Any

import pytest

from zmqtriton.broker.metrics.response_counts import ResponseCounts
from zmqtriton_floor.errors import ProtocolError
from zmqtriton_stub.execution.response_counts import (
    CANCEL,
    EMPTY,
    FAIL,
    MAX_INDEXES,
    SUCCESS,
    ResponseCounter,
)


def test_what_a_stub_counts_is_told_by_index_and_kind() -> None:
    tallies, counts = ResponseCounter(), ResponseCounts()

    for index, kind in ((0, SUCCESS), (0, SUCCESS), (0, FAIL), (10, EMPTY), (2, CANCEL)):
        tallies.add(index, kind, 100, 1)
        counts.add(tallies.take(is_last=True))

    none = {"count": 0, "ns": 0}
    nothing = dict.fromkeys(("compute_infer", "compute_output", "success", "fail"), none)
    assert list(counts.as_dict()) == ["0", "2", "10"]
    assert counts.as_dict() == {
        "0": {
            "compute_infer": {"count": 3, "ns": 300},
            "compute_output": {"count": 3, "ns": 3},
            "success": {"count": 2, "ns": 202},
            "fail": {"count": 1, "ns": 101},
            "empty_response": none,
            "cancel": none,
        },
        "2": nothing | {"empty_response": none, "cancel": {"count": 1, "ns": 101}},
        "10": nothing | {"empty_response": {"count": 1, "ns": 101}, "cancel": none},
    }


def test_a_stub_tells_at_once_when_its_last_stream_has_ended_else_now_and_then() -> None:
    tallies = ResponseCounter()

    tallies.add(0, SUCCESS, 1, 1)
    counts = tallies.take(is_last=False)
    tallies.add(0, SUCCESS, 1, 1)

    assert counts
    assert not tallies.take(is_last=False)
    assert tallies.take(is_last=True) == counts
    assert not tallies.take(is_last=True)


def test_streams_of_any_length_take_bounded_memory() -> None:
    tallies = ResponseCounter()

    for index in range(2 * MAX_INDEXES):
        tallies.add(index, SUCCESS, 10**12, 10**12)

    text = tallies.take(is_last=True)
    assert len(json.loads(text)) == MAX_INDEXES
    assert len(text) < 1 << 17


@pytest.mark.parametrize(
    "message",
    [
        "",
        "{",
        "7",
        "[7]",
        "[[0, 1]]",
        [[0] * 12],
        [[0] * 14],
        [[1024] + [0] * 12],
        [[0, -1] + [0] * 11],
        [[0, "1"] + [0] * 11],
        [[0, True] + [0] * 11],
    ],
)
def test_what_makes_no_sense_is_refused(message: Any) -> None:
    counts = ResponseCounts()

    with pytest.raises(ProtocolError):
        counts.add(message if isinstance(message, str) else json.dumps(message))

    assert counts.as_dict() == {}
