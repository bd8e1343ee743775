"""How much memory clients get for what they have announced and not sent, all of them together.

Asked where a large body begins, over HTTP and over gRPC: who has sent a part of it is believed in
any case, by rules that stand there.
"""

from __future__ import annotations


class Belief:
    """Of one process."""

    def __init__(self, most: int = 64 << 20) -> None:
        self._left = most

    def take(self, size: int) -> int:
        """The size, to be given back when the body has come or will not; 0 where that is too much
        at the moment."""
        if size > self._left:
            return 0
        self._left -= size
        return size

    def give_back(self, size: int) -> None:
        self._left += size
