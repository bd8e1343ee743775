"""An instance in a process of its own, which the user's process starts with multiprocessing.

The model there does not share the interpreter's lock with the rest of the user's code. The process
is made as multiprocessing is set up: by default a fork, on any Python, or else a new interpreter
that gets the model's class as a pickle.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import select
import threading
from collections.abc import Callable, Iterator
from multiprocessing.reduction import DupFd
from typing import Any, NamedTuple

from zmqtriton_floor import wire
from zmqtriton_floor.errors import InternalError
from zmqtriton_floor.lifeline import Lifeline
from zmqtriton_stub.api import reason_of
from zmqtriton_stub.instance import StubInstance
from zmqtriton_stub.own_process import OwnProcess

#: Maximum time that a process may take to end after its lifeline has ended.
_END_WITHIN_S = 2.0
_MAX_TEXT = 4096

#: Lock of multiprocessing, which starts and reaps for one thread at a time.
_multiprocessing = threading.Lock()

#: Descriptor of this process's reports to the process that has started it; -1 in all others.
_reports_to = -1


def report(text: str) -> None:
    """Send a text to the process that has started this one."""
    if _reports_to >= 0:
        os.write(_reports_to, text.encode()[:_MAX_TEXT])


class Descriptors(NamedTuple):
    """The ends that an instance is started with."""

    lifeline: int
    page: int
    listener: int

    def close(self) -> None:
        for descriptor in self:
            os.close(descriptor)


class _Passed:
    """Descriptors on their way to a new process, which a fork has and others are sent."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = numbers

    def __reduce__(self) -> Any:
        return _received, tuple(map(DupFd, self.numbers))


def _received(*duplicates: Any) -> _Passed:
    return _Passed(*(duplicate.detach() for duplicate in duplicates))


def _context() -> Any:
    """Return multiprocessing's context as it is set, or by default the one that forks."""
    return multiprocessing.get_context(multiprocessing.get_start_method(allow_none=True) or "fork")


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Keep the garbage collector off, so that it is off in a process that is forked here."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class ProcessOfClass(OwnProcess):
    """A process that runs an instance of a class, which is given and not found in a file."""

    def __init__(self, model_class: Any) -> None:
        self._model_class = model_class

    def model_class(self, load: wire.LoadModel, instance: StubInstance) -> Any:
        return self._model_class


def _run(name: str, model_class: Any, passed: _Passed) -> None:
    """Run the instance; in the new process."""
    # garbage of the user's process is its own: to destroy it here, without its threads, may hang
    gc.freeze()
    gc.enable()
    from zmqtriton_stub import process

    global _reports_to
    lifeline, page, listener, _reports_to = passed.numbers
    os._exit(process.run(lifeline, page, listener, name, ProcessOfClass(model_class)))


class HostedProcess(threading.Thread):
    """The thread that starts the process and waits for its end."""

    def __init__(
        self,
        name: str,
        model_class: Any,
        ends: Descriptors,
        on_end: Callable[[Any], object],
        on_report: Callable[[str], object],
    ) -> None:
        """Set up; `on_end` is called at the end, on this thread."""
        super().__init__(name=f"zmqtriton {name}", daemon=True)
        self._instance = name
        self._model_class = model_class
        self._ends = ends
        self._on_report = on_report
        self._on_end = on_end

    def run(self) -> None:
        reports, theirs = os.pipe2(os.O_CLOEXEC)
        # what the supervisor does to a process, its end of the lifeline says of this one
        lifeline = Lifeline.inherited(os.dup(self._ends.lifeline))
        passed = _Passed(*self._ends, theirs)
        process = _context().Process(
            target=_run, args=(self._instance, self._model_class, passed), daemon=True
        )
        try:
            with _multiprocessing, _no_collection():
                process.start()
        except Exception as error:  # noqa: BLE001 - pickling may raise anything
            lifeline.send(wire.LoadFailed(reason_of(error), InternalError.number))
        finally:
            self._ends.close()
            os.close(theirs)
        if process.pid is not None:
            self._wait(process, lifeline, reports)
        lifeline.close()
        os.close(reports)
        self._on_end(self)

    def _wait(self, process: Any, lifeline: Lifeline, reports: int) -> None:
        """Wait for the end of the process; kill it if it outlives the supervisor's connection."""
        # not its sentinel, which any fork of this moment would hold open
        ended = os.pidfd_open(process.pid)
        poller = select.poll()
        poller.register(ended, select.POLLIN)
        poller.register(lifeline, 0)  # only its end
        poller.register(reports, select.POLLIN)
        events = dict(poller.poll())
        while ended not in events:
            if reports in events:
                text = os.read(reports, _MAX_TEXT)
                if text:
                    self._on_report(text.decode(errors="replace"))
                else:
                    poller.unregister(reports)
            if lifeline.fileno() in events:
                poller.unregister(lifeline)
                select.select([ended], [], [], _END_WITHIN_S)
                process.kill()
            events = dict(poller.poll())
        os.close(ended)
        with _multiprocessing:
            process.join()
            # one that the user's code has reaped at this very moment is not known to have ended
            with contextlib.suppress(ValueError):
                process.close()
