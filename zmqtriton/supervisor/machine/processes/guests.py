"""Callers on the control socket that take part as frontends.

Their processes are the users' own: none is ever signalled, and their ends are only noticed.
"""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable, Mapping

from zmqtriton.supervisor.machine.guard import guarded
from zmqtriton.supervisor.machine.processes.child import Child, ChildListener


class Guests:
    def __init__(
        self,
        selector: selectors.BaseSelector,
        listener: ChildListener,
        children: Mapping[int, Child],
        receive: Callable[[Child], None],
        remove: Callable[[Child, str], None],
    ) -> None:
        """Set up; `receive` passes on what a child has sent, `remove` forgets one that is gone."""
        self._selector = selector
        self._listener = listener
        self._children = children
        self._receive = receive
        self._remove = remove

    def admit(self, serial: int) -> None:
        """Let a caller take part."""
        guest = self._children.get(serial)
        if guest is None or guest.process is not None:
            return
        guest.pid, guest.is_guest = guest.caller_pid, True
        try:
            guest.pidfd = os.pidfd_open(guest.pid)
        except OSError as error:  # it is dead, or in a namespace that is not seen from here
            self._remove(guest, f"it cannot be watched: {error}")
            return
        # a fork of it may hold its lifeline open
        self._selector.register(guest.pidfd, selectors.EVENT_READ, lambda: self._handle_exit(guest))
        self._listener.process_started(serial, guest.pid, time.time())

    def _handle_exit(self, guest: Child) -> None:
        if guest.serial in self._children:
            with guarded(f"what process {guest.pid} has sent"):
                self._receive(guest)
            self._remove(guest, "its process has ended")
