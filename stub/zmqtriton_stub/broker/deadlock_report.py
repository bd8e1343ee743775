"""A report on what the batches of this process wait for, when the broker suspects a deadlock.

Reports only certain waits: execute() of a batch cannot continue before one of some calls to other
models gets a reply. If a timer, a descriptor, another thread or unknown code could let it continue,
nothing is reported. It must neither change anything nor wait.
"""

from __future__ import annotations

import sys
import threading
import traceback
from typing import Any, Callable, Iterable, Optional

from zmqtriton_floor import wire
from zmqtriton_stub import instance as this_process
from zmqtriton_stub.broker.bls_call import BlsCall
from zmqtriton_stub.execution.executions import Executions
from zmqtriton_stub.model import PythonModel
from zmqtriton_stub.watch import Watch

#: None: it may go on by itself.
_Calls = Optional["set[BlsCall]"]
_NEVER: _Calls = None


class DeadlockReport:
    def __init__(self, watch: Watch, executions: Executions, model: PythonModel) -> None:
        self._watch = watch
        self._executions = executions
        self._model = model
        #: The thread of the instance, which makes this.
        self._main = threading.get_ident()

    def look(self, later: Callable[[], None]) -> list[wire.WaitEdge]:
        """Return for each blocked batch the calls that would let it continue.

        If another thread calls this while the main thread runs an event loop, that loop calls
        `later` with the result instead.
        """
        question = self._watch.of(self._main)
        if question is not None:
            return _awaits(0, {question})
        if threading.get_ident() != self._main:
            loop = self._main_loop()
            if loop is None:
                return _awaits(0, self._of_main_thread())
            loop.call_soon_threadsafe(later)
            return []
        asyncio: Any = sys.modules.get("asyncio")
        loop = None if asyncio is None else asyncio._get_running_loop()
        if loop is None or asyncio.current_task(loop) is not None or self._may_be_answered():
            return []
        return self._of_loop(loop, asyncio)

    # ------------------------------------------------------------ coroutines

    def _main_loop(self) -> Any:
        return next(
            (
                loop
                for loop in (self._model.event_loop, *self._watch.loops)
                if loop is not None
                and loop.is_running()
                and getattr(loop, "_thread_id", None) == self._main
            ),
            None,
        )

    def _of_loop(self, loop: Any, asyncio: Any) -> list[wire.WaitEdge]:
        timers = getattr(loop, "_scheduled", None)
        if timers is None or any(not t._cancelled and t._callback != loop.stop for t in timers):
            return []
        # Those in the background, too: they may end what the batch waits for.
        of_task = {task: self._of_future(task, asyncio, set()) for task in asyncio.all_tasks(loop)}
        if None in of_task.values():
            return []
        if self._model.slots > 1:
            calls = [
                (number, of_task.get(task)) for number, task in list(self._executions.tasks.items())
            ]
            return [row for number, questions in calls for row in _awaits(number, questions)]
        return _awaits(0, set().union(*of_task.values()))  # type: ignore[arg-type]

    def _of_future(self, future: Any, asyncio: Any, seen: set[Any]) -> _Calls:
        """Return the calls that a future waits for; None if it may end without them."""
        if future.done() or future in seen:
            return set() if future in seen else None
        seen.add(future)
        question = self._watch.futures.get(future)
        if question is not None:
            return _NEVER if question.is_answered or not question.inbox.empty() else {question}
        thread = _source(future)
        if thread is not None:
            return self._of_thread(_running(thread))
        if isinstance(future, asyncio.Task):
            needed = _members(future)
            if needed is None:
                needed = [future._fut_waiter] if future._fut_waiter is not None else None
        else:
            needed = getattr(future, "_children", None)
        left = [one for one in needed or () if not one.done()]
        return _union([self._of_future(one, asyncio, seen) for one in left]) if left else _NEVER

    # --------------------------------------------------------------- threads

    def _of_main_thread(self) -> _Calls:
        """Return the calls that the main thread waits for in execute(), outside of a call."""
        frame = _frames().get(self._main)
        if not self._executions.running or frame is None or self._may_be_answered():
            return None
        return self._of_thread(_joined(frame))

    def _of_thread(self, thread: int | None) -> _Calls:
        question = None if thread is None else self._watch.of(thread)
        return None if question is None else {question}

    def _may_be_answered(self) -> bool:
        """True if a thread may have a sender, and use it although the batch is blocked."""
        if not any(pending.senders for pending in self._executions.pending()):
            return False
        own_threads = {self._main, threading.get_ident(), *self._watch.threads}
        frames = _frames()
        if not frames:
            return threading.active_count() > len(own_threads)
        return any(thread not in own_threads and not _is_idle(frames[thread]) for thread in frames)


def _frames() -> dict[int, Any]:
    """Return the innermost frame of each thread; {} if threads run in parallel."""
    return {} if this_process.runs_in_parallel() else sys._current_frames()


def _awaits(batch: int, questions: _Calls) -> list[wire.WaitEdge]:
    return [wire.WaitEdge(batch, one.row.id, one.received) for one in questions or ()]


def _union(calls: Iterable[_Calls]) -> _Calls:
    every: set[BlsCall] = set()
    for questions in calls:
        if questions is None:
            return None
        every |= questions
    return every


def _members(task: Any) -> list[Any] | None:
    """Return the futures that a task waits for through asyncio; None if it waits otherwise."""
    coroutine = task.get_coro()
    while hasattr(getattr(coroutine, "cr_await", None), "cr_await"):
        coroutine = coroutine.cr_await
    frame: Any = getattr(coroutine, "cr_frame", None)
    module = None if frame is None else frame.f_globals.get("__name__")
    if module not in ("asyncio.tasks", "asyncio.taskgroups"):
        return None
    names = frame.f_locals
    if frame.f_code.co_name == "_wait" and names.get("timeout", 0) is None:
        return list(names["fs"])
    if frame.f_code.co_name in ("__aexit__", "_aexit"):
        return list(getattr(names.get("self"), "_tasks", ()))
    return None


def _source(future: Any) -> Any:
    """Return the thread pool's work that a future waits for, or None."""
    for entry in getattr(future, "_callbacks", None) or ():
        callback = entry[0] if type(entry) is tuple else entry
        if getattr(callback, "__qualname__", "") == "_chain_future.<locals>._call_check_cancel":
            names = callback.__code__.co_freevars
            return dict(zip(names, callback.__closure__))["source"].cell_contents
    return None


def _running(work: Any) -> int | None:
    """Return the pool's thread that runs this work now."""
    for thread, innermost in _frames().items():
        for frame, _ in traceback.walk_stack(innermost):
            if frame.f_globals.get("__name__") == "concurrent.futures.thread":
                item = frame.f_locals.get("self") or frame.f_locals.get("work_item")
                if getattr(item, "future", None) is work:
                    return thread
    return None


def _joined(innermost: Any) -> int | None:
    """Return the thread whose end or result this one waits for without a timeout."""
    for frame, _ in traceback.walk_stack(innermost):
        module, name = frame.f_globals.get("__name__"), frame.f_code.co_name
        if module not in ("threading", "concurrent.futures._base", "concurrent.futures.thread"):
            return None
        names = frame.f_locals
        if name in ("join", "result") and names.get("timeout", 0) is None:
            awaited = names.get("self")
            return getattr(awaited, "ident", None) if name == "join" else _running(awaited)
    return None


def _is_idle(frame: Any) -> bool:
    """True for a thread of a pool without work."""
    where = (frame.f_globals.get("__name__"), frame.f_code.co_name)
    return where == ("concurrent.futures.thread", "_worker")
