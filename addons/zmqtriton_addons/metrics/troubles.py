"""Causes of trouble with models, as Prometheus text: alerts name the cause with it.

A cause is the kind of a reason in lower case, as in `out_of_memory`; there are a few dozen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from zmqtriton_addons.metrics.series import labels_text, model_labels
from zmqtriton_floor.reasons import Reason

_NAME = "zmqtriton_model_trouble_info"
_HELP = (
    "1 for the cause why a version is not ready, why its last load failed, or why an instance ended"
)


def render(status: Mapping[str, Any], config_of: Callable[[str, int], Mapping[str, Any]]) -> str:
    """Return the text."""
    lines = {f"{_NAME}{_labels(row, config_of)} 1" for row in _rows(status)}
    head = f"# HELP {_NAME} {_HELP}", f"# TYPE {_NAME} gauge"
    return "".join(f"{line}\n" for line in (*head, *sorted(lines)))


def _rows(status: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from status.get("troubles", ())
    for process in status["processes"]:
        if process["role"] == "stub" and "why" in process:
            cause = Reason.from_document(process["why"]).innermost.kind
            yield {**process, "what": "instance", "cause": cause}


def _labels(row: Mapping[str, Any], config_of: Callable[[str, int], Mapping[str, Any]]) -> str:
    model, version = row["model"], str(row["version"])
    labels = model_labels(model, version, config_of(model, int(version or 0)))
    return labels_text(**labels, what=row["what"], cause=row["cause"].lower())
