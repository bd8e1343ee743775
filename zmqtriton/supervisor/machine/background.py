"""Threads of the supervisor for slow questions; the answers return to its loop."""

from __future__ import annotations

import logging
import selectors
import socket
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import TypeVar

from zmqtriton.supervisor.story import Promise

_log = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")

_ENDS_WITHIN_S = 1.0


class Worker:
    """A thread that runs tasks one after the other; it starts with the first task.

    If the machine allows no more threads, the calling loop runs the task itself and waits for it.
    """

    def __init__(self, selector: selectors.BaseSelector, name: str) -> None:
        self._selector = selector
        self._name = name
        self._tasks: SimpleQueue[Callable[[], Callable[[], None]] | None] = SimpleQueue()
        self._deliveries: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lacks_thread = False
        self._ours, self._theirs = socket.socketpair()

    def submit(self, task: Callable[[], _Answer]) -> Promise[_Answer]:
        """Let the task run; its answer comes in the loop of the selector."""
        answer = Promise[_Answer]()
        if self._thread is None and not self._begin():
            answer(task())
        else:
            self._tasks.put(lambda: partial(answer, task()))
        return answer

    def _begin(self) -> bool:
        """Begin the thread; return False if no thread can begin. The next task tries again."""
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            if not self._lacks_thread:
                self._lacks_thread = True
                _log.warning("the loop itself does the work of '%s': %s", self._name, error)
            return False
        self._thread = thread
        self._selector.register(self._ours, selectors.EVENT_READ, self._deliver)
        return True

    def close(self) -> None:
        """End the thread, unless it is in a call that the kernel does not end."""
        if self._thread is not None:
            self._tasks.put(None)
            self._thread.join(_ENDS_WITHIN_S)
            self._selector.unregister(self._ours)
        self._ours.close()
        self._theirs.close()

    def _deliver(self) -> None:
        for _ in self._ours.recv(64):
            self._deliveries.get()()

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            self._deliveries.put(task())
            try:
                self._theirs.send(b"!")
            except OSError:
                return  # nobody waits for it any more
