"""Helper processes: each does one task for a part of the core, or for a feature."""

from __future__ import annotations

from typing import Any

from zmqtriton.long_steps import StepProgress
from zmqtriton_floor import wire
from zmqtriton_floor.reasons import Reason


class HelperOwner:
    """A part of the server that handles starts and deaths of processes, including its own ones."""

    def process_started(self, serial: int, pid: int, started_s: float) -> None:
        """Handle the start of a process that is not the broker or a frontend."""

    def process_ended(self, serial: int, reason: Reason, last_words: str) -> None:
        """Handle the end of such a process; `last_words` is its last line of output."""

    def handle_result(self, serial: int, answer: wire.CallResult) -> bool:
        """Process a result; False if it does not come from one of the owner's processes."""
        return False

    def handle_progress(self, serial: int, message: wire.PreparationProgress) -> None:
        """Record the progress of a process."""

    def describe_processes(self) -> list[dict[str, Any]]:
        """Describe the processes, for the status."""
        return []

    def describe_preparations(self) -> list[dict[str, Any]]:
        """Describe the progress of each task, for the status."""
        return []


class PreparationStatus:
    """The latest report of a preparation: of an environment, or of a copy from a store."""

    def __init__(self, model: str, began_s: float, title: str = "") -> None:
        self._model = model
        self._began_s = began_s
        self._latest = StepProgress(title)

    def update(self, message: wire.PreparationProgress) -> None:
        self._latest = StepProgress(message.title, message.done, message.total)

    @property
    def phase(self) -> str:
        """Return the present step, in words."""
        return str(self._latest)

    def describe(self, now_s: float) -> dict[str, Any]:
        return {
            "model": self._model,
            "step": self._latest.title,
            "progress": self._latest.share,
            "seconds": round(now_s - self._began_s, 3),
        }
