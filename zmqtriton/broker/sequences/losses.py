"""Sequences that are no more although nobody ended them, and why: their next request is told.

Kept by `sequences`. Knows no clock but what it is told.
"""

from __future__ import annotations

from collections import OrderedDict

from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_floor.wire import Correlation

#: Of so many it is known why.
_MOST = 10_000


class LostSequences:
    """Of one generation, whose sequences may be idle for so long."""

    def __init__(self, idle_ns: int) -> None:
        self._idle_ns = idle_ns
        self._causes: OrderedDict[Correlation, ZmqTritonError] = OrderedDict()
        #: What became of those that an earlier broker may have known, and until when they may be
        #: asked for; 0: nobody has asked for one yet.
        self._forgotten: ZmqTritonError | None = None
        self._until_ns = 0

    def assume_earlier_lost(self, cause: ZmqTritonError) -> None:
        """An earlier broker may have known sequences that this one does not."""
        self._forgotten = cause

    def add(self, correlation: Correlation, cause: ZmqTritonError) -> None:
        self._causes[correlation] = cause
        if len(self._causes) > _MOST:
            self._causes.popitem(last=False)

    def drop(self, correlation: Correlation) -> None:
        """Its next request need not be told."""
        self._causes.pop(correlation, None)

    def find_cause(self, correlation: Correlation, now_ns: int) -> ZmqTritonError | None:
        """None for one that there never was, as far as is known."""
        cause = self._causes.get(correlation)
        if cause is None and self._forgotten is not None:
            self._until_ns = self._until_ns or now_ns + self._idle_ns
            if now_ns < self._until_ns:
                cause = self._forgotten
                self.add(correlation, cause)
        return cause
