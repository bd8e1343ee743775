"""Sequences that were ended by anything but their client, and why: their next request is told.

Kept by `batcher.py`. Knows no clock but the times it is given.
"""

from __future__ import annotations

from collections import OrderedDict

from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_floor.wire import Correlation

#: How many of them are remembered.
_MAX_CAUSES = 10_000


class LostSequences:
    """The lost sequences of one generation."""

    def __init__(self, idle_ns: int) -> None:
        self._idle_ns = idle_ns
        self._causes: OrderedDict[Correlation, ZmqTritonError] = OrderedDict()
        #: What became of the sequences of an earlier broker, and how long they may be asked for; 0
        #: until one was asked for.
        self._forgotten: ZmqTritonError | None = None
        self._until_ns = 0

    def assume_earlier_lost(self, cause: ZmqTritonError) -> None:
        """Assume that an earlier broker may have known sequences that this one does not."""
        self._forgotten = cause

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
            self._until_ns = self._until_ns or now_ns + self._idle_ns
            if now_ns < self._until_ns:
                cause = self._forgotten
                self.add(correlation, cause)
        return cause
