"""A frontend's connection to one broker, on its asyncio loop.

The gateway opens one for each epoch. Sends at once what the kernel takes, and the rest when it has
room; never blocks. Knows frames only.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from time import monotonic

from zmqtriton_floor.zmtp import Dealer

#: How long messages are passed on before others have their turn: an answer may be copied.
_TURN_S = 0.005

#: Does the rest of what a message asks for, step by step.
Steps = Iterator[None]


class BrokerConnection:
    """Calls `on_message` with the frames of each message, and `on_end` after the last."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        address: str,
        on_message: Callable[[list[bytes]], Steps | None],
        on_end: Callable[[], None],
    ) -> None:
        """Connect. Raises OSError if there is no descriptor for it.

        `on_message` may leave a part of a message to the steps that it returns.
        """
        self._loop = loop
        self._on_message = on_message
        self._on_end = on_end
        self._dealer = Dealer(address)
        self._is_writing = False
        #: Of the message before those of the dealer.
        self._steps: Steps | None = None
        #: The rest is read in the next turn.
        self._is_due = False
        self._is_closed = False
        #: Queues one message; flush() sends what is queued.
        self.put = self._dealer.put
        loop.add_reader(self._dealer.fileno(), self._read)

    def flush(self) -> None:
        self._dealer.flush()
        if self._dealer.is_blocked and not self._is_writing:
            self._is_writing = True
            self._loop.add_writer(self._dealer.fileno(), self._write_on)

    def _write_on(self) -> None:
        self._dealer.flush()
        if not self._dealer.is_blocked:
            self._is_writing = False
            self._loop.remove_writer(self._dealer.fileno())

    def read(self) -> None:
        """Pass on all that is here."""
        self._read(math.inf)

    def _read(self, until: float = 0.0) -> None:
        """Pass on the messages here, as many as the time allows; the others in the next turn."""
        dealer, until = self._dealer, until or monotonic() + _TURN_S
        messages = dealer.messages
        while self._steps is not None or dealer.has_input():
            while self._steps is not None or messages:
                if self._steps is None:
                    self._steps = self._on_message(messages.popleft())
                elif next(self._steps, self) is self:
                    self._steps = None
                if (messages or self._steps is not None) and monotonic() > until:
                    if not self._is_due:
                        self._is_due = True
                        self._loop.call_soon(self._go_on)
                    return
            if dealer.is_dry:
                dealer.is_dry = False
                break
        if not dealer.is_open and not self._is_closed:
            self._unwatch()
            self._on_end()

    def _go_on(self) -> None:
        self._is_due = False
        self._read()

    def _unwatch(self) -> None:
        self._loop.remove_reader(self._dealer.fileno())
        self._loop.remove_writer(self._dealer.fileno())

    def close(self) -> None:
        self._is_closed = True
        self._unwatch()
        self._dealer.close()
