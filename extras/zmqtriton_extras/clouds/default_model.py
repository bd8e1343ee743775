"""Vertex AI's endpoints need a model for requests that name none; without it no server starts."""

from __future__ import annotations

from collections.abc import Sequence

from zmqtriton.sdk.supervisor import CoreParts, Feature
from zmqtriton_extras.clouds import NO_DEFAULT

_REFUSAL = "failed to start Vertex AI service: Invalid argument"


class DefaultModel(Feature):
    def __init__(self, core: CoreParts) -> None:
        option = core.info.settings.frontend.option
        self._is_needed = bool(option("allow_vertex_ai"))
        self._name = str(option("vertex_ai_default_model"))

    def start_problem(self, ready: Sequence[str]) -> str:
        problem = ""
        if self._name and self._name not in ready:
            problem = f"Expect the default model '{self._name}' is loaded"
        elif not self._name and len(ready) != 1:
            problem = NO_DEFAULT
        return f"{_REFUSAL} - {problem}" if self._is_needed and problem else ""
