"""A thread that reads the output of all children, so that none waits for the supervisor.

Even if the loop is busy, a pipe is emptied as fast as a process may reasonably fill it. If no
thread can begin, the loop reads until the next process starts and a thread can begin.
"""

from __future__ import annotations

import logging
import os
import select
import selectors
import threading
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

_log = logging.getLogger(__name__)

_READ_BYTES = 65536
#: Pause in seconds before a full pipe is read again. It gives other pipes and the loop their turn,
#: and limits a flood to 30 MB/s.
_PAUSE_S = 0.002
#: Maximum number of reads from the pipe of a dead process: enough for a full pipe, though its
#: children may write forever.
_MOST_READS = 64


class Pipe(NamedTuple):
    """The reading end of a process's output pipe, and the receiver of its bytes."""

    descriptor: int
    take: Callable[[bytes], None]


class OutputReader:
    """Passes the data of each pipe to the pipe's function, which it calls in its thread."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        """Set up; without a thread, the loop of the selector reads."""
        self._selector = selector
        self._is_in_loop = False
        self._epoll = select.epoll()
        self._lock = threading.Lock()
        self._pipes: dict[int, Pipe] = {}
        self._thread: threading.Thread | None = None
        self._ours, self._theirs = os.pipe2(os.O_CLOEXEC)
        self._epoll.register(self._ours, select.EPOLLIN)

    def watch(self, pipe: Pipe) -> Pipe:
        """Own the pipe and read it, until `leave` or its end, which is b""."""
        os.set_blocking(pipe.descriptor, False)
        with self._lock:
            self._epoll.register(pipe.descriptor, select.EPOLLIN)
            self._pipes[pipe.descriptor] = pipe
        if self._thread is None:
            self._begin()
        return pipe

    def _begin(self) -> None:
        thread = threading.Thread(target=self._run, name="output", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            if not self._is_in_loop:
                self._is_in_loop = True
                self._selector.register(self._epoll, selectors.EVENT_READ, self._read_ready)
                _log.warning("the loop itself reads what processes print: %s", error)
        else:
            self._thread = thread
            self._leave_loop()

    def _leave_loop(self) -> None:
        if self._is_in_loop:
            self._is_in_loop = False
            self._selector.unregister(self._epoll)

    def read_now(self, pipe: Pipe, at_most: int = _MOST_READS) -> None:
        """Read the available bytes, in the calling thread."""
        with self._lock:
            for _ in range(at_most):
                if not self._is_open(pipe) or not self._read(pipe):
                    return

    def leave(self, pipe: Pipe) -> None:
        """Close the pipe after its last bytes were read."""
        self.read_now(pipe)
        with self._lock:
            if self._is_open(pipe):
                self._end(pipe)

    def close(self) -> None:
        """Close all remaining pipes, and end the thread."""
        for pipe in list(self._pipes.values()):
            self.leave(pipe)
        os.close(self._theirs)
        self._leave_loop()
        if self._thread is not None:
            self._thread.join()
        os.close(self._ours)
        self._epoll.close()

    def _is_open(self, pipe: Pipe) -> bool:
        return self._pipes.get(pipe.descriptor) is pipe

    def _run(self) -> None:
        while True:
            ready = [descriptor for descriptor, _ in self._epoll.poll()]
            if self._ours in ready:
                return
            if self._read_each(ready):
                time.sleep(_PAUSE_S)

    def _read_ready(self) -> None:
        """Read each pipe once, instead of the thread."""
        self._read_each([descriptor for descriptor, _ in self._epoll.poll(0)])

    def _read_each(self, descriptors: Iterable[int]) -> bool:
        """Read pipes once; return True if one was full."""
        was_full = False
        for descriptor in descriptors:
            with self._lock:
                pipe = self._pipes.get(descriptor)
                if pipe is not None:
                    was_full |= self._read(pipe) == _READ_BYTES
        return was_full

    def _read(self, pipe: Pipe) -> int:
        """Read once; return the number of bytes."""
        try:
            data = os.read(pipe.descriptor, _READ_BYTES)
        except BlockingIOError:
            return 0
        try:
            pipe.take(data)
        except Exception:  # noqa: BLE001 - the edge: the output of others is still to be read
            _log.exception("the output of a process is not read any more")
            data = b""
        if not data:
            self._end(pipe)
        return len(data)

    def _end(self, pipe: Pipe) -> None:
        del self._pipes[pipe.descriptor]
        self._epoll.unregister(pipe.descriptor)
        os.close(pipe.descriptor)
