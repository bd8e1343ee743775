"""A server's shared memory that detects reads of tensors whose block is already free.

For debugging: the variable ZT_POISON in the environment of a server that runs from its sources
switches it on for all its processes. An owner fills a free block with a text that names the block
and the end of its leases, and keeps the block unused for a while. A reader looks into the files of
its arrays whenever an array begins or ends. A process logs each finding as an error that begins
with FOUND. The code also runs in models' processes, so on CPython 3.8.

It costs a plain server nothing: arenas and mappings are chosen once, when a process begins.
"""

from __future__ import annotations

import logging
import os
import struct
import sys
import traceback
from collections import deque
from itertools import islice
from typing import Any, Callable, Iterable, Iterator

from zmqtriton_floor.arena import IDLE_S, PAGE, Allocation, Arena, address_of
from zmqtriton_floor.leases import Leases
from zmqtriton_floor.mappings import REGIONS_FROM, Mappings
from zmqtriton_floor.process.named_tuples import NamedTuple
from zmqtriton_floor.wire import Block, FreeSegment, Reference, Tensor

#: The beginning of each finding in the log.
FOUND = "poison: "

#: Time within which a free block is not used again, and the most that is kept apart so.
KEPT_S = 2.0
KEPT_BLOCKS = 64
KEPT_BYTES = 32 << 20

#: The size of the text that is repeated over a block: a fraction of a page.
LINE_BYTES = 1024
#: The head of that text: a mark, owner, segment and block, and the length of the cause.
_HEAD = struct.Struct("<16s3QH")
_MARK = b"\x7fZT-FREE-BLOCK\x7f\x7f"
#: Filler of the rest: as a number it is tiny, and not zero.
_FILL = b"\xa5"
#: The unit of filling and comparing.
_STEP_BYTES = 64 * LINE_BYTES
#: Number of functions that name a place in the code.
_DEPTH = 4
#: Modules whose functions are the same in every place.
_PASSED_OVER = frozenset(
    (__name__, *(f"zmqtriton_floor.{name}" for name in ("arena", "leases", "mappings")))
)
#: Variables of the functions of such a place: numbers of requests and processes, and messages.
_NUMBERS = ("own_id", "peer", "source")
_MESSAGES = ("row", "work")
#: Number of changes of a block's leases that are remembered.
_CHANGES = 6
#: Number of free blocks whose causes are remembered.
_CAUSES = 1024

_log = logging.getLogger(__name__)


def log(text: str) -> None:
    """Log a finding in the name of the current instance, or of this process."""
    instances = sys.modules.get("zmqtriton_stub.instance")
    instance = instances and instances.here()
    if instance:
        instance.log("E", f"{text}, in {instance.name}")
    else:
        _log.error(text)


#: Texts of all findings of this process.
findings: list[str] = []
#: The way of a finding to the log.
say: Callable[[str], object] = log


def report(text: str) -> None:
    """Log a finding."""
    findings.append(text)
    say(FOUND + text)


class Poison(NamedTuple):
    """The text that fills a free block."""

    owner: int
    segment: int
    block: int
    #: Changes of its leases, the last one first.
    cause: str

    def encode(self) -> bytes:
        """Return the text of the poison, cut or filled up to LINE_BYTES."""
        cause = self.cause.encode("ascii", "replace")[: LINE_BYTES - _HEAD.size]
        head = _HEAD.pack(_MARK, self.owner, self.segment, self.block, len(cause))
        return (head + cause).ljust(LINE_BYTES, _FILL)


def decode(line: bytes) -> Poison | None:
    """Return the poison in a line; None if the line has something else.

    A body may leave the first bytes of its block as they were, so that its tensors are aligned.
    """
    if len(line) < _HEAD.size or not line.startswith(_MARK):
        return None
    _, owner, segment, block, size = _HEAD.unpack_from(line)
    cause = line[_HEAD.size : _HEAD.size + size].decode("ascii", "replace")
    poison = Poison(owner, segment, block, cause)
    return poison if poison.encode().startswith(line) else None


