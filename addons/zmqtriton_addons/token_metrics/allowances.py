"""The tokens of text that bearer tokens have left of those of a minute.

How many a request takes is known at its end. So one is admitted while there is something left, and
what it takes beyond that is a debt, after which the next has to wait. Has no clock.
"""

from __future__ import annotations

import json
from typing import TypeVar

#: A bearer token by its name and its limit: one whose limit was changed begins anew.
Key = tuple[str, int]
_T = TypeVar("_T")
_MINUTE_NS = 60 * 10**9
#: As many bearer tokens as the broker tells apart; the oldest goes.
_MAX_KEYS = 1000


class Allowances:
    def __init__(self) -> None:
        #: The tokens that were left, and when that was.
        self._left: dict[Key, tuple[float, int]] = {}
        #: When those are ready that others have used up.
        self._of_others: dict[Key, int] = {}

    def use(self, key: Key, tokens: int, now_ns: int) -> None:
        """Take tokens of text, which may leave a debt."""
        _put(self._left, key, (self._now(key, now_ns) - tokens, now_ns))

    def ready_ns(self, key: Key, now_ns: int) -> int:
        """Return when there is something left; 0 for now."""
        missing = 1 - self._now(key, now_ns) if key in self._left else 0
        own_ns = now_ns + int(missing * _MINUTE_NS / key[1]) if missing > 0 else 0
        ready_ns = max(own_ns, self._of_others.get(key, 0))
        return ready_ns if ready_ns > now_ns else 0

    def _now(self, key: Key, now_ns: int) -> float:
        left, at_ns = self._left.get(key, (float(key[1]), now_ns))
        return min(key[1], left + key[1] * (now_ns - at_ns) / _MINUTE_NS)

    # ------------------------------------------------------------ between processes

    def describe(self, now_ns: int, *keys: Key) -> bytes:
        """Return the lines of those that have nothing left; of all without a key."""
        ready = ((key, self.ready_ns(key, now_ns)) for key in keys or self._left)
        return b"".join(json.dumps([*key, ns]).encode() + b"\n" for key, ns in ready if ns)

    def take(self, line: bytes) -> None:
        """Take a line of another process's."""
        name, per_minute, ready_ns = json.loads(line)
        _put(self._of_others, (name, per_minute), ready_ns)


def _put(table: dict[Key, _T], key: Key, value: _T) -> None:
    table.pop(key, None)
    table[key] = value
    if len(table) > _MAX_KEYS:
        del table[next(iter(table))]
