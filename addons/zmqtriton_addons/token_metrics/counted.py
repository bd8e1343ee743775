"""A request that has ended, as a frontend tells it to the process that adds up."""

from __future__ import annotations

from typing import NamedTuple


class Counted(NamedTuple):
    model: str
    version: str
    #: Tokens of its prompt, None if the model does not say, and those that were made.
    prompt: int | None
    made: int
    #: From its arrival to the first text, and the mean between tokens; None without.
    first_s: float | None = None
    per_token_s: float | None = None
    #: The name of its client's bearer token, and the limit of that; "" and 0 without.
    token: str = ""
    per_minute: int = 0
    #: The engine inside the model reports its tokens by the names of vLLM, too.
    is_reported: bool = False
