"""One version of a model on the metrics page: its labels, and the broker's counters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zmqtriton_floor.cache_keys import is_cached
from zmqtriton_frontends.metrics_api.model_metrics import escape


class Series:
    def __init__(self, stat: dict[str, Any], config: Mapping[str, Any]) -> None:
        self.stat = stat
        #: What the statistics protocol has no field for.
        self.own: dict[str, Any] = stat.get("zmqtriton", {})
        tags = {f"_{key}": str(value) for key, value in (config.get("metric_tags") or {}).items()}
        labels = {**tags, "model": stat["name"], "version": stat["version"]}
        self.labels = dict(sorted(labels.items()))
        self.is_cached = is_cached(dict(config))


def labels_text(**labels: str) -> str:
    """Return the labels in Triton's order."""
    pairs = sorted(labels.items())
    return "{" + ",".join(f'{key}="{escape(value)}"' for key, value in pairs) + "}"
