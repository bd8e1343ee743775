"""JSON in and out, as Triton reads and writes it: NaN and Infinity are numbers, depth is limited.

orjson does the work; the standard library is used where NaN or Infinity occur, which orjson can
neither read nor write.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import numpy as np
import orjson

from zmqtriton_floor import documents
from zmqtriton_floor.documents import LIMITS, STEP, DocumentError, unparsable
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_frontends.entrance.ask import Content, TakesLong
from zmqtriton_frontends.process import own_threads

#: Documents from this size on are read and written by a thread.
LARGE_BYTES = 64 << 10
#: Bytes of text that the loop counts itself, within a millisecond.
_COUNTED_BYTES = 512 << 10
#: The size of a text is limited where bodies are received.
_LIMITS = LIMITS._replace(bytes=sys.maxsize)
_INT64_MIN, _UINT64_MAX = -(2**63), 2**64 - 1

_Read = TypeVar("_Read")
#: Accounts for more memory of a request, or for less. Raises Unavailable.
Hold = Callable[[int], None]


async def read(hold: Hold, text: bytes, reader: Callable[[bytes], _Read]) -> _Read:
    """Return the reader's result for the text; a large text does not occupy the loop.

    Texts are read in pieces: each piece makes other threads wait. The request accounts for the
    document until it ends. Raises Unavailable without room for the document.
    """
    hold(await cost_of(text))
    return await perform(len(text), reader, text)


async def perform(
    size: int, work: Callable[..., _Read], *arguments: Any, large_bytes: int = LARGE_BYTES
) -> _Read:
    """Return the result of work on `size` bytes; a thread does the work if they are many."""
    return work(*arguments) if size < large_bytes else await aside(size, work, *arguments)


aside = own_threads.aside


def read_now(hold: Hold, text: bytes, work: Callable[..., Content], *arguments: Any) -> Content:
    """Return the result of work on a text. Raises TakesLong for a large one."""
    if len(text) < LARGE_BYTES:
        return work(text, *arguments)
    raise TakesLong(aside_with_room(hold, text, work, text, *arguments))


async def cost_of(text: bytes | memoryview) -> int:
    """Return the bytes that the document of a text will take; a thread counts in a large text.

    Raises InvalidArgument for a text beyond the limits.
    """
    return await perform(len(text), _cost_of, text, large_bytes=_COUNTED_BYTES)


def _cost_of(text: bytes | memoryview) -> int:
    with _reading():
        return documents.cost_of(bytes(text), _LIMITS)


@asynccontextmanager
async def room_for(hold: Hold, text: bytes | memoryview) -> AsyncIterator[None]:
    """Account for the document of a text during the block. Raises Unavailable without room."""
    size = await cost_of(text)
    hold(size)
    try:
        yield
    finally:
        hold(-size)


async def aside_with_room(
    hold: Hold, text: bytes | memoryview, work: Callable[..., _Read], *arguments: Any
) -> _Read:
    """Return the result of work on a document, which a thread reads and drops."""
    async with room_for(hold, text):
        return await aside(len(text), work, *arguments)


def parse(text: bytes) -> Any:
    """Parse a document. Raises InvalidArgument if it is malformed, too deep or too large."""
    if len(text) < LARGE_BYTES and text.count(b"[") + text.count(b"{") <= LIMITS.depth:
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            pass  # or NaN and Infinity are in it
    with _reading():
        return documents.parse(text, _parse_piece, _LIMITS)


@contextmanager
def opened(text: bytes) -> Iterator[Any]:
    """Parse a document for a block that keeps no list of it; a long one is then emptied in steps.

    Raises InvalidArgument.
    """
    with _reading(), documents.opened(text, _parse_piece, _LIMITS) as document:
        yield document


@contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except DocumentError as error:
        raise InvalidArgument(str(error)) from None


def _parse_piece(text: bytes, offset: int) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if b"NaN" in text or b"Infinity" in text:
            return _parse_with_nan(text, offset)
        reason = error.msg if text.strip() else "The document is empty."
        raise unparsable(reason, error.pos + offset if text.strip() else 0) from None


def _parse_with_nan(text: bytes, offset: int) -> Any:
    try:
        # functions in Python: this thread can give way during each
        document = json.loads(
            text.decode(), parse_int=_integer, parse_float=lambda digits: float(digits)
        )
        if b"\\u" in text:
            # escaped lone surrogates, which only this parser accepts, cannot be encoded later
            json.dumps(document, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise unparsable(error.msg, error.pos + offset) from None
    except UnicodeError:
        raise unparsable("str is not valid UTF-8", offset) from None
    return document


def _integer(digits: str) -> int | float:
    """Return an integer if 64 bits hold it, else a float, as orjson does."""
    if len(digits) <= 20 and _INT64_MIN <= int(digits) <= _UINT64_MAX:
        return int(digits)
    return float(digits)


def write(document: Any) -> bytes:
    """Write a document that may hold numpy arrays."""
    text = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    # our documents hold no None, so a null is a number that is not finite, or stands in a string
    return orjson.dumps(_with_all_numbers(document)) if b"null" in text else text


def pieces(document: Any) -> list[bytes]:
    """Write a document of any size in pieces, for a thread: others run between two pieces."""
    return documents.pieces(document, write)


def _with_all_numbers(value: Any) -> Any:
    """Return the document; lists and arrays with NaN or Infinity are replaced by fragments."""
    if type(value) is dict:
        return {key: _with_all_numbers(member) for key, member in value.items()}
    if type(value) is list and value and type(value[0]) is dict:
        return [_with_all_numbers(element) for element in value]
    if type(value) is np.ndarray:
        steps = (value[at : at + STEP] for at in range(0, len(value), STEP))
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
