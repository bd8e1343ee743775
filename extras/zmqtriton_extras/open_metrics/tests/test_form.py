"""The form of the page that a scraper gets, by its header Accept."""

from __future__ import annotations

import pytest

from zmqtriton_extras.open_metrics.form import prefers_open_metrics

#: Those of Prometheus 2 and 3.
PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (PROMETHEUS_2, True),
        (PROMETHEUS_3, True),
        ("application/openmetrics-text", True),
        ('Application/OpenMetrics-Text; Version="1.0.0"', True),
        ("application/openmetrics-text;version=1.0.0,text/plain", True),
        ("application/openmetrics-text;version=1.0.0;q=0.2,text/plain;q=0.3", False),
        ("application/openmetrics-text;version=0.0.1", False),
        ("application/openmetrics-text;version=2.0.0", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=many", False),
        ("text/plain;version=0.0.4", False),
        ("text/html,application/xhtml+xml,*/*;q=0.8", False),
        ("*/*", False),
        (",;q=;,=", False),
        ("", False),
    ],
)
def test_the_form_is_the_one_that_the_scraper_prefers(accept: str, expected: bool) -> None:
    assert expected == prefers_open_metrics(accept)
