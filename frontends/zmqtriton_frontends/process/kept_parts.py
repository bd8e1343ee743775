"""Parts of a message that lie in the memory of others, copied a step at a time.

A client that does not read would keep a model's memory otherwise. One copy of a large message would
hold the loop for as long as a hundred small requests take.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import Any

_STEP_BYTES = 1 << 20


def copy_some(parts: MutableSequence[Any]) -> bool:
    """Copy at most a step of the first part that lies in the memory of others.

    Return False if all parts are our own. Parts that are sent in between may leave at the front.
    """
    for index, part in enumerate(parts):
        if type(part) is bytes or type(part.obj) is bytes:
            continue
        parts[index] = memoryview(bytes(part[:_STEP_BYTES]))
        if len(part) > _STEP_BYTES:
            parts.insert(index + 1, part[_STEP_BYTES:])
        return True
    return False
