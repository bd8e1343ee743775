"""The one thread that uses the store: work that arrives during a commit shares the next one.

The thread also has the marks of jobs in execution: a file that outlives the process, but not the
machine. A job begins on disk a moment before it is executed. After the death of the process the
marks show the executions that had begun, without a wait for the disk. After a power cut they are
not known.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from zmqtriton.sdk.files import check_owner
from zmqtriton.sdk.frontend import Threads
from zmqtriton.sdk.wire import Unavailable
from zmqtriton_extras.jobs.process.store import FULL, Limits, Refused, Store
from zmqtriton_extras.jobs.process.troubles import Trouble

_log = logging.getLogger(__name__)

_T = TypeVar("_T")
_MAX_A_COMMIT = 256
_OPEN_AGAIN_S = 1.0
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
#: The free bytes below which a disk is full: a new database and its log need as many.
_LEAST_BYTES = 256 << 10

_Waiting = tuple[Callable[[Store], Any], "asyncio.Future[Any]"]
_BOOT = Path("/proc/sys/kernel/random/boot_id")
#: Bytes of the head and of a mark. They divide a page, so that a kill never leaves half a mark.
_HEAD_BYTES, _MARK_BYTES = 64, 32
#: Number of marks with room on the disk from the start.
_USUAL = 256


class Marks:
    def __init__(self, path: Path, boot: str | None = None) -> None:
        """Read the file; `boot` identifies the machine's start. Raises OSError."""
        self._path = path
        self._file = -1
        self._head = _boot_id() if boot is None else boot
        head, *marks = _cut(path.read_bytes() if path.exists() else b"")
        is_known = bool(self._head) and head == self._head
        #: The jobs whose execution had begun and not ended when an earlier process ended; None if
        #: that is not known.
        self.earlier = frozenset(filter(None, marks)) if is_known else None
        self._free: list[int] = []
        self._places: dict[str, int] = {}

    def reset(self) -> None:
        """Drop the earlier marks, to begin new ones. Raises OSError."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._file = os.open(self._path, flags, 0o600)
        os.pwrite(self._file, bytes(_USUAL * _MARK_BYTES), _HEAD_BYTES)
        os.pwrite(self._file, self._head.encode(), 0)

    def begin(self, job: str) -> None:
        """Mark a job, whose execution may begin now. Raises OSError."""
        place = self._free.pop() if self._free else len(self._places)
        self._places[job] = place
        self._write(place, job.encode())

    def end(self, job: str) -> None:
        """Remove a job's mark, if there is one, after its end is on disk."""
        place = self._places.pop(job, None)
        if place is None:
            return
        self._free.append(place)
        with suppress(OSError):  # a mark too many is ignored
            self._write(place, bytes(_MARK_BYTES))

    def close(self) -> None:
        os.close(self._file)

    def _write(self, place: int, mark: bytes) -> None:
        os.pwrite(self._file, mark, _HEAD_BYTES + place * _MARK_BYTES)


def _cut(content: bytes) -> list[str]:
    """Return the head and the marks in a file's content."""
    ends = range(_HEAD_BYTES, len(content), _MARK_BYTES)
    parts = [content[:_HEAD_BYTES], *(content[at : at + _MARK_BYTES] for at in ends)]
    return [part.rstrip(b"\0").decode("ascii", "replace") for part in parts]


