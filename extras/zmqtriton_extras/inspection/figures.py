"""The metrics that a model reports of itself, among those of all models.

These have the model's name as label `model` or `model_name`: the server does not know the subject
of others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_NAMES = ("model", "model_name")
_KINDS = ("counter", "gauge", "histogram")


def figures_of(model: str, families: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield a row for each series of a model. For a histogram the value is the sum."""
    for family in families:
        about = {key: family[key] for key in ("name", "description")}
        for series in family["series"]:
            labels = series["labels"]
            if model not in map(labels.get, _NAMES):
                continue
            others = {key: value for key, value in labels.items() if key not in _NAMES}
            row = {**about, "kind": _KINDS[family["kind"]], "labels": others}
            row["value"] = series["value"]
            if "counts" in series:
                row["count"] = sum(series["counts"])
            yield row
