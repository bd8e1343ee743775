"""Finds processes that were stopped and do not go on."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from zmqtriton.supervisor.machine.processes.child import Child
from zmqtriton.supervisor.machine.processes.process import is_frozen, take_stopped_children

#: A process counts as frozen if it is found stopped so many times in a row: a profiler stops it for
#: moments.
_POLLS = 2


class FrozenProcesses:
    def __init__(self, children: Mapping[int, Child], report: Callable[[int], object]) -> None:
        self._children = children
        self._report = report
        #: Own children that may be stopped.
        self._stopped = set[int]()

    def poll(self) -> None:
        """Report processes that are frozen. To be called once a second."""
        self._stopped |= take_stopped_children()
        for child in list(self._children.values()):
            # The kernel tells of own children, since to look at a thousand takes long.
            if child.is_users or (child.process is not None and child.pid not in self._stopped):
                continue
            is_stopped = child.pid > 0 and is_frozen(child.pid)
            child.frozen_polls = child.frozen_polls + 1 if is_stopped else 0
            if not is_stopped:
                self._stopped.discard(child.pid)
            elif child.frozen_polls == _POLLS:
                self._report(child.serial)
