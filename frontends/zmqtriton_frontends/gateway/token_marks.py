"""Marks requests with the token of their client; the broker applies its limits to them.

The broker of each epoch gets a token's name and limits before the first request with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from zmqtriton_floor import wire
from zmqtriton_floor.token_file import Grant
from zmqtriton_frontends.inference.admission import CheckedRequest


class TokenMarks:
    def __init__(self, ask_broker: Callable[[Any], None]) -> None:
        self._ask_broker = ask_broker
        #: Numbers of tokens by name and limits: a token whose limits change gets another number.
        self._numbers: dict[tuple[str, float, int], int] = {}

    def mark(self, request: CheckedRequest, grant: Grant) -> CheckedRequest:
        """Return the request of a client with this token."""
        options = request.options
        priority = options.priority
        if grant.highest_priority:
            priority = _lowered(priority, grant.highest_priority, request.model.config)
        options = options._replace(priority=priority, token=self._number_of(grant))
        return request._replace(options=options)

    def for_next_broker(self) -> Iterable[wire.Call]:
        """Return the calls that introduce all tokens to the next broker."""
        return [_call(number, key) for key, number in self._numbers.items()]

    def _number_of(self, grant: Grant) -> int:
        key = grant.name, grant.requests_per_second, grant.concurrency
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._numbers) + 1
            self._ask_broker(_call(number, key))
        return number


def _call(number: int, key: tuple[str, float, int]) -> wire.Call:
    name, rate, concurrency = key
    limits = {"requests_per_second": rate, "concurrency": concurrency}
    return wire.Call(0, "token", json.dumps({"name": name, "number": number, **limits}))


def _lowered(priority: int, highest: int, config: Any) -> int:
    """Return a priority no higher than the highest one; unchanged if a model has no levels."""
    batching = config.get("dynamic_batching") or {}
    levels = int(batching.get("priority_levels", 0))
    level = priority or int(batching.get("default_priority_level", 0))
    return min(max(level, highest), levels) if levels else priority
