"""The figures of one model among those of all, without a server."""

from __future__ import annotations

from typing import Any

import pytest

from zmqtriton_extras.inspection.figures import figures_of

STATES = {"name": "streams", "description": "Streams", "kind": 1}


def family(*series: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {**STATES, **fields, "series": series}


def test_a_row_has_the_labels_that_do_not_name_the_model() -> None:
    rows = figures_of(
        "chat", [family({"labels": {"model": "chat", "version": "1", "state": "open"}, "value": 3})]
    )

    labels = {"version": "1", "state": "open"}
    about = {"name": "streams", "description": "Streams", "kind": "gauge"}
    assert [{**about, "labels": labels, "value": 3}] == [*rows]


def test_a_histogram_has_its_sum_and_count() -> None:
    series = {"labels": {"model": "chat"}, "value": 0.5, "buckets": [1, 2], "counts": [3, 0, 4]}

    [row] = figures_of("chat", [family(series, kind=2)])

    assert ("histogram", 0.5, 7) == (row["kind"], row["value"], row["count"])


@pytest.mark.parametrize(
    ("labels", "is_shown"),
    [
        ({"model": "chat"}, True),
        ({"model_name": "chat"}, True),
        ({"model": "other", "about": "chat"}, False),
        ({}, False),
    ],
)
def test_figures_of_other_models_are_left_out(labels: dict[str, str], is_shown: bool) -> None:
    rows = figures_of("chat", [family({"labels": labels, "value": 1})])

    assert is_shown == bool([*rows])
