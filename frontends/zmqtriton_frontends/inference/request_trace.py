"""The observers of a request, such as its trace: its beginning, and its response.

Made by trace_sampling.py and by steps, kept in the checked request, and ended by the code that
answers it.
"""

from __future__ import annotations

import time
from typing import Any, Protocol

from zmqtriton_floor.spans import SpanSender
from zmqtriton_floor.wire import ResponseBody

now_ns = time.monotonic_ns
_COMPLETE = "INFER_RESPONSE_COMPLETE"


class Observer(Protocol):
    """An observer of one request from its check to its end. No method may raise."""

    #: The traceparent that its model gets; "" for none.
    context: str

    def take(self, response: ResponseBody, /) -> None:
        """Observe a response before the client has it."""

    def fail(self, error: Exception, /) -> None:
        """Observe an error instead of a response."""

    def end(self, sending: str, /) -> None:
        """Observe the end; only the first one counts. `sending` names the sending in traces."""


class Observers:
    """Several observers of one request."""

    def __init__(self, first: Observer, second: Observer) -> None:
        self.context = first.context or second.context
        self._each = first, second

    def take(self, response: ResponseBody) -> None:
        for observer in self._each:
            observer.take(response)

    def fail(self, error: Exception) -> None:
        for observer in self._each:
            observer.fail(error)

    def end(self, sending: str) -> None:
        for observer in self._each:
            observer.end(sending)


class Trace:
    """A trace, which begins when the request was checked."""

    def __init__(self, sender: SpanSender, context: str, span: dict[str, Any]) -> None:
        self._sender = sender
        #: The traceparent of its span.
        self.context = context
        self._span = span
        self._marks: list[tuple[str, int]] = span["marks"]

    def take(self, _: ResponseBody | None = None) -> None:
        """Record the time at which the response is complete, if this was not done before."""
        if all(name != _COMPLETE for name, _ in self._marks):
            self._marks.append((_COMPLETE, now_ns()))

    def fail(self, error: Exception) -> None:
        """Record an error, which ends the request."""
        self._span["error"] = str(error)

    def end(self, sending: str) -> None:
        """End the trace and send it, as the response is sent. Only the first end counts."""
        sender, span = self._sender, self._span
        if "ended" not in span:
            span["ended"] = True
            self.take()
            self._marks += [(f"{sending}_START", now_ns()), (f"{sending}_END", now_ns())]
            sender.send(self.context, span)
