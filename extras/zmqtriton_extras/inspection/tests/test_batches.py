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
        ({"spent": 30, "budget": 64}, "30 of 100 ended at the budget of 64 Raise MAX_BATCH_COST"),
        ({"complete": 60}, "most have all requests that there are"),
        ({"auto": "latency"}, "BATCH_DELAY has chosen no delay for latency"),
        ({"auto": "p99 1 s", "delay_us": 5000}, "BATCH_DELAY has chosen 5 ms for p99 1 s"),
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


def test_what_padding_costs_and_likeness_would_save_is_told() -> None:
    estimate = {"input": "A", "real": 300, "padded": 1000, "otherwise": 400}
    [text] = texts(elements=800, estimate=estimate)

    assert "if it pads 'A' to the longest, 70% of the elements are padding" in text
    assert 'BATCH_LIKE: "shape(A)"' in text
    assert "padding would then be 25%" in text
    assert [] == texts(elements=800, estimate={**estimate, "otherwise": 900})
