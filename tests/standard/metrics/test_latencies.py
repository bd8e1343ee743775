from __future__ import annotations

from typing import Any

import pytest

from tests.standard.metrics.test_exposition import stat
from zmqtriton_floor.metrics import REQUEST_BOUNDS_S
from zmqtriton_standard.metrics.exposition import render
from zmqtriton_standard.metrics.latencies import render_request_times
from zmqtriton_standard.metrics.model_metrics import Series


def lines_of(name: str, **own: Any) -> list[str]:
    text = render([stat(zmqtriton={"failures": {}, "pending": 0, **own})])
    return [line for line in text.splitlines() if name in line]


@pytest.mark.row("nv_inference_first_response_histogram_ms")
def test_a_histogram_has_count_and_sum_and_what_is_up_to_each_bound() -> None:
    first = {"buckets": [100.0, 500.5], "counts": [2, 1, 4], "value": 9000.25}

    lines = lines_of("histogram", first_response=first)

    name, of = "nv_inference_first_response_histogram_ms", 'model="m",version="1"'
    assert lines == [
        f"# HELP {name} Duration from request to first response in milliseconds",
        f"# TYPE {name} histogram",
        f"{name}_count{{{of}}} 7",
        f"{name}_sum{{{of}}} 9000.25",
        f'{name}_bucket{{{of},le="100"}} 2',
        f'{name}_bucket{{{of},le="500.5"}} 3',
        f'{name}_bucket{{{of},le="+Inf"}} 7',
    ]


@pytest.mark.row("nv_inference_queue_summary_us", "nv_inference_request_summary_us")
@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("request", "nv_inference_request_summary_us"),
        ("queue", "nv_inference_queue_summary_us"),
    ],
)
def test_a_summary_has_count_and_sum_and_its_quantiles(key: str, name: str) -> None:
    of = {"count": 3, "sum": 7000, "quantiles": [[0.5, 63], [0.999, None]]}

    lines = lines_of(name, summaries={key: of})

    labels = 'model="m",version="1"'
    assert lines[1:] == [
        f"# TYPE {name} summary",
        f"{name}_count{{{labels}}} 3",
        f"{name}_sum{{{labels}}} 7000",
        f'{name}{{{labels},quantile="0.5"}} 63',
        f'{name}{{{labels},quantile="0.999"}} NaN',
    ]


def test_request_times_are_a_histogram_in_seconds_of_versions_that_answered() -> None:
    times = [0] * (len(REQUEST_BOUNDS_S) + 1)
    times[0], times[3], times[-1] = 2, 1, 4
    quiet = [0] * len(times)

    text = render_request_times(
        [
            Series(stat(zmqtriton={"times": times}), {}),
            Series(stat("quiet", zmqtriton={"times": quiet}), {}),
        ]
    )

    name, of = "zmqtriton_request_duration_seconds", 'model="m",version="1"'
    lines = text.splitlines()
    assert f"# TYPE {name} histogram" == lines[1]
    assert [f"{name}_count{{{of}}} 7", f"{name}_sum{{{of}}} 0.001000999"] == lines[2:4]
    assert [
        f'{name}_bucket{{{of},le="0.0005"}} 2',
        f'{name}_bucket{{{of},le="0.005"}} 3',
        f'{name}_bucket{{{of},le="+Inf"}} 7',
    ] == [lines[4], lines[7], lines[-1]]
    assert "quiet" not in text
