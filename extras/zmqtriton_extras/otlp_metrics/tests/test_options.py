"""The options of pushed metrics."""

from __future__ import annotations

import pytest

from zmqtriton_extras.otlp_metrics.options import complete_url, interval_s, problem


def test_the_path_may_be_left_out() -> None:
    assert "http://c:4318/v1/metrics" == complete_url("http://c:4318")
    assert "http://c:4318/v1/metrics" == complete_url("c:4318/")
    assert "https://c/otlp" == complete_url("https://c/otlp")


@pytest.mark.parametrize(
    ("option", "variable", "expected"), [(0, "", 60), (5, "1000", 5), (0, "2500", 2.5)]
)
def test_the_interval_is_that_of_the_option_of_the_variable_or_a_minute(
    option: int, variable: str, expected: float
) -> None:
    assert expected == interval_s(option, {"OTEL_METRIC_EXPORT_INTERVAL": variable})


@pytest.mark.parametrize(
    ("url", "variable", "text"),
    [
        ("ftp://c", "", 'Bad option: "--otlp-metrics".'),
        ("http://[", "", 'Bad option: "--otlp-metrics".'),
        (
            "http://c",
            "often",
            "OTEL_METRIC_EXPORT_INTERVAL must be a number of milliseconds, not often",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(
    monkeypatch: pytest.MonkeyPatch, url: str, variable: str, text: str
) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", variable)

    assert text in problem({"otlp_metrics": url, "otlp_metrics_interval_secs": 0})


def test_right_options_have_no_problem() -> None:
    assert "" == problem({"otlp_metrics": "c:4318", "otlp_metrics_interval_secs": 1})
