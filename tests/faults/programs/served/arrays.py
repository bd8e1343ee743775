"""Arrays whose elements tell which call they belong to.

Also part of each model. An element is `tag * ODD` modulo 2**64. Its tag has, from the top: 8 bits
of marks (what steps have added in place), 32 bits of the call, 4 bits of the input, and 20 bits of
the element's index. A product with the inverse of ODD gives the tag back.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

ODD = 0x9E3779B97F4A7C15
_WORD = 1 << 64
_INVERSE = pow(ODD, -1, _WORD)
_INDEX_BITS, _INPUT_BITS, _CALL_BITS = 20, 4, 32
_CALL_AT = _INDEX_BITS + _INPUT_BITS
_MARK_AT = _CALL_AT + _CALL_BITS
#: The longest array that can be made.
MAX_COUNT = 1 << _INDEX_BITS
#: Elements of one call whose sum is recognized.
_MOST_ADDENDS = 12

_steps: Any = np.empty(0, np.uint64)


class Origin(NamedTuple):
    """The place that an element was made for."""

    call: int
    number: int
    place: int
    marks: int

    def __str__(self) -> str:
        marks = f", marks {self.marks}" if self.marks else ""
        return f"element {self.place} of input {self.number} of call {self.call}{marks}"


def ramp(call: int, number: int, count: int) -> Any:
    """Return an input of a call."""
    global _steps
    if len(_steps) < count:
        _steps = np.arange(max(count, 1 << 17), dtype=np.uint64) * np.uint64(ODD)
    return _steps[:count] + _scaled(call << _CALL_AT | number << _INDEX_BITS)


def mark(array: Any, number: int) -> None:
    """Change each element in place."""
    array += _scaled(number << _MARK_AT)


def origin_of(element: int) -> Origin:
    tag = element * _INVERSE % _WORD
    return Origin(
        (tag >> _CALL_AT) % (1 << _CALL_BITS),
        (tag >> _INDEX_BITS) % (1 << _INPUT_BITS),
        tag % MAX_COUNT,
        tag >> _MARK_AT,
    )


def difference(expected: Any, actual: Any, calls: int) -> str:
    """Return the difference between two arrays in words, "" if they are equal.

    Calls have numbers up to `calls`.
    """
    if expected.shape != actual.shape:
        return f"{actual.shape} elements instead of {expected.shape}"
    if np.array_equal(expected, actual):
        return ""
    places = np.flatnonzero(expected != actual)
    first, last = int(places[0]), int(places[-1])
    held = actual[first : first + 1].tolist()[0]
    meant = expected[first : first + 1].tolist()[0]
    return (
        f"{len(places)} of {len(expected)} elements, from {first} to {last}: element {first} is "
        f"{_named(held, calls)}; expected is {_named(meant, calls)}"
    )


def _named(element: int, calls: int) -> str:
    """Return the origin of an element, which may be a sum of several elements of a call."""
    if not element:
        return "zero"
    origin = origin_of(element)
    for addends in range(1, _MOST_ADDENDS + 1):
        call, rest = divmod(origin.call, addends)
        if not rest and 0 < call <= calls and origin.number < 4 * addends:
            of_sum = f" ({addends} times)" if addends > 1 else ""
            return f"{origin._replace(call=call)}{of_sum}"
    return f"{element:#x}, of no call"


def _scaled(tag: int) -> Any:
    return np.uint64(tag * ODD % _WORD)
