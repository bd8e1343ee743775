"""A frontend's report of one traced request: when it came and when it was answered.

Made by trace_sampling.py, carried by the checked request, and ended by whoever answers it.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, Protocol, TypeVar

from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_floor.spans import Sender

now_ns = time.monotonic_ns
_COMPLETE = "INFER_RESPONSE_COMPLETE"


class _Item(Protocol):
    """One response of a stream."""

    @property
    def error(self) -> ZmqTritonError | None: ...


_T = TypeVar("_T", bound=_Item)


class Trace:
    """Begins when the request was checked."""

    def __init__(self, sender: Sender, context: str, span: dict[str, Any]) -> None:
        self._sender = sender
        #: The traceparent of its span.
        self.context = context
        self._span = span
        self._marks: list[tuple[str, int]] = span["marks"]

    def mark(self, name: str) -> None:
        """Note that it has come so far, now."""
        self._marks.append((name, now_ns()))

    def fail(self, text: str) -> None:
        """Note that its answer is this error."""
        self._span["error"] = text
        if all(name != _COMPLETE for name, _ in self._marks):
            self.mark(_COMPLETE)

    def end(self, sending: str) -> None:
        """End it: its answer is on its way; only the first end counts."""
        sender, span = self._sender, self._span
        if "ended" not in span:
            span["ended"] = True
            self._marks += [(f"{sending}_START", now_ns()), (f"{sending}_END", now_ns())]
            sender.send(self.context, span)


@contextmanager
def ending(trace: Trace | None, sending: str) -> Iterator[None]:
    """End the trace after this block, in which the answer is made, whatever becomes of it."""
    if trace is None:
        yield
        return
    try:
        yield
    except ZmqTritonError as error:
        trace.fail(error.text)
        raise
    finally:
        trace.end(sending)


def followed(
    items: AsyncGenerator[_T, None], trace: Trace | None, sending: str
) -> AsyncGenerator[_T, None]:
    """Return the same responses.

    The trace ends with the last of them, or when nobody wants more.
    """
    return items if trace is None else _followed(items, trace, sending)


async def _followed(
    items: AsyncGenerator[_T, None], trace: Trace, sending: str
) -> AsyncGenerator[_T, None]:
    is_first = True
    with ending(trace, sending):
        async with aclosing(items):
            async for item in items:
                if is_first:
                    trace.mark(_COMPLETE)
                is_first = False
                if item.error is not None:
                    trace.fail(item.error.text)
                yield item
