"""Pages of metrics as messages of OpenTelemetry; read with OpenTelemetry's own classes."""

from __future__ import annotations

import math

import pytest

from zmqtriton_extras.otlp_metrics import conversion
from zmqtriton_extras.otlp_metrics.conversion import MetricsConverter, parse
from zmqtriton_extras.otlp_metrics.tests.metrics_collector import Point, lines, read

PAGE = r"""# HELP served_total Requests, in \\ and\nlines
# TYPE served_total counter
served_total{model="a\"b\\",version=""} 3
served_total{model="c"} 4
# HELP heat How warm it is
# TYPE heat gauge
heat -1.5
# HELP took_seconds Times
# TYPE took_seconds histogram
took_seconds_count{model="a"} 6
took_seconds_sum{model="a"} 7.5
took_seconds_bucket{model="a",le="0.5"} 1
took_seconds_bucket{model="a",le="1"} 4
took_seconds_bucket{model="a",le="+Inf"} 6
# HELP rank_us Ranks
# TYPE rank_us summary
rank_us_count 2
rank_us_sum 30
rank_us{quantile="0.5"} 10
rank_us{quantile="0.9"} NaN
loose 1
"""


def page(value: float, name: str = "served_total", kind: str = "counter") -> str:
    return f"# TYPE {name} {kind}\n{name} {value}\n"


def convert(converter: MetricsConverter, text: str, now_ns: int) -> list[Point]:
    messages = converter.convert(parse(text), now_ns)
    return [point for data, _ in messages for point in read(data)[0]]


def test_each_kind_is_converted_by_the_rules_for_prometheus() -> None:
    points = convert(MetricsConverter({}), PAGE, 1000)

    assert [
        ("served_total", "sum", "counter", {"model": 'a"b\\'}),
        ("served_total", "sum", "counter", {"model": "c"}),
        ("heat", "gauge", "gauge", {}),
        ("took_seconds", "histogram", "histogram", {"model": "a"}),
        ("rank_us", "summary", "summary", {}),
        ("loose", "gauge", "unknown", {}),
    ] == [(p.name, p.data, p.prometheus_type, p.attributes) for p in points]
    assert "Requests, in \\ and\nlines" == points[0].description
    assert [True, True, False, True, False, False] == [p.is_cumulative for p in points]
    assert {1000} == {p.raw.time_unix_nano for p in points}
    assert [3, 4, -1.5] == [p.raw.as_double for p in points[:3]]
    took = points[3].raw
    assert ([0.5, 1], [1, 3, 2]) == (list(took.explicit_bounds), list(took.bucket_counts))
    assert (6, 7.5) == (took.count, took.sum)
    ranks = {row.quantile: row.value for row in points[4].raw.quantile_values}
    assert (2, 30, 10) == (points[4].raw.count, points[4].raw.sum, ranks[0.5])
    assert math.isnan(ranks[0.9])


def test_the_attributes_of_the_server_go_with_each_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(conversion, "_MAX_POINTS", 2)

    messages = list(MetricsConverter({"service.name": "s"}).convert(parse(PAGE), 1))

    assert [2, 2, 2] == [points for _, points in messages]
    assert [[{"service.name": "s"}]] * 3 == [read(data)[1] for data, _ in messages]


def test_a_series_starts_with_the_last_page_without_it_and_again_when_it_falls() -> None:
    converter = MetricsConverter({})

    def start_of(text: str, now_ns: int) -> int:
        return int(convert(converter, text, now_ns)[-1].raw.start_time_unix_nano)

    assert 10 == start_of(page(5), 10)  # it may be older than this process
    assert 10 == start_of(page(5), 20)
    assert 20 == start_of(page(6) + page(1, "late_total"), 30)
    assert 20 == start_of(page(7) + page(1, "late_total"), 40)
    assert 40 == start_of(page(8) + page(0, "late_total"), 50)
    assert 0 == start_of(page(8, "heat", "gauge"), 60)


def test_a_series_that_is_gone_is_told_until_the_collector_has_it() -> None:
    converter = MetricsConverter({})
    convert(converter, PAGE, 1)
    converter.accepted()
    gone = PAGE.replace('served_total{model="c"} 4\n', "").replace("heat -1.5\n", "")

    first = convert(converter, gone, 2)
    second = convert(converter, gone, 3)
    converter.accepted()
    third = convert(converter, gone, 4)

    ended = [("heat", "gauge", {}), ("served_total", "sum", {"model": "c"})]
    for points in (first, second):
        assert ended == [(p.name, p.data, p.attributes) for p in points if p.has_ended]
    assert not any(point.has_ended for point in third)


def test_histograms_and_summaries_without_a_count_are_dropped() -> None:
    text = '# TYPE a histogram\na_bucket{le="1"} 2\n# TYPE b summary\nb{quantile="0.5"} 3\n'

    assert [] == convert(MetricsConverter({}), text, 1)


def test_a_series_that_stands_twice_counts_once() -> None:
    points = convert(MetricsConverter({}), page(1) + page(2), 1)

    assert [{("served_total", frozenset()): 1}] == [lines(point) for point in points]


@pytest.mark.parametrize("line", ["a b c d", "{} 1", "a", 'a{b="c"} x'])
def test_a_line_that_is_none_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"line|float"):
        parse(f"{line}\n")


def test_opentelemetrys_own_metrics_have_their_names_labels_and_units() -> None:
    name = "gen_ai_client_token_usage"
    labels = '{gen_ai_request_model="chat",gen_ai_token_type="input"}'
    text = f"# TYPE {name} histogram\n" + "".join(
        f"{name}{suffix} 3\n" for suffix in (f"_count{labels}", f"_sum{labels}")
    )
    converter = MetricsConverter({})

    ((data, _),) = converter.convert(parse(text), 1000)
    (point,) = read(data)[0]

    assert "gen_ai.client.token.usage" == point.name
    assert {"gen_ai.request.model": "chat", "gen_ai.token.type": "input"} == point.attributes
    assert b"{token}" in data
