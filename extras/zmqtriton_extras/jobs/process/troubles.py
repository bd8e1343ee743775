"""Log lines about lasting troubles: one at the beginning, and one at the end."""

from __future__ import annotations

import logging

_log = logging.getLogger(__name__)


class Trouble:
    """One kind of trouble, and the objects that have it."""

    def __init__(self, text: str, end: str) -> None:
        self._text, self._end = text, end
        #: Names of the tasks that have this trouble now.
        self._having: set[str] = set()

    def goes_on(self, error: Exception, who: str = "") -> None:
        """Record a failed attempt; the first one is logged."""
        if not self._having:
            _log.error("%s, and it is tried again: %s", self._text, error)
        self._having.add(who)

    def ends(self, who: str = "") -> None:
        """Record a successful attempt; the end of the last trouble is logged."""
        if who in self._having:
            self._having.remove(who)
            if not self._having:
                _log.warning("%s", self._end)
