"""Checks of the names of outputs, for `zmqtriton check`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zmqtriton.sdk.models import Problem, Severity

#: Members of each response of generate, which hide outputs of these names, as in Triton.
RESERVED = ("id", "model_name", "model_version")


def warnings(config: Any) -> Iterator[Problem]:
    """Yield the outputs that `generate` cannot return."""
    for number, output in enumerate(config.output):
        if output.name in RESERVED:
            text = f"generate hides output '{output.name}' behind its own member of this name"
            yield Problem(text, ("output", number, "name"), severity=Severity.WARNING)
