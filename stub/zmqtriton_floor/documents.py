"""Documents of clients: counts JSON before it is read, and reads and writes it in pieces.

Parsers and writers in C hold the interpreter's lock for a whole text. So a long text is cut at
commas, each piece is parsed alone, and its values are put where they belong; other threads wait for
one piece. The parser and the writer are the caller's: orjson in frontends, the standard library's
in a model's process.
"""

from __future__ import annotations

import json
import secrets
from base64 import b64decode
from contextlib import contextmanager
from itertools import islice
from typing import Any, Callable, Iterator, List, NamedTuple, Tuple

import numpy as np

#: Bytes of text that are parsed in one go: some milliseconds at most. A loop waits for a piece each
#: time that it wants the interpreter's lock, which is a dozen times for a request.
PIECE_BYTES = 128 << 10
#: Elements of a value that are written in one go.
STEP = 1 << 14
#: Elements of a long list that are freed at a time; shorter lists are freed with their owner.
_FREED = 64
#: Bytes of text that are counted at a time.
_COUNTED_BYTES = 8 << 20
#: Letters of base64 that are decoded at a time, a multiple of 4.
_DECODED = 1 << 20


class DocumentError(ValueError):
    """Raised for a text that is not JSON, or that its reader refuses."""


class LargeDocumentError(DocumentError):
    """Raised for a document that exceeds its reader's limits."""


class DocumentLimits(NamedTuple):
    """Limits of one document."""

    bytes: int = 64 << 20
    #: Arrays and objects: each costs its reader thirty times the bytes of its text.
    containers: int = 1 << 21
    #: Members of all objects together: a key costs ten times what a number does.
    members: int = 1 << 20
    values: int = 1 << 23
    depth: int = 100


LIMITS = DocumentLimits()


