"""The LLM tokens that each bearer token has left of its allowance per minute.

The number that a request takes is known at its end. So a request is admitted while something is
left, and tokens beyond that are a debt, which delays the next request. Has no clock.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

#: A bearer token by its name and its limit: a changed limit starts a new count.
Key = tuple[str, int]
_MINUTE_NS = 60 * 10**9
#: Maximum number of bearer tokens, as in the broker; the oldest is dropped.
_MAX_KEYS = 1000


class Counted(NamedTuple):
    """An ended request, as a frontend reports it to the process that adds up."""

    model: str
    version: str
    #: Tokens of its prompt, None if the model does not say, and those that were made.
    prompt: int | None
    made: int
    #: Seconds from its arrival to the first text, and the mean between tokens; None without.
    first_s: float | None = None
    per_token_s: float | None = None
    #: The name of its client's bearer token, and the limit of that; "" and 0 without.
    token: str = ""
    per_minute: int = 0
    #: The engine inside the model reports its tokens by the names of vLLM, too.
    is_reported: bool = False
    #: Tokens that were told while it went on.
    told: int = 0


class _Balance(NamedTuple):
    #: Negative in debt.
    tokens: float
    at_ns: int


class Allowances:
    def __init__(self) -> None:
        #: Balances of the bearer tokens that have used LLM tokens.
        self._balances: dict[Key, _Balance] = {}

    def use(self, key: Key, tokens: int, now_ns: int) -> None:
        """Take LLM tokens from an allowance, which may leave a debt."""
        self._put(key, _Balance(self._left(key, now_ns) - tokens, now_ns))

    def ready_ns(self, key: Key, now_ns: int, held: int = 0) -> int:
        """Return the time at which more than the `held` tokens are left; 0 is now."""
        missing = 1 + held - self._left(key, now_ns) if held or key in self._balances else 0
        return now_ns + int(missing * _MINUTE_NS / key[1]) if missing > 0 else 0

    def _left(self, key: Key, now_ns: int) -> float:
        tokens, at_ns = self._balances.get(key, (float(key[1]), now_ns))
        return min(key[1], tokens + key[1] * (now_ns - at_ns) / _MINUTE_NS)

    def _put(self, key: Key, balance: _Balance) -> None:
        self._balances.pop(key, None)
        self._balances[key] = balance
        if len(self._balances) > _MAX_KEYS:
            del self._balances[next(iter(self._balances))]

    # ------------------------------------------------------------ between processes

    def describe(self, now_ns: int) -> bytes:
        """Return the lines of all allowances that are not full."""
        return b"".join(self._line(key, now_ns) for key in self._balances)

    def describe_debt(self, key: Key, now_ns: int) -> bytes:
        """Return the line of an allowance that is used up; b"" if something is left."""
        return self._line(key, now_ns) if self.ready_ns(key, now_ns) else b""

    def _line(self, key: Key, now_ns: int) -> bytes:
        return json.dumps([*key, self._left(key, now_ns)]).encode() + b"\n"

    def take(self, row: list[Any], now_ns: int) -> Key:
        """Apply a line of another process, which has seen other requests; return its bearer token.

        The lower balance counts, because no process overestimates the use.
        """
        name, per_minute, tokens = row
        key = name, per_minute
        self._put(key, _Balance(min(tokens, self._left(key, now_ns)), now_ns))
        return key