def _frames() -> Iterator[Any]:
    """Yield the running functions of the server, innermost first, except memory's own."""
    for frame, _ in traceback.walk_stack(sys._getframe(1)):
        name = frame.f_globals.get("__name__", "")
        if name.startswith("zmqtriton") and name not in _PASSED_OVER:
            yield frame


def place() -> str:
    """Return a description of the running functions, the last one first, with ids of requests."""
    names = []
    for frame in islice(_frames(), _DEPTH):
        module = frame.f_globals.get("__name__", "").rpartition(".")[2]
        values = frame.f_locals
        facts = [f"{name}={values[name]}" for name in _NUMBERS if type(values.get(name)) is int]
        ids = [getattr(values.get(name), "id", None) for name in _MESSAGES]
        facts += [f"id={own_id}" for own_id in ids if type(own_id) is int]
        request = f"({', '.join(facts)})" if facts else ""
        names.append(f"{module}.{frame.f_code.co_name}:{frame.f_lineno}{request}")
    return " < ".join(names)


def _tensors_in(block: Block) -> str:
    """Return the names of the tensors in a block that the callers are about to open.

    They are looked for in the variables of functions, so that plain calls carry no names.
    """
    names = []
    for frame in islice(_frames(), _DEPTH):
        for value in list(frame.f_locals.values()):
            rows = getattr(value, "outputs", None) or getattr(value, "inputs", None)
            for row in value if type(value) is list else rows if type(rows) is list else ():
                if type(row) is Tensor and type(row.data) is Reference and row.data[:3] == block:
                    names.append(row.name)
        if names:
            break
    return ", ".join(repr(name) for name in dict.fromkeys(names)) or "without a name"


class PoisonedLeases(Leases):
    """Leases, together with the functions that have changed them."""

    def __init__(self, changed: Callable[[], None]) -> None:
        """Set up; call `changed` after each change that may have freed a block."""
        super().__init__()
        self._changed = changed
        self._history: dict[int, deque[str]] = {}
        #: Causes by free block, the oldest first.
        self.causes: dict[int, str] = {}

    def begin(self, block: int) -> None:
        super().begin(block)
        self._history[block] = deque(["allocated by " + place()], _CHANGES)

    def add(self, blocks: Iterable[int]) -> None:
        super().add(self._noted(blocks, "one more lease by"))

    def end(self, blocks: Iterable[int], after: int = 0) -> None:
        super().end(self._noted(blocks, "the owner's lease ended by"), after)
        self._changed()

    def send(self, blocks: Iterable[int]) -> None:
        super().send(self._noted(blocks, "sent by"))

    def lend(self, blocks: Iterable[int]) -> None:
        super().lend(self._noted(blocks, "lent by"))

    def take_leases(self, blocks: Iterable[int]) -> None:
        # of answers that are repeated after a broker's death, which may have been read before it
        super().take_leases(self._noted(blocks, "lent by the broker, by way of", is_own=False))
        self._changed()

    def take_back(self, blocks: Iterable[int]) -> None:
        super().take_back(self._noted(blocks, "released by a reader, by way of", is_own=False))
        self._changed()

    def end_doubted(self) -> None:
        self._noted(self._doubted, "in doubt after a broker's death, and ended by")
        super().end_doubted()
        self._changed()

    def _noted(self, blocks: Iterable[int], what: str, *, is_own: bool = True) -> list[int]:
        """Record a change, and return its blocks; report blocks that are already free."""
        noted = list(blocks)
        text = f"{what} {place()}" if noted else ""
        for block in noted:
            history = self._history.get(block)
            if history is not None:
                history.append(text)
            elif is_own and block in self.causes:
                report(f"a lease of a free block: block {block}, {text}; {self.cause(block)}")
        return noted

    def cause(self, block: int) -> str:
        """Return the cause of a block's end."""
        return f"freed: {self.causes.get(block, 'long ago')}"

    def apply(self) -> list[int]:
        freed = super().apply()
        for block in freed:
            self.causes[block] = "; before: ".join(reversed(self._history.pop(block, ())))
            if len(self.causes) > _CAUSES:
                del self.causes[next(iter(self.causes))]
        return freed


