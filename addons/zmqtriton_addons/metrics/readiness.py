"""Readiness as Prometheus text: of the server, and of each version that should serve."""

from __future__ import annotations

from collections.abc import Iterator

from zmqtriton_addons.metrics.series import labels_text, model_labels
from zmqtriton_frontends.inference import Catalogue

_SERVER, _MODEL = "zmqtriton_ready", "zmqtriton_model_ready"


def render(catalogue: Catalogue) -> str:
    """Return the text; models that are unloaded, or wait for a first request, have no series."""
    lines = [
        f"# HELP {_SERVER} 1 if the server and all models that should serve can execute",
        f"# TYPE {_SERVER} gauge",
        f"{_SERVER} {int(catalogue.is_ready())}",
        f"# HELP {_MODEL} 1 if a version that should serve can execute",
        f"# TYPE {_MODEL} gauge",
        *_models(catalogue),
    ]
    return "".join(f"{line}\n" for line in lines)


def _models(catalogue: Catalogue) -> Iterator[str]:
    for name, versions in catalogue.versions().items():
        if not versions:  # it cannot be read
            yield f"{_MODEL}{labels_text(**model_labels(name, '', {}))} 0"
        for one in versions:
            if one.is_draining or not one.may_be_missing:
                labels = labels_text(**model_labels(name, str(one.version), one.config))
                yield f"{_MODEL}{labels} {int(one.is_ready and catalogue.may_be_asked)}"
