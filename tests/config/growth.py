"""The growth of a function's CPU time with its input, on a machine with other work."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import TypeVar

_Input = TypeVar("_Input")

_TRIES = 10


def growth(call: Callable[[_Input], object], small: _Input, large: _Input) -> float:
    """Return how many times as much CPU time the large input takes; each the least of some.

    The collector goes over all objects of the test's process, and more often for a large
    input; the processor is slower for minutes. So the one is off and the inputs take turns.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        times = [(_once_s(call, small), _once_s(call, large)) for _ in range(_TRIES)]
    finally:
        if collects:
            gc.enable()
    return min(of_large for _, of_large in times) / min(of_small for of_small, _ in times)


def _once_s(call: Callable[[_Input], object], of: _Input) -> float:
    began = time.process_time()
    call(of)
    return max(time.process_time() - began, 1e-6)
