"""Pages as OpenMetrics, read by Prometheus' own strict parser."""

from __future__ import annotations

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as plain_families

from zmqtriton_extras.open_metrics.form import canonical, convert
from zmqtriton_floor.metrics import REQUEST_BOUNDS_S
from zmqtriton_standard.metrics.model_metrics import render

PAGE = r"""# HELP served_total Requests, in \\ and\n"lines"
# TYPE served_total counter
served_total{model="a\"b\\",version=""} 3
# HELP nv_inference_count Number
# TYPE nv_inference_count counter
nv_inference_count{model="a"} 3
# HELP pending_count Now
# TYPE pending_count gauge
pending_count -1.5
# HELP rank_us Ranks
# TYPE rank_us summary
rank_us_count 2
rank_us_sum 30
rank_us{quantile="0.5"} 10
rank_us{quantile="1"} NaN
"""
TIMES = "zmqtriton_request_duration_seconds"


def times(model: str) -> str:
    counts = [1] * (len(REQUEST_BOUNDS_S) + 1)
    labels = {"_tag": 'x,model="no"', "model": model, "version": "1"}
    series = {"labels": labels, "buckets": REQUEST_BOUNDS_S, "counts": counts, "value": 5}
    return render([{"name": TIMES, "description": "Time", "kind": 2, "series": [series]}])


def test_a_strict_parser_reads_the_same_samples() -> None:
    page = PAGE + times('a"\\b')

    families = {f.name: f for f in text_string_to_metric_families(convert(page))}

    assert ["counter", "unknown", "gauge", "summary", "histogram"] == [
        family.type for family in families.values()
    ]
    assert 'Requests, in \\ and\n"lines"' == families["served"].documentation
    # the parser of the ordinary form gives each counter an end of its own
    samples, before = (
        {
            (s.name.removesuffix("_total"), *sorted(s.labels.items()))
            for family in parsed
            for s in family.samples
            if not {"le", "quantile"} & s.labels.keys()
        }
        for parsed in (families.values(), plain_families(page))
    )
    assert before == samples
    assert ["nv_inference_count"] == [s.name for s in families["nv_inference_count"].samples]


def test_an_empty_page_is_one() -> None:
    assert [] == list(text_string_to_metric_families(convert("")))


def test_an_exemplar_stands_beside_the_bucket_that_has_it() -> None:
    model = 'a"\\b'
    rows = [
        [model, 1, seconds, f"{place:032x}", f"{place:016x}", 1_700_000_000.25]
        for place, seconds in enumerate((0.0005, 0.7, 99.0))
    ]
    rows += [["other", 1, 0.7, "f" * 32, "f" * 16, 1.0], [model, 2, 0.7, "e" * 32, "e" * 16, 1.0]]

    (family,) = text_string_to_metric_families(convert(times(model), rows))

    exemplars = {s.labels["le"]: s.exemplar for s in family.samples if s.exemplar is not None}
    assert {"0.0005": 0, "1.0": 1, "+Inf": 2} == {
        bound: int(exemplar.labels["trace_id"], 16) for bound, exemplar in exemplars.items()
    }
    assert (0.7, 1_700_000_000.25) == (exemplars["1.0"].value, float(exemplars["1.0"].timestamp))
    assert f"{1:016x}" == exemplars["1.0"].labels["span_id"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", "1.0"),
        ("0.0005", "0.0005"),
        ("2560", "2560.0"),
        ("999999", "999999.0"),
        ("1000000", "1e+06"),
        ("67108864", "6.7108864e+07"),
        ("1e-05", "1e-05"),
        ("1e+300", "1e+300"),
        ("+Inf", "+Inf"),
    ],
)
def test_bounds_are_written_as_go_writes_numbers(text: str, expected: str) -> None:
    assert expected == canonical(text)
