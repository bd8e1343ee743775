"""The owner of processes that do one task and end, as the rest of the core sees it. Only types."""

from __future__ import annotations

from typing import Any, Protocol

from zmqtriton_floor import wire
from zmqtriton_floor.reasons import Reason


class HelperOwner(Protocol):
    """Hears of the death of any process, and knows its own."""

    def process_started(self, serial: int, pid: int, started_s: float) -> None: ...

    def process_ended(self, serial: int, reason: Reason, last_words: str) -> None: ...

    def handle_result(self, serial: int, answer: wire.CallResult) -> bool:
        """Take a result; False if it is not of one of the owner's processes."""

    def handle_progress(self, serial: int, message: wire.PreparationProgress) -> None: ...

    def describe_processes(self) -> list[dict[str, Any]]:
        """Describe the processes, for the status."""

    def describe_preparations(self) -> list[dict[str, Any]]:
        """Describe how far each task is, for the status."""
