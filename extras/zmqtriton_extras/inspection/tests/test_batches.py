"""Reasons for small batches, from answers that are made up; a server's are in system/."""

from __future__ import annotations

from typing import Any

import pytest

from tests.diagnosis.explaining.test_findings import counts
from zmqtriton.diagnosis.facts.served import Facts
from zmqtriton_extras.inspection.explaining.batches import find_small_batches


def texts(**batching: Any) -> list[str]:
    usual: dict[str, Any] = {
        "target": 8,
        "delay_us": 0,
        "batches": 100,
        "elements": 150,
        "complete": 0,
    }
    usual |= {"parted": 0, "differences": {}}
    row = counts(executed=150, compute_ns=150 * 10**7, queue_ns=0, batching={**usual, **batching})
    findings = find_small_batches(Facts("m", status={"counts": [row]}))
    return [f"{finding.text} {finding.advice}" for finding in findings]


@pytest.mark.parametrize(
    "batching", [{"batches": 19, "elements": 19}, {"elements": 400}, {"target": 1}]
)
def test_few_or_large_enough_batches_are_not_told(batching: dict[str, int]) -> None:
    assert [] == texts(**batching)


@pytest.mark.parametrize(
    ("batching", "said"),
    [
        (
            {"parted": 30, "differences": {"A": "shape"}},
            "30 of 100 ended at a request with another",
        ),
        ({"parted": 30}, "another shape of an input"),
        ({"complete": 60}, "most have all requests that there are"),
        ({}, "max_queue_delay_microseconds is 0, and a free instance takes the few"),
        ({}, "Set max_queue_delay_microseconds: 2000 in dynamic_batching"),
        ({"delay_us": 500}, "max_queue_delay_microseconds is 500, and"),
        ({"delay_us": 5000}, "few requests come within its max_queue_delay_microseconds of 5000"),
    ],
)
def test_the_reason_for_small_batches_is_told(batching: dict[str, Any], said: str) -> None:
    [text] = texts(**batching)

    assert text.startswith("its batches have 1.5 of 8: ")
    assert said in text