def _boot_id() -> str:
    """Return the id of the machine's start; "" if unknown."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""


class StoreThread:
    def __init__(
        self, directory: Path, limits: Limits, rooms: Iterable[Callable[[Store], None]] = ()
    ) -> None:
        """Set up; `rooms` prepare the store for their own tables."""
        self.directory, self._limits, self._rooms = directory, limits, list(rooms)
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        #: Done when this process is the one that has the jobs of the directory.
        self.opened: asyncio.Future[None] = self._loop.create_future()
        #: Error of the last attempt to open the store, which is repeated; None once it is open.
        self.problem: Exception | None = None
        self._writing = Trouble("jobs cannot be written", "jobs can be written again")
        #: Marks of the jobs that this process executes; there once the store is open.
        self.marks: Marks
        self._thread = threading.Thread(target=self._run, name="jobs-store", daemon=True)
        self._thread.start()

    def do(self, work: Callable[[Store], _T]) -> asyncio.Future[_T]:
        """Perform work in the next transaction; the future is done when that is durable."""
        future: asyncio.Future[_T] = self._loop.create_future()
        self._queue.put((work, future))
        return future

    async def attempt(
        self, work: Callable[[Store], _T], trouble: Trouble, who: str = ""
    ) -> _T | None:
        """Perform work that the caller will repeat; return None if it cannot be done now."""
        try:
            result = await self.do(work)
        except Exception as error:  # noqa: BLE001 - whatever it is, who repeats it goes on
            trouble.goes_on(error, who)
            return None
        trouble.ends(who)
        return result

    async def close(self) -> None:
        """End when all work is done."""
        self._queue.put(None)
        while self.opened.done() and self._thread.is_alive():
            await asyncio.sleep(0.01)

    # ------------------------------------------------------------- the thread

    def _run(self) -> None:
        lock = -1
        while (store := self._open(lock := self._lock() if lock < 0 else lock)) is None:
            time.sleep(_OPEN_AGAIN_S)
        Threads.settle(self.opened, None)
        while self._work_off(store):
            pass
        store.close()
        self.marks.close()
        os.close(lock)

    def _lock(self) -> int:
        """Wait until this process owns the directory; -1 if it cannot be used."""
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            check_owner(self.directory)
            lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self._note_problem(error)
            return -1
        # the process of another server, or this one's before, may still have it
        fcntl.flock(lock, fcntl.LOCK_EX)
        return lock

    def _open(self, lock: int) -> Store | None:
        """Open the store; None to try again later, for example on a full disk."""
        if lock < 0:
            return None
        try:
            store = Store(self.directory, self._limits)
            marks = Marks(self.directory / "executed")
            store.begin()
            lost = store.recover(marks.earlier)
            for prepare in self._rooms:
                prepare(store)
            store.commit()
            marks.reset()
        except (OSError, sqlite3.Error) as error:
            self._note_problem(error)
            return None
        self.marks = marks
        if lost:
            _log.warning("%d jobs ran when the server ended, and have failed", lost)
        return store

    def _note_problem(self, error: Exception) -> None:
        if self.problem is None:
            _log.error("%s cannot be used for jobs yet: %s", self.directory, error)
        self.problem = refusal_of(error, self.directory)

    def _work_off(self, store: Store) -> bool:
        """Perform the waiting work in one transaction; return False at the end."""
        waiting: list[_Waiting] = []
        is_ending = False
        item = self._queue.get()
        while True:
            if item is None:
                is_ending = True
                break
            waiting.append(item)
            if len(waiting) >= _MAX_A_COMMIT:
                break
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                break
        if waiting:
            self._transact(store, waiting)
        return not is_ending

    def _transact(self, store: Store, waiting: list[_Waiting]) -> None:
        results: list[tuple[Any, Exception | None]] = []
        changes = store.changes
        try:
            store.begin()
            for work, _ in waiting:
                results.append(_attempt(store, work))
            store.commit()
            if store.changes != changes:
                self._writing.ends()
        except (OSError, sqlite3.Error) as error:
            store.roll_back()
            self._writing.goes_on(error)
            results = [(None, refusal_of(error, self.directory))] * len(waiting)
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(_settle_all, waiting, results)


def _settle_all(waiting: list[_Waiting], results: list[tuple[Any, Exception | None]]) -> None:
    """Settle the futures of all work in a transaction, in one wake-up of their loop."""
    for (_, future), (result, problem) in zip(waiting, results, strict=True):
        Threads.settle_here(future, result, problem)


def _attempt(store: Store, work: Callable[[Store], Any]) -> tuple[Any, Exception | None]:
    """Perform a piece of work; return its result or error. Raises if the transaction has ended."""
    try:
        return store.attempt(work), None
    except Exception as error:
        if not store.is_in_transaction:
            raise
        return None, refusal_of(error, store.directory)  # whoever waits for it is told


def refusal_of(error: Exception, directory: Path | None = None) -> Exception:
    """Return the error for a client; of the disk's errors it shows only a full disk.

    SQLite reports a full disk as an I/O error if its shared index cannot grow, so for errors of
    SQLite the directory's free space is checked.
    """
    if isinstance(error, Unavailable):
        return Refused(503, error.text)
    if isinstance(error, sqlite3.Error):
        is_full = "full" in str(error) or (directory is not None and _is_full(directory))
    else:
        is_full = isinstance(error, OSError) and error.errno in _NO_SPACE
    return Refused(507, FULL) if is_full else error


def _is_full(directory: Path) -> bool:
    try:
        disk = os.statvfs(directory)
    except OSError:
        return False  # the directory itself cannot be used
    has_no_names = disk.f_files > 0 and disk.f_favail == 0
    return has_no_names or disk.f_bavail * disk.f_frsize < _LEAST_BYTES
