"""The second lifelines of stubs whose models define is_ready.

A thread of the stub answers there while the main one may be in execute(). There is one question at
a time, so that nothing ever waits to be written.
"""

from __future__ import annotations

import os
import selectors
from collections.abc import Callable
from typing import Any

from zmqtriton_floor import wire
from zmqtriton_floor.lifeline import Lifeline, pair


class ReadinessLifelines:
    def __init__(
        self, selector: selectors.BaseSelector, received: Callable[[int, wire.CallResult], None]
    ) -> None:
        self._selector = selector
        self._on_answer = received
        self._lifelines: dict[int, Lifeline] = {}

    def open(self, serial: int) -> int:
        """Open a lifeline and return the stub's end, which the caller closes."""
        self.close(serial)
        ours, theirs = pair()
        self._lifelines[serial] = line = Lifeline(ours)
        self._selector.register(
            line, selectors.EVENT_READ, lambda: self._handle_input(serial, line)
        )
        return theirs.detach()

    def send(self, serial: int, message: Any) -> None:
        """Send a question; it is lost if there is no lifeline, and the caller's limit applies."""
        line = self._lifelines.get(serial)
        if line is not None:
            line.send(message)

    def _handle_input(self, serial: int, line: Lifeline) -> None:
        if self._lifelines.get(serial) is not line:
            return
        for message, descriptors in line.receive():
            for unexpected in descriptors:
                os.close(unexpected)
            if isinstance(message, wire.CallResult):
                self._on_answer(serial, message)
        if line.ended:
            self.close(serial)

    def close(self, serial: int) -> None:
        """Close the lifeline of a stub that is dead or has closed its end."""
        line = self._lifelines.pop(serial, None)
        if line is not None:
            self._selector.unregister(line)
            line.close()
