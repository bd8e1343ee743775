"""What `--metrics-config` asks for, read from the settings in a birth message.

Broker, stubs and the metrics process each do their part of it.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple

_TRUE = ("true", "1", "on")
#: Triton's.
_QUANTILES = [0.5, 0.9, 0.95, 0.99, 0.999]


class MetricsConfig(NamedTuple):
    has_counters: bool
    has_histograms: bool
    has_summaries: bool
    #: Ascending.
    quantiles: List[float]


def of_settings(settings: Dict[str, Any]) -> MetricsConfig:
    """Of options that were given more than once the last one counts."""
    said: Dict[str, str] = {}
    for _, key, value in settings.get("metrics_config") or []:
        said[key] = value
    return MetricsConfig(
        _is_on(said.get("counter_latencies", "true")),
        _is_on(said.get("histogram_latencies", "")),
        _is_on(said.get("summary_latencies", "")),
        _quantiles(said.get("summary_quantiles", "")) or _QUANTILES,
    )


def _is_on(value: str) -> bool:
    return value.lower() in _TRUE


def _quantiles(text: str) -> List[float]:
    """`0.5:0.05,0.9:0.01`: each with an error that it may have, which here is none of its rank."""
    found = set()
    for pair in text.split(","):
        try:
            quantile = float(pair.partition(":")[0])
        except ValueError:
            continue
        if 0 <= quantile <= 1:
            found.add(quantile)
    return sorted(found)
