"""JSON in and out, as Triton reads and writes it: NaN and Infinity are numbers, depth is bounded.

orjson does the work; the standard library steps in where NaN or Infinity occur, which orjson knows
neither to read nor to write.
"""

from __future__ import annotations

import gc
import json
from typing import Any

import numpy as np
import orjson

from zmqtriton_floor.errors import InvalidArgument

MAX_DEPTH = 100

#: Arrays and objects in one document: each costs its reader thirty times the bytes of its text.
MAX_CONTAINERS = 1 << 21
#: Above this the garbage collector is told to wait: it would look at all that is read, many times.
_LARGE_BYTES = 1 << 20

_TOO_DEEP = f"JSON nesting depth exceeds maximum allowed limit ({MAX_DEPTH})"
_NOT_FINITE = (b"NaN", b"Infinity")
_CONTAINERS = (dict, list)
_INT64_MIN, _UINT64_MAX = -(2**63), 2**64 - 1


def parse(text: bytes) -> Any:
    """The document; raises InvalidArgument for what is none, nests too deep or is too much."""
    containers = text.count(b"[") + text.count(b"{")
    if containers > MAX_CONTAINERS:
        raise InvalidArgument(f"request JSON has more than {MAX_CONTAINERS} arrays and objects")
    if len(text) < _LARGE_BYTES:
        return _parse(text, containers)
    gc.disable()
    try:
        return _parse(text, containers)
    finally:
        gc.enable()


def _parse(text: bytes, containers: int) -> Any:
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if "depth" in error.msg or "ecursion" in error.msg:  # the text has changed over time
            raise InvalidArgument(_TOO_DEEP) from None
        if not any(word in text for word in _NOT_FINITE):
            reason = error.msg if text.strip() else "The document is empty."
            raise _unparsable(reason, error.pos if text.strip() else 0) from None
        document = _parse_with_nan(text)
    if containers > MAX_DEPTH and _is_too_deep(document):
        raise InvalidArgument(_TOO_DEEP)
    return document


def _unparsable(reason: str, position: int) -> InvalidArgument:
    return InvalidArgument(f"failed to parse the request JSON buffer: {reason} at {position}")


def _parse_with_nan(text: bytes) -> Any:
    try:
        document = json.loads(text.decode(), parse_int=_integer)
        if b"\\u" in text:
            # Escaped lone surrogates, which only this parser lets pass, cannot be encoded later.
            json.dumps(document, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise _unparsable(error.msg, error.pos) from None
    except UnicodeError:
        raise _unparsable("str is not valid UTF-8", 0) from None
    except RecursionError:
        raise InvalidArgument(_TOO_DEEP) from None
    return document


def _integer(digits: str) -> int | float:
    """An integer where 64 bits hold it, else a float, as orjson does."""
    if len(digits) <= 20 and _INT64_MIN <= int(digits) <= _UINT64_MAX:
        return int(digits)
    return float(digits)


def _is_too_deep(document: Any) -> bool:
    level = [document] if type(document) in _CONTAINERS else []
    for _ in range(MAX_DEPTH):
        if not level:
            return False
        deeper: list[Any] = []
        for container in level:
            values = container.values() if type(container) is dict else container
            # The set of types is made in C, so long lists of numbers cost little.
            if not {dict, list}.isdisjoint(map(type, values)):
                deeper += [value for value in values if type(value) in _CONTAINERS]
        level = deeper
    return bool(level)


def write(document: Any) -> bytes:
    """The text of a document that may hold numpy arrays."""
    text = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    # Our documents hold no None, so a null is a number that is not finite, or stands in a string.
    if b"null" in text:
        return json.dumps(
            document, ensure_ascii=False, separators=(",", ":"), default=np.ndarray.tolist
        ).encode()
    return text
