"""The state of a preparation for a model: of an environment, or of a copy from a store."""

from __future__ import annotations

from typing import Any

from zmqtriton.long_steps import StepProgress
from zmqtriton_floor import wire


class PreparationStatus:
    """Keeps the latest that a preparation has reported."""

    def __init__(self, model: str, began_s: float, title: str = "") -> None:
        self._model = model
        self._began_s = began_s
        self._latest = StepProgress(title)

    def update(self, message: wire.PreparationProgress) -> None:
        self._latest = StepProgress(message.title, message.done, message.total)

    @property
    def phase(self) -> str:
        """The step that is taken now, in words."""
        return str(self._latest)

    def describe(self, now_s: float) -> dict[str, Any]:
        return {
            "model": self._model,
            "step": self._latest.title,
            "progress": self._latest.share,
            "seconds": round(now_s - self._began_s, 3),
        }
