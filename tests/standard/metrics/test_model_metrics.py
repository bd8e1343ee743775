from __future__ import annotations

import math

import pytest

from zmqtriton_standard.metrics.model_metrics import render


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3.0, "3"),
        (-2.5, "-2.5"),
        (0.1, "0.1"),
        (1e300, "1e+300"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
    ],
)
def test_numbers_are_written_as_prometheus_reads_them(value: float, text: str) -> None:
    series = [{"labels": {}, "value": value}]

    page = render([{"name": "f", "description": "d", "kind": 1, "series": series}])

    assert f"# HELP f d\n# TYPE f gauge\nf {text}\n" == page


def test_a_family_that_nobody_has_a_metric_of_is_not_shown() -> None:
    assert "" == render([{"name": "f", "description": "d", "kind": 0, "series": []}])


def test_buckets_are_cumulative_and_what_needs_it_is_escaped() -> None:
    series = {"labels": {"a": '\\"\n'}, "value": 4.5, "buckets": [0.5, 2.0], "counts": [1, 0, 2]}

    page = render([{"name": "f", "description": "\\ \n", "kind": 2, "series": [series]}])

    label = 'a="\\\\\\"\\n"'
    assert [
        "# HELP f \\\\ \\n",
        "# TYPE f histogram",
        f"f_count{{{label}}} 3",
        f"f_sum{{{label}}} 4.5",
        f'f_bucket{{{label},le="0.5"}} 1',
        f'f_bucket{{{label},le="2"}} 1',
        f'f_bucket{{{label},le="+Inf"}} 3',
    ] == page.splitlines()
