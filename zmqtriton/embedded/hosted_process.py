"""An instance in a process of its own, which the user's process starts with multiprocessing.

It is the user's code that runs there, without sharing the interpreter's lock with the rest. How the
process comes to be is what multiprocessing is set to: a fork, or a new interpreter that gets the
model's class as a pickle.
"""

from __future__ import annotations

import multiprocessing
import os
import select
import threading
from collections.abc import Callable
from multiprocessing.reduction import DupFd
from typing import Any, NamedTuple

from zmqtriton_floor import wire
from zmqtriton_floor.errors import InternalError
from zmqtriton_floor.lifeline import Lifeline
from zmqtriton_stub.api.errors import describe
from zmqtriton_stub.instance import Instance
from zmqtriton_stub.own_process import OwnProcess

#: A process whose lifeline has ended may take so long to end.
_END_WITHIN_S = 2.0
_MOST_TEXT = 4096

#: Descriptors of this process alone: a fork that had them would hide the end of another instance.
_own: set[int] = set()
#: Held while a process is started, which needs its own.
_starting = threading.Lock()

#: The descriptor by which this process reports to the one that has started it; -1 in all others.
_reports_to = -1


def _close_others() -> None:
    for descriptor in _own:
        os.close(descriptor)
    _own.clear()


os.register_at_fork(after_in_child=_close_others)


def report(text: str) -> None:
    """Tell the process that has started this one."""
    if _reports_to >= 0:
        os.write(_reports_to, text.encode()[:_MOST_TEXT])


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


class _ProcessOfClass(OwnProcess):
    """A process whose model is a class that it was started with."""

    def __init__(self, model_class: Any) -> None:
        self._model_class = model_class

    def model_class(self, load: wire.LoadModel, instance: Instance) -> Any:
        return self._model_class


def _run(name: str, model_class: Any, passed: _Passed) -> None:
    """Run the instance; in the new process."""
    from zmqtriton_stub import process

    global _reports_to
    lifeline, page, listener, _reports_to = passed.numbers
    os._exit(process.run(lifeline, page, listener, name, _ProcessOfClass(model_class)))


class HostedProcess(threading.Thread):
    """The thread that starts the process and waits for its end."""

    def __init__(
        self,
        name: str,
        model_class: Any,
        ends: Descriptors,
        on_report: Callable[[str], object],
    ) -> None:
        super().__init__(name=f"zmqtriton {name}", daemon=True)
        self._instance = name
        self._model_class = model_class
        self._ends = ends
        self._on_report = on_report
        _own.update(ends)
        #: Called at the end, on this thread.
        self.on_end: Callable[[Any], object]

    def run(self) -> None:
        reports, theirs = os.pipe2(os.O_CLOEXEC)
        # what the supervisor does to a process, its end of the lifeline says of this one
        line = os.dup(self._ends.lifeline)
        _own.update((reports, line))
        passed = _Passed(*self._ends, theirs)
        process = multiprocessing.get_context().Process(
            target=_run, args=(self._instance, self._model_class, passed), daemon=True
        )
        try:
            with _starting:
                _own.difference_update(self._ends)
                process.start()
        except Exception as error:  # noqa: BLE001 - pickling may raise anything
            told = Lifeline.inherited(os.dup(line))
            told.send(wire.LoadFailed(describe(error), InternalError.number))
            told.close()
        finally:
            self._ends.close()
            os.close(theirs)
        if process.pid is not None:
            self._wait(process, line, reports)
            process.close()
        _own.difference_update((reports, line))
        os.close(line)
        os.close(reports)
        self.on_end(self)

    def _wait(self, process: Any, line: int, reports: int) -> None:
        """Wait for the end, and bring it about if the supervisor has left the instance."""
        poller = select.poll()
        poller.register(process.sentinel, select.POLLIN)
        poller.register(line, 0)  # only its end
        poller.register(reports, select.POLLIN)
        while True:
            for descriptor, _ in poller.poll():
                if descriptor == process.sentinel:
                    process.join()
                    return
                if descriptor == reports and (text := os.read(reports, _MOST_TEXT)):
                    self._on_report(text.decode(errors="replace"))
                elif descriptor == reports:
                    poller.unregister(reports)
                else:
                    process.join(_END_WITHIN_S)
                    process.kill()
                    poller.unregister(line)
