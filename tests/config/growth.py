"""The growth of a function's CPU time with its input, on a machine with other work."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

_Input = TypeVar("_Input")

_TRIES = 5


def growth(call: Callable[[_Input], object], small: _Input, large: _Input) -> float:
    """Return how many times as much CPU time the large input takes; each the least of some."""
    return _least_s(call, large) / _least_s(call, small)


def _least_s(call: Callable[[_Input], object], of: _Input) -> float:
    return min(_once_s(call, of) for _ in range(_TRIES))


def _once_s(call: Callable[[_Input], object], of: _Input) -> float:
    began = time.process_time()
    call(of)
    return max(time.process_time() - began, 1e-6)
