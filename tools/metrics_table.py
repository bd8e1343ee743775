"""The metrics of docs/metrics.md: dashboards and alerts follow its tables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"
_NAME = re.compile(r"`((?:nv|zmqtriton)_\w+)`")
#: A metric in an expression, without what stands for a part of a histogram or a summary.
_USED = re.compile(r"(?<![\w:$])(?:nv|zmqtriton)_\w+(?![\w:])")
_PARTS = ("_bucket", "_sum", "_count")
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")


class Metric(NamedTuple):
    name: str
    kind: str
    #: As the page says it: `model` stands for a version's labels.
    labels: str
    #: Plain text.
    meaning: str

    @property
    def is_of_models(self) -> bool:
        return self.labels.startswith("model")


def read_table() -> dict[str, Metric]:
    """Return the metrics by their names, in the order of the page."""
    metrics: dict[str, Metric] = {}
    for line in PAGE.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        for name in _NAME.findall(cells[0]) if line.startswith("| `") else ():
            _, kind, labels, meaning = cells
            assert name not in metrics, f"{name} stands there twice"
            metrics[name] = Metric(name, kind, labels, _LINK.sub(r"\1", meaning).replace("`", ""))
    return metrics


def names_in(expression: str, table: dict[str, Metric]) -> list[str]:
    """Return the metrics that an expression of PromQL reads, in their order."""
    names = (_family(name, table) for name in _USED.findall(expression))
    return list(dict.fromkeys(names))


def _family(name: str, table: dict[str, Metric]) -> str:
    for part in _PARTS:
        whole = name.removesuffix(part)
        if whole != name and whole in table and table[whole].kind in ("histogram", "summary"):
            return whole
    return name
