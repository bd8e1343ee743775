"""The owner of processes that do one task and end, as the rest of the core sees it."""

from __future__ import annotations

from typing import Any

from zmqtriton_floor import wire
from zmqtriton_floor.reasons import Reason


class HelperOwner:
    """Hears of the death of any process, and knows its own; by default it has none."""

    def process_started(self, serial: int, pid: int, started_s: float) -> None:
        """Take note of any process but the broker and frontends."""

    def process_ended(self, serial: int, reason: Reason, last_words: str) -> None:
        """Take note of the end of such a process."""

    def handle_result(self, serial: int, answer: wire.CallResult) -> bool:
        """Take a result; False if it is not of one of the owner's processes."""
        return False

    def handle_progress(self, serial: int, message: wire.PreparationProgress) -> None:
        """Take the progress of a process."""

    def describe_processes(self) -> list[dict[str, Any]]:
        """Describe the processes, for the status."""
        return []

    def describe_preparations(self) -> list[dict[str, Any]]:
        """Describe how far each task is, for the status."""
        return []
