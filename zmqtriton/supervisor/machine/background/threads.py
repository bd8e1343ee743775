"""The threads of the supervisor."""

from __future__ import annotations

import selectors
from collections.abc import Callable
from typing import Any

from zmqtriton.supervisor.machine.background.memory_gauge import MemoryGauge


class Background:
    """The parts that have a thread each, once they are asked."""

    def __init__(
        self, selector: selectors.BaseSelector, answer: Callable[[int, Any], None]
    ) -> None:
        """Set up; `answer` gets the ticket of an action and its outcome."""
        self.gauge = MemoryGauge(selector, answer)

    def close(self) -> None:
        self.gauge.close()
