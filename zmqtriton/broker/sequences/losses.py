"""Sequences that were ended by anything but their client, and why: their next request is told.

Kept by `batcher.py`. Knows no clock but the times it is given.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_floor.wire import Correlation

#: How many of them are remembered.
_MAX_CAUSES = 10_000


class LostSequences:
    """The lost sequences of one generation."""

    def __init__(self, idle_ns: int) -> None:
        self._idle_ns = idle_ns
        self._causes: OrderedDict[Correlation, ZmqTritonError] = OrderedDict()
        #: What became of the sequences of an earlier broker.
        self._forgotten: ZmqTritonError | None = None
        self._recovered_ns: Callable[[], int] = lambda: 0

    def assume_earlier_lost(self, cause: ZmqTritonError, recovered_ns: Callable[[], int]) -> None:
        """Assume that an earlier broker may have known sequences that this one does not.

        `recovered_ns` returns since when all its clients are here again, 0 before; they may have
        left a sequence idle for as long as any.
        """
        self._forgotten, self._recovered_ns = cause, recovered_ns

    def add(self, correlation: Correlation, cause: ZmqTritonError) -> None:
        self._causes[correlation] = cause
        if len(self._causes) > _MAX_CAUSES:
            self._causes.popitem(last=False)

    def drop(self, correlation: Correlation) -> None:
        """Forget a sequence whose next request need not be told."""
        self._causes.pop(correlation, None)

    def find_cause(self, correlation: Correlation, now_ns: int) -> ZmqTritonError | None:
        """Return why a sequence was lost; None if it is not known to have existed."""
        cause = self._causes.get(correlation)
        if cause is None and self._forgotten is not None:
            since_ns = self._recovered_ns()
            if not since_ns or now_ns < since_ns + self._idle_ns:
                cause = self._forgotten
                self.add(correlation, cause)
        return cause
