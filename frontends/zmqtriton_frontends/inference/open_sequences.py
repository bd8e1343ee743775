"""The sequences that a client has begun on one connection and has not ended.

While the server leaves, it does not end such a connection: another server does not know the
sequences.
"""

from __future__ import annotations

from collections.abc import Callable

from zmqtriton_floor.errors import Unavailable
from zmqtriton_floor.wire import SEQUENCE_END
from zmqtriton_frontends.inference.admission import CheckedRequest

#: Open sequences that are noted for a connection; a server that leaves does not wait for more.
_MAX_NOTED = 1024


class TooLateError(Unavailable):
    """Raised for a sequence that begins where it could not continue."""

    def __init__(self) -> None:
        super().__init__("Server exiting: begin the sequence at the next one")


class OpenSequences:
    def __init__(self, on_last_end: Callable[[], None] = lambda: None) -> None:
        """Set up; `on_last_end` is called when the last open sequence has ended."""
        self._open: set[tuple[str, int | str]] = set()
        self._on_last_end = on_last_end
        #: The client has had sequences here, so it may be between two.
        self.had_any = False
        #: Another server takes the client's next requests, so no sequence may begin here.
        self.is_over = False

    def __bool__(self) -> bool:
        return bool(self._open)

    def note(self, request: CheckedRequest) -> None:
        """Record a request that is about to be sent to the broker. Raises TooLateError."""
        options, model = request.options, request.model
        if not options.correlation or not model.has_sequences:
            return
        sequence = model.name, options.correlation
        self.had_any = True
        if options.flags & SEQUENCE_END:
            self._open.discard(sequence)
            if not self._open:
                self._on_last_end()
        elif self.is_over and request.begins_sequence:
            raise TooLateError
        elif len(self._open) < _MAX_NOTED:
            self._open.add(sequence)

    def clear(self) -> None:
        """Forget all sequences: the server has lost them, or their clients."""
        self._open.clear()
