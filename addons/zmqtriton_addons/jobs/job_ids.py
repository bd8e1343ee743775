"""Ids of jobs: 26 letters, the time first and then 80 random bits (ULID)."""

from __future__ import annotations

import secrets
import time

_LETTERS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_RANDOM_BITS = 80


def new_id() -> str:
    number = (time.time_ns() // 1_000_000) << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)
    return "".join(_LETTERS[number >> 5 * place & 31] for place in reversed(range(26)))