class _Apart(NamedTuple):
    """A free block that may not be reused yet."""

    block: int
    segment: Any
    offset: int
    size: int
    #: Number of bytes that are filled, from its beginning on.
    filled: int
    line: bytes
    freed_s: float


class PoisonedArena(Arena):
    """An arena that fills free blocks, and delays their reuse."""

    def __init__(self, owner: int, **options: Any) -> None:
        super().__init__(owner, **options)
        self._histories = PoisonedLeases(self._apply_soon)
        self.leases = self._histories
        #: Free blocks that are not used again yet, the oldest first.
        self._apart: deque[_Apart] = deque()
        self._apart_bytes = 0
        #: A fork has the memory of its parent, which only that may fill.
        self._pid = os.getpid()

    def _apply_soon(self) -> None:
        """Fill free blocks at once, unless a thread is in the middle of another step."""
        is_inside = self._lock._is_owned()  # type: ignore[attr-defined] # by this thread
        if not is_inside and self._lock.acquire(blocking=False):
            try:
                self._apply_leases()
            finally:
                self._lock.release()

    def _apply_leases(self) -> None:
        now_s = self._clock()
        for block in self.leases.apply():
            segment, offset, size = self._used.pop(block)
            if self.segments.get(segment.number) is not segment or self._pid != os.getpid():
                segment.mend(offset, size)
                segment.left_s = now_s
                continue
            line = Poison(self.owner, segment.number, block, self._histories.causes[block]).encode()
            filled = self._fill(segment, offset, size, line)
            self._apart.append(_Apart(block, segment, offset, size, filled, line, now_s))
            self._apart_bytes += size
        while len(self._apart) > KEPT_BLOCKS or self._apart_bytes > KEPT_BYTES:
            self._mend(self._apart[0])

    @staticmethod
    def _fill(segment: Any, offset: int, size: int, line: bytes) -> int:
        """Fill the part of a block that has memory, and return its size."""
        end = offset + size if segment.pages is None else min(offset + size, segment.pages.made)
        step, memory = line * (_STEP_BYTES // LINE_BYTES), segment.memory
        for start in range(offset, end, _STEP_BYTES):
            stop = min(start + _STEP_BYTES, end)
            memory[start:stop] = step[: stop - start]
        return max(0, end - offset)

    def _mend(self, apart: _Apart) -> None:
        """Let a block be used again."""
        self._apart.remove(apart)
        self._apart_bytes -= apart.size
        segment, end = apart.segment, apart.offset + apart.filled
        step = apart.line * (_STEP_BYTES // LINE_BYTES)
        for start in range(apart.offset, end, _STEP_BYTES):
            stop = min(start + _STEP_BYTES, end)
            if segment.memory[start:stop] != step[: stop - start]:
                report(
                    f"a block was written after it was free: block {apart.block} of segment "
                    f"{segment.number} of process {self.owner}, after byte {start - apart.offset}; "
                    f"{self._histories.cause(apart.block)}"
                )
                break
        segment.mend(apart.offset, apart.size)
        segment.left_s = max(segment.left_s, apart.freed_s)

    def _allocate(self, size: int, segments: Any, is_users: bool) -> Allocation | None:
        allocation = super()._allocate(size, segments, is_users)
        while allocation is None and self._is_over(KEPT_S):
            self._mend(self._apart[0])
            allocation = super()._allocate(size, segments, is_users)
        return allocation

    def _is_over(self, kept_s: float) -> bool:
        """Return whether the oldest free block was kept apart for this time."""
        return bool(self._apart) and self._apart[0].freed_s <= self._clock() - kept_s

    def abandon(self, block: int) -> list[FreeSegment]:
        with self._lock:
            given_up = super().abandon(block)
            for apart in list(self._apart):
                segment = apart.segment
                if apart.block == block and not segment.is_pool:
                    self._mend(apart)
                    if segment.is_empty:
                        given_up.append(self._give_up(segment))
        return given_up

    def trim(self, idle_s: float = IDLE_S) -> list[FreeSegment]:
        with self._lock:
            if not self._is_inside:
                self._apply_leases()
                while self._is_over(idle_s):
                    self._mend(self._apart[0])
            return super().trim(idle_s)

    def next_trim_s(self) -> float | None:
        with self._lock:
            next_s = super().next_trim_s()
            if not self._apart:
                return next_s
            own_s = max(0.0, self._apart[0].freed_s + IDLE_S - self._clock())
            return own_s if next_s is None else min(next_s, own_s)

    def locate(self, view: memoryview) -> Reference | None:
        reference = super().locate(view)
        if reference is None:
            with self._lock:
                for apart in self._apart:
                    segment = apart.segment
                    if view.obj is segment.memory and segment.address:
                        data = address_of(view) - segment.address
                        if apart.offset <= data < apart.offset + apart.size:
                            report(
                                f"a tensor was passed on after its block was free: block "
                                f"{apart.block} of segment {segment.number} of process "
                                f"{self.owner}, by {place()}; {self._histories.cause(apart.block)}"
                            )
        return reference


class PoisonedMappings(Mappings):
    """The mappings of a poisoned server: they look for poison under arrays that are read."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        #: Tensors and readers of views, by the id() of the view.
        self._readers: dict[int, str] = {}
        self._reported: set[int] = set()

    def _open(
        self, block: Block, low: int, high: int, leased: list[Block], kept: object
    ) -> tuple[int, Any]:
        if block.segment >= REGIONS_FROM:
            return super()._open(block, low, high, leased, kept)
        reader = f"tensor {_tensors_in(block)}, opened by {place()}"
        segment = self._segments[block.owner, block.segment]
        is_free = self._look(segment, block, low // PAGE * PAGE, reader, "when it was opened")
        opened = super()._open(block, low, high, leased, kept)
        for key in [key for key in segment.views if key not in self._readers]:
            self._readers[key] = reader
            if is_free:
                self._reported.add(key)
        self._look_at_all()
        return opened

    def _close(self, view: Any) -> None:
        # a destructor must not wait
        if self.lock.acquire(blocking=False):
            try:
                self._look_at(view, "when its last array ended")
                self._look_at_all()
            finally:
                self.lock.release()
        super()._close(view)
        self._readers.pop(id(view), None)
        self._reported.discard(id(view))

    def detach(self, blocks: Iterable[Block]) -> None:
        blocks = list(blocks)
        with self.lock:
            self._look_at_all()
            super().detach(blocks)
            for view in self._views():
                # one whose array has just ended is read no more
                if view.block in blocks:
                    view.is_own = True

    def locate(self, data: memoryview) -> tuple[Reference, bool, Block] | None:
        with self.lock:
            self._look_at_all()
            return super().locate(data)

    def _look_at_all(self) -> None:
        """Look at all arrays that may still be read."""
        for view in self._views():
            if view() is not None:
                self._look_at(view, f"while it was kept, during {place()}")

    def _look_at(self, view: Any, when: str) -> None:
        segment, block = view.segment, view.block
        # a segment that its owner has dropped is not filled any more, and its file is closed
        if (
            not view.is_own
            and id(view) not in self._reported
            and self._segments.get((block.owner, block.segment)) is segment
        ):
            reader = self._readers.get(id(view), "unknown")
            if self._look(segment, block, view.start, reader, when):
                self._reported.add(id(view))

    def _look(self, segment: Any, block: Block, start: int, reader: str, when: str) -> bool:
        """Report a view whose block is free, or is within a later block that is free."""
        if block.segment >= REGIONS_FROM or not segment.size:
            return False
        if self._is_private:  # not its own copies of pages
            line = os.pread(segment.descriptor, LINE_BYTES, start)
        else:
            line = segment.memory[start : start + LINE_BYTES]
        poison = decode(line)
        if poison is None or poison[:2] != block[:2] or poison.block < block.block:
            return False
        later = "" if poison.block == block.block else f", now in block {poison.block}"
        report(
            f"a tensor was read after its block was free: block {block.block} of segment "
            f"{block.segment} of process {block.owner}{later}, {reader}; seen {when}; "
            f"freed: {poison.cause}"
        )
        return True
