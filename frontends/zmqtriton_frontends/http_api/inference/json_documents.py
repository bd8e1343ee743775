"""JSON in and out, as Triton reads and writes it: NaN and Infinity are numbers, depth is limited.

orjson does the work; the standard library is used where NaN or Infinity occur, which orjson can
neither read nor write.
"""

from __future__ import annotations

import asyncio
import gc
import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import orjson

from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_frontends.entrance.ask import Content, TakesLong

MAX_DEPTH = 100

#: Arrays and objects that one document may have: each costs its reader thirty times the bytes of
#: its text.
MAX_CONTAINERS = 1 << 21
#: Members that all its objects together may have: a key costs ten times what a number does.
MAX_MEMBERS = 1 << 20
#: Numbers and other values that it may have: orjson reads them all in one go, and others wait for
#: that.
MAX_VALUES = 1 << 23
#: Documents from this size on are read by a thread, and garbage collection pauses meanwhile: it
#: would look at all that is read, many times. So many bytes of numbers are written by a thread.
LARGE_BYTES = 1 << 20
#: Threads that read documents one after another, which also limits the memory that they take; but
#: no document waits for one that is much larger.
_lanes = ThreadPoolExecutor(1, "documents"), ThreadPoolExecutor(1, "large-documents")
#: Documents from this size on wait for each other only.
_VERY_LARGE_BYTES = 8 << 20
#: The end of a key. In a string it can only be the beginning of one that begins with a colon.
_KEY = re.compile(rb'(?<!\\)"\s*:')
#: Elements of a long array that are written at a time.
_STEP = 1 << 16

_TOO_DEEP = f"JSON nesting depth exceeds maximum allowed limit ({MAX_DEPTH})"
_NOT_FINITE = (b"NaN", b"Infinity")
_CONTAINERS = (dict, list)
_INT64_MIN, _UINT64_MAX = -(2**63), 2**64 - 1

_Read = TypeVar("_Read")


async def read(text: bytes, reader: Callable[[bytes], _Read]) -> _Read:
    """Return the reader's result for the text; the loop goes on if the text is large.

    orjson never gives way to other threads, but needs a fraction of the time of the rest.
    """
    return await perform(len(text), reader, text)


async def perform(
    size: int, work: Callable[..., _Read], *arguments: Any, large_bytes: int = LARGE_BYTES
) -> _Read:
    """Return the result of work on `size` bytes, done by a thread if they are many."""
    if size < large_bytes:
        return work(*arguments)
    return await aside(size, work, *arguments)


async def aside(size: int, work: Callable[..., _Read], *arguments: Any) -> _Read:
    """Run work on `size` bytes in a thread, one after the other, while the loop goes on."""
    lane = _lanes[size >= _VERY_LARGE_BYTES]
    return await asyncio.get_running_loop().run_in_executor(lane, work, *arguments)


def read_now(size: int, work: Callable[..., Content], *arguments: Any) -> Content:
    """Return the result of work on `size` bytes. Raises TakesLong where they are many."""
    if size < LARGE_BYTES:
        return work(*arguments)
    raise TakesLong(aside(size, work, *arguments))


def parse(text: bytes) -> Any:
    """Parse a document. Raises InvalidArgument if it is malformed, too deep or too large."""
    containers = text.count(b"[") + text.count(b"{")
    if containers > MAX_CONTAINERS:
        raise InvalidArgument(f"request JSON has more than {MAX_CONTAINERS} arrays and objects")
    is_large = len(text) >= LARGE_BYTES
    if is_large:
        _check_counts(text)
        gc.disable()
    try:
        try:
            document = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            document = _parse_again(text, error)
        if containers > MAX_DEPTH and _is_too_deep(document):
            raise InvalidArgument(_TOO_DEEP)
        return document
    finally:
        if is_large:
            gc.enable()


def _check_counts(text: bytes) -> None:
    if text.count(b",") > MAX_VALUES:
        raise InvalidArgument(f"request JSON has more than {MAX_VALUES} values")
    keys = enumerate(_KEY.finditer(text), 1)
    if text.count(b":") > MAX_MEMBERS and any(count > MAX_MEMBERS for count, _ in keys):
        raise InvalidArgument(f"request JSON has more than {MAX_MEMBERS} members of objects")


