"""One version of a model on the metrics page: its labels, and the broker's counters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zmqtriton_addons.metrics.model_metrics import escape
from zmqtriton_floor.cache_keys import is_cached


class Series:
    def __init__(self, stat: dict[str, Any], config: Mapping[str, Any]) -> None:
        self.stat = stat
        #: What the statistics protocol has no field for.
        self.own: dict[str, Any] = stat.get("zmqtriton", {})
        self.labels = model_labels(stat["name"], stat["version"], config)
        self.is_cached = is_cached(dict(config))


def model_labels(name: str, version: str, config: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels of a version, its tags among them, in Triton's order."""
    tags = {f"_{key}": str(value) for key, value in (config.get("metric_tags") or {}).items()}
    return dict(sorted({**tags, "model": name, "version": version}.items()))


def labels_text(**labels: str) -> str:
    """Return the labels in Triton's order."""
    pairs = sorted(labels.items())
    return "{" + ",".join(f'{key}="{escape(value)}"' for key, value in pairs) + "}"