def limits_of(size: int) -> DocumentLimits:
    """Return the limits of a document in a model's process: one value for each 64 bytes of it.

    There each value costs some microseconds, while other requests wait.
    """
    return DocumentLimits(size, *(max(1 << 16, size // part) for part in (256, 128, 64)))


#: Parses a text. The number is added to positions in errors.
Parser = Callable[[bytes, int], Any]

_QUOTE, _BACKSLASH, _COMMA, _COLON = b'"\\,:'
_MARKS = np.isin(np.arange(256), np.frombuffer(b"[]{},:", np.uint8))
_STEPS = np.zeros(256, np.int8)
_STEPS[[*b"[{"]], _STEPS[[*b"]}"]] = 1, -1
#: Keys of the member that a piece continues, and of one behind a piece. No client can guess them.
_FIRST, _LAST = secrets.token_hex(16), secrets.token_hex(16)
#: The beginning of a container that goes on within a member, by its bracket; the end of one that
#: goes on. An element of ours is at the place of the comma: it lets the parser see a missing one.
_HEADS = {b"[": b"[", b"{": f'{{"{_FIRST}":'.encode()}
_TAILS = {b"[": b",0", b"{": f',"{_LAST}":0'.encode()}
_CLOSING = {b"[": b"]", b"{": b"}"}
_CONTAINERS = (dict, list, np.ndarray)
#: Marks that a run of numbers lacks.
_OTHERS = tuple(bytes([mark]) for mark in b'"[]{}:')


#: Bytes of memory for each of these letters, as measured of documents in CPython: a value, a
#: container, half of a string's head, a member with its key.
_COSTS = ((b",", 32), (b"[", 64), (b"{", 64), (b'"', 12), (b":", 90))
#: Bytes of a letter in a string that has letters beyond ASCII.
_WIDE = 4


def cost_of(text: bytes, limits: DocumentLimits = LIMITS) -> int:
    """Return an estimate of the bytes that the document of a text takes in memory.

    Raises DocumentError for a text that is beyond the limits.
    """
    _check(text, limits)
    total = sum([_count(text, mark) * each for mark, each in _COSTS])
    for at in range(0, len(text), _COUNTED_BYTES):
        part = text[at : at + _COUNTED_BYTES]
        if b'"' in part:  # numbers cost nothing beside their values
            is_narrow = part.isascii() and b"\\u" not in part
            total += len(part) * (1 if is_narrow else _WIDE)
    return total


def unparsable(reason: str, position: int) -> DocumentError:
    return DocumentError(f"failed to parse the request JSON buffer: {reason} at {position}")


def parse_piece(text: bytes, offset: int) -> Any:
    """Parse a piece with the standard library. Raises DocumentError."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise unparsable(error.msg, error.pos + offset) from None
    except UnicodeError:
        raise unparsable("str is not valid UTF-8", offset) from None


def parse(text: bytes, parser: Parser = parse_piece, limits: DocumentLimits = LIMITS) -> Any:
    """Return the document of a text. Raises DocumentError, and the parser's errors."""
    return _read(text, parser, limits, [])


@contextmanager
def opened(text: bytes, parser: Parser, limits: DocumentLimits = LIMITS) -> Iterator[Any]:
    """Read a document for a `with` block, and empty its long lists and objects afterwards.

    The block must not keep any of them.
    """
    long: List[Any] = []
    try:
        yield _read(text, parser, limits, long)
    finally:
        for container in reversed(long):
            empty(container)


def empty(container: Any) -> None:
    """Drop the values of a long list, dict or array of objects, in steps."""
    while type(container) is dict and len(container) > _FREED:
        container.popitem()
    while type(container) is list and len(container) > _FREED:
        del container[-_FREED:]
    if type(container) is np.ndarray and container.dtype.hasobject and container.flags.writeable:
        for at in range(0, container.size, STEP):
            container.flat[at : at + STEP] = None


def _check(text: bytes, limits: DocumentLimits) -> int:
    """Return the number of brackets. Raises DocumentError before anything is built."""
    size = len(text)
    if size > limits.bytes:
        raise _too_many(limits.bytes, "bytes")
    containers = _count(text, b"[") + _count(text, b"{")
    # a value has 2 bytes at least, and a member 5
    is_small = containers <= limits.containers and (
        size <= min(2 * limits.values, 5 * limits.members)
        or (_count(text, b",") <= limits.values and _count(text, b":") <= limits.members)
    )
    if not is_small:  # unless that is in strings
        for _ in _Scan(text, limits):
            pass
    return containers


def _read(text: bytes, parser: Parser, limits: DocumentLimits, long: List[Any]) -> Any:
    size, containers = len(text), _check(text, limits)
    if size <= 2 * PIECE_BYTES and containers <= limits.depth:
        return parser(text, 0)
    builder = _Builder(text, parser, long)
    for piece in _Scan(text, limits):
        builder.add(piece)
    return builder.document


def _count(text: bytes, mark: bytes) -> int:
    steps = range(0, len(text), _COUNTED_BYTES)  # other threads run between them
    return sum([text.count(mark, at, at + _COUNTED_BYTES) for at in steps])


class _Piece(NamedTuple):
    begin: int
    end: int
    #: Depth of the outermost container that is still open behind the piece, of those before it.
    low: int
    #: Opening bracket of each container that is opened and not closed, and the place of its key.
    opened: List[Tuple[bytes, slice]]


class _Scan:
    """An iterator over the pieces of a text; counts their containers, members and values."""

    def __init__(self, text: bytes, limits: DocumentLimits) -> None:
        self._text, self._limits = text, limits
        self._view = np.frombuffer(text, np.uint8)
        self._is_inside = False
        #: True if the text so far ends with a backslash that escapes what follows.
        self._is_escaped = False
        self._depth = self._containers = self._members = self._values = 0

    def __iter__(self) -> Iterator[_Piece]:
        begin, size = 0, len(self._text)
        rest = np.empty(0, np.int64)
        for at in range(0, size, PIECE_BYTES):
            end = min(at + PIECE_BYTES, size)
            cut = -1 if len(rest) or end == size else self._cut_of_run(at, end)
            if cut >= 0:
                yield _Piece(begin, cut, self._depth, [])
                begin = cut + 1
                continue
            marks = np.concatenate((rest, self._marks(at, end)))
            kinds = self._view[marks]
            commas = np.flatnonzero(kinds == _COMMA)
            if end == size:
                yield self._piece(begin, size, marks, kinds)
            elif len(commas):
                cut = int(commas[-1])
                yield self._piece(begin, int(marks[cut]), marks[: cut + 1], kinds[: cut + 1])
                begin, rest = int(marks[cut]) + 1, marks[cut + 1 :]
            elif len(marks) > 4 * self._limits.depth:
                self._piece(begin, end, marks, kinds)  # raises if it is too deep
                raise unparsable("unexpected character", int(marks[0]))
            else:
                rest = marks

    def _cut_of_run(self, begin: int, end: int) -> int:
        """Return the place of the last comma of a run of numbers in one array; else -1."""
        text = self._text
        is_run = self._depth and not self._is_inside
        if not is_run or any(text.find(mark, begin, end) >= 0 for mark in _OTHERS):
            return -1
        self._values += text.count(b",", begin, end)
        if self._values > self._limits.values:
            raise _too_many(self._limits.values, "values")
        return text.rfind(b",", begin, end)

    def _marks(self, begin: int, end: int) -> Any:
        """Return the places of brackets, commas and colons outside strings."""
        view = self._view[begin:end]
        marks = np.flatnonzero(_MARKS[view])
        quotes = np.flatnonzero(view == _QUOTE)
        if self._is_escaped or self._text.find(b"\\", begin, end) >= 0:
            quotes = self._unescaped(view, quotes)
        was_inside, self._is_inside = self._is_inside, bool(self._is_inside ^ (len(quotes) & 1))
        if len(quotes):
            toggles = np.zeros(len(view), np.uint8)
            toggles[quotes] = 1
            marks = marks[np.bitwise_xor.accumulate(toggles)[marks] == was_inside]
        elif was_inside:
            marks = marks[:0]
        return marks + begin

    def _unescaped(self, view: Any, quotes: Any) -> Any:
        """Return the quotes without an odd number of backslashes before them."""
        escapes = np.flatnonzero(view == _BACKSLASH)
        places = np.arange(len(escapes))
        starts = np.diff(escapes, prepend=-2) > 1
        runs = np.maximum.accumulate(np.where(starts, places, 0))
        is_first = (runs == 0) & (escapes[:1] == 0).any()
        is_escaping = (places - runs + (is_first & self._is_escaped)) % 2 == 0
        escaped = np.zeros(len(view) + 1, bool)
        escaped[0] = self._is_escaped
        escaped[escapes[is_escaping] + 1] = True
        self._is_escaped = bool(escaped[-1])
        return quotes[~escaped[quotes]]

    def _piece(self, begin: int, end: int, marks: Any, kinds: Any) -> _Piece:
        steps, before = _STEPS[kinds], self._depth
        is_opening = steps > 0
        depths = before + np.cumsum(steps, dtype=np.int64)
        self._containers += int(np.count_nonzero(is_opening))
        self._members += int(np.count_nonzero(kinds == _COLON))
        self._values += int(np.count_nonzero(kinds == _COMMA))
        limits = self._limits
        if self._containers > limits.containers:
            raise _too_many(limits.containers, "arrays and objects")
        if self._members > limits.members:
            raise _too_many(limits.members, "members of objects")
        if self._values > limits.values:
            raise _too_many(limits.values, "values")
        if not len(marks):
            return _Piece(begin, end, before, [])
        if depths.max() > limits.depth:
            raise DocumentError(
                f"JSON nesting depth exceeds maximum allowed limit ({limits.depth})"
            )
        low = min(before, int(depths.min()))
        self._depth = int(depths[-1])
        if end < len(self._text) and (self._depth < 1 or (before and low < 1)):
            raise unparsable("unexpected character", end)
        lowest = np.minimum.accumulate(depths[::-1])[::-1]
        opened = []
        for number in np.flatnonzero(is_opening & (depths == lowest)).tolist():
            key = slice(0, 0)
            if number and kinds[number - 1] == _COLON:
                start = int(marks[number - 2]) + 1 if number > 1 else begin
                key = slice(start, int(marks[number - 1]))
            opened.append((bytes([kinds[number]]), key))
        return _Piece(begin, end, max(low, 0), opened)


def _too_many(limit: int, what: str) -> DocumentError:
    return LargeDocumentError(f"request JSON has more than {limit} {what}; send less at once")


class _Builder:
    """A document that grows by pieces."""

    def __init__(self, text: bytes, parser: Parser, long: List[Any]) -> None:
        self.document: Any = None
        self._text, self._parser, self._long = text, parser, long
        #: The brackets of the containers that are open, and these, from the outermost.
        self._brackets: List[bytes] = []
        self._open: List[Any] = []

    def add(self, piece: _Piece) -> None:
        begin, end, low, opened = piece
        base = max(low, 1) - 1
        head = b"".join([_HEADS[bracket] for bracket in self._brackets[base:]])
        head += b"0," if head else b""
        brackets = self._brackets[:low] + [bracket for bracket, _ in opened]
        is_last = end == len(self._text)
        tail = b"" if is_last else _TAILS[brackets[-1]]
        for bracket in [] if is_last else reversed(brackets[base:]):
            tail += _CLOSING[bracket]
        value = self._parser(head + self._text[begin:end] + tail, begin - len(head))
        if self._open:
            self._continue(self._open[base:], value)
        else:
            self.document = value
        del self._open[low:]
        if is_last:
            return
        for _, key in opened:
            if not self._open:
                container = self.document
            elif type(self._open[-1]) is dict:
                container = self._open[-1][self._parser(self._text[key], key.start)]
            else:
                container = self._open[-1][-1]
            self._open.append(container)
            self._long.append(container)
        self._brackets = brackets
        if type(self._open[-1]) is dict:
            self._open[-1].pop(_LAST)
        else:
            self._open[-1].pop()

    def _continue(self, containers: List[Any], value: Any) -> None:
        for container in containers:
            rest = value
            if type(container) is dict:
                value = rest.pop(_FIRST)
                container.update(rest)
            else:
                value = rest.pop(0)
                container += rest


# ----------------------------------------------------------------- writing


def is_long(value: Any) -> bool:
    """Return whether a value has more than STEP elements, including those of inner containers."""
    level, count = [value], 0
    while level:
        deeper: List[Any] = []
        for container in level:
            values = container.values() if type(container) is dict else container
            count += len(values)
            if count > STEP:
                return True
            # the set of types is made in C
            is_flat = {*_CONTAINERS}.isdisjoint(map(type, values))
            if type(container) is not np.ndarray and not is_flat:
                deeper += [each for each in values if type(each) in _CONTAINERS]
        level = deeper
    return False


def pieces(value: Any, writer: Callable[[Any], bytes]) -> List[bytes]:
    """Write a document of any size for a thread: other threads run between the pieces."""
    if type(value) not in _CONTAINERS or not is_long(value):
        return [writer(value)]
    parts: List[bytes] = []
    _add_elements(parts, value, writer)
    return [b"{", *parts, b"}"] if type(value) is dict else [b"[", *parts, b"]"]


def _add_elements(parts: List[bytes], value: Any, writer: Callable[[Any], bytes]) -> None:
    """Write the elements of a container, with commas between them."""
    is_object, size = type(value) is dict, len(value)
    if not is_long(value):
        parts.append(writer(value)[1:-1])
    elif size == 1:
        [each] = value
        parts += [writer(each), b":"] if is_object else []
        parts += pieces(value[each] if is_object else each, writer)
    else:
        # of lists in lists each takes few frames
        step = min(STEP, -(-size // 32))
        for begin in range(0, size, step):
            end = begin + step
            parts += [b","] if begin else []
            elements = dict(islice(value.items(), begin, end)) if is_object else value[begin:end]
            _add_elements(parts, elements, writer)


# ------------------------------------------------------------------ base64


def from_base64(text: str) -> bytes:
    """Return the bytes of a text in base64, in steps. Raises ValueError."""
    if 0 <= text.find("=") < len(text) - 2:
        raise ValueError("Only base64 data is allowed")
    steps = range(0, len(text), _DECODED)
    return b"".join([b64decode(text[at : at + _DECODED], validate=True) for at in steps])
