"""Readiness as Prometheus text: of the server, and of each version that should serve; and why not.

Alerts get the cause of the trouble from these metrics: the kind of a reason in lower case, as in
`out_of_memory`; there are a few dozen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from zmqtriton.sdk.frontend import Gateway
from zmqtriton.sdk.wire import Reason
from zmqtriton_standard.metrics.model_metrics import head, labels_text, model_labels, text_of

_TROUBLE = "zmqtriton_model_trouble_info"
_TROUBLE_TEXT = (
    "1 for the cause why a version is not ready, why its last load failed, or why an instance ended"
)
_SERVER, _MODEL = "zmqtriton_ready", "zmqtriton_model_ready"


def render(gateway: Gateway) -> str:
    """Return the text; models that are unloaded, or wait for a first request, have no series."""
    return text_of(
        [
            *head(_SERVER, "1 if the server and all models that should serve can execute", "gauge"),
            f"{_SERVER} {int(gateway.catalogue.is_ready())}",
            *head(_MODEL, "1 if a version that should serve can execute", "gauge"),
            *_models(gateway),
        ]
    )


def _models(gateway: Gateway) -> Iterator[str]:
    catalogue = gateway.catalogue
    for name, versions in catalogue.versions().items():
        if not versions:  # it cannot be read
            yield f"{_MODEL}{labels_text(**model_labels(name, '', {}))} 0"
        for one in versions:
            if one.is_draining or not one.may_be_missing:
                labels = labels_text(**model_labels(name, str(one.version), one.config))
                yield f"{_MODEL}{labels} {int(one.is_ready and catalogue.may_be_asked)}"


def render_troubles(
    status: Mapping[str, Any], config_of: Callable[[str, int], Mapping[str, Any]]
) -> str:
    """Return the text about troubles of models and processes."""
    lines = {f"{_TROUBLE}{_labels(row, config_of)} 1" for row in _rows(status)}
    return text_of([*head(_TROUBLE, _TROUBLE_TEXT, "gauge"), *sorted(lines)])


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
