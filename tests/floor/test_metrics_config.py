from __future__ import annotations

import pytest

from zmqtriton_floor import metrics


@pytest.mark.row("--metrics-config")
@pytest.mark.parametrize(
    ("config", "has"),
    [
        ([], True),
        ([("summary_latencies", "true")], True),
        ([("counter_latencies", "false")], False),
        ([("counter_latencies", "false"), ("counter_latencies", "true")], True),
    ],
)
def test_latency_counters_are_an_option(config: list[tuple[str, str]], has: bool) -> None:
    assert has is metrics.config_of(config).has_counters


def test_histograms_and_summaries_are_asked_for() -> None:
    settings = [("histogram_latencies", "true"), ("summary_latencies", "1")]

    config = metrics.config_of(settings)

    assert (config.has_histograms, config.has_summaries) == (True, True)
    assert not any(metrics.config_of([])[1:3])


@pytest.mark.row("--metrics-config")
@pytest.mark.parametrize(
    ("text", "quantiles"),
    [
        ("0.9:0.01,0.5:0.05", [0.5, 0.9]),
        ("0.25", [0.25]),
        ("x:0.1,0.5:0.05,7:0.1,,nan", [0.5]),
        ("", [0.5, 0.9, 0.95, 0.99, 0.999]),
    ],
)
def test_quantiles_are_those_that_make_sense_or_tritons(text: str, quantiles: list[float]) -> None:
    config = metrics.config_of([("summary_quantiles", text)])

    assert tuple(quantiles) == config.quantiles