def _parse_again(text: bytes, error: orjson.JSONDecodeError) -> Any:
    """Parse what orjson has refused, if that was for NaN or Infinity."""
    if "depth" in error.msg or "ecursion" in error.msg:  # the text has changed over time
        raise InvalidArgument(_TOO_DEEP) from None
    if not any(word in text for word in _NOT_FINITE):
        reason = error.msg if text.strip() else "The document is empty."
        raise _unparsable(reason, error.pos if text.strip() else 0) from None
    return _parse_with_nan(text)


def _unparsable(reason: str, position: int) -> InvalidArgument:
    return InvalidArgument(f"failed to parse the request JSON buffer: {reason} at {position}")


def _parse_with_nan(text: bytes) -> Any:
    try:
        # functions in Python: this thread can give way during each
        document = json.loads(
            text.decode(), parse_int=_integer, parse_float=lambda digits: float(digits)
        )
        if b"\\u" in text:
            # escaped lone surrogates, which only this parser accepts, cannot be encoded later
            json.dumps(document, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise _unparsable(error.msg, error.pos) from None
    except UnicodeError:
        raise _unparsable("str is not valid UTF-8", 0) from None
    except RecursionError:
        raise InvalidArgument(_TOO_DEEP) from None
    return document


def _integer(digits: str) -> int | float:
    """Return an integer if 64 bits hold it, else a float, as orjson does."""
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
            # the set of types is made in C, so long lists of numbers cost little
            if not {dict, list}.isdisjoint(map(type, values)):
                deeper += [value for value in values if type(value) in _CONTAINERS]
        level = deeper
    return bool(level)


def write(document: Any) -> bytes:
    """Write a document that may hold numpy arrays."""
    text = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    # our documents hold no None, so a null is a number that is not finite, or stands in a string
    return orjson.dumps(_with_all_numbers(document)) if b"null" in text else text


def pieces(document: dict[str, Any], rows: str, elements: str) -> list[bytes]:
    """Write a document in pieces, for a thread: others go on between them.

    Its last member is an array of objects; some of them have an array as their last member.
    """
    first = {key: value for key, value in document.items() if key != rows}
    parts = [write(first)[:-1] + (b"," if first else b"") + write(rows) + b":["]
    for i, row in enumerate(document[rows]):
        named = {key: value for key, value in row.items() if key != elements}
        parts.append((b"," if i else b"") + write(named)[:-1])
        if elements in row:
            parts.append(b"," + write(elements) + b":[")
            parts += _in_steps(row[elements])
            parts.append(b"]")
        parts.append(b"}")
    return [*parts, b"]}"]


def members(document: dict[str, Any]) -> list[bytes]:
    """Write a document whose members may be long arrays, in pieces, too."""
    parts = [b"{"]
    for i, (key, value) in enumerate(document.items()):
        parts.append((b"," if i else b"") + write(key) + b":")
        if type(value) in (list, np.ndarray):
            parts += [b"[", *_in_steps(value), b"]"]
        else:
            parts.append(write(value))
    return [*parts, b"}"]


def _in_steps(values: Any) -> Iterator[bytes]:
    for at in range(0, len(values), _STEP):
        step = values[at : at + _STEP]
        text = _numbers(step) if type(values) is np.ndarray else write(step)[1:-1]
        yield b"," + text if at else text


def _with_all_numbers(value: Any) -> Any:
    """Return the document with lists and arrays as fragments that contain NaN and Infinity."""
    if type(value) is dict:
        return {key: _with_all_numbers(member) for key, member in value.items()}
    if type(value) is list and value and type(value[0]) is dict:
        return [_with_all_numbers(element) for element in value]
    if type(value) is np.ndarray:
        steps = (value[at : at + _STEP] for at in range(0, len(value), _STEP))
        return orjson.Fragment(b"[" + b",".join(map(_numbers, steps)) + b"]")
    if type(value) in (list, float):
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return orjson.Fragment(text.encode())
    return value


def _numbers(array: np.ndarray[Any, Any]) -> bytes:
    """Write numbers with commas between them."""
    text = orjson.dumps(array, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1]
    if b"null" not in text:
        return text
    others = array[~np.isfinite(array)]
    if np.isnan(others).all():
        return text.replace(b"null", b"NaN")
    pieces: list[Any] = [b""] * (2 * len(others) + 1)
    pieces[::2] = text.split(b"null")
    infinities = np.where(others > 0, b"Infinity", b"-Infinity")
    pieces[1::2] = np.where(np.isnan(others), b"NaN", infinities).tolist()
    return b"".join(pieces)
