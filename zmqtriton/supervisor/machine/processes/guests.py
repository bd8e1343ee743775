"""Callers on the control socket that take part as frontends, and the instances that they run.

Their processes belong to users: none is ever signalled, and only their ends are noticed. Instead of
a kill, an instance is fenced off and its lifeline closed.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import time
from contextlib import ExitStack

from zmqtriton.config.parameters import CPU_WEIGHT, MAX_MEMORY_BYTES
from zmqtriton.environments.demand import GuestHost
from zmqtriton.supervisor.actions import SpawnStub
from zmqtriton.supervisor.events import EventRouter
from zmqtriton.supervisor.machine import clock
from zmqtriton.supervisor.machine.processes.child import Child, LivingChildren
from zmqtriton_floor import endpoints, execution_progress, wire
from zmqtriton_floor.lifeline import Lifeline, pair
from zmqtriton_floor.reasons import Kind, Reason

_log = logging.getLogger(__name__)

_GONE = Reason.of(Kind.GUEST_LEFT, "the process that has bound it has ended")
#: The signals that would end a process.
_DEADLY = (signal.SIGKILL, signal.SIGABRT)


class Guests:
    def __init__(
        self,
        selector: selectors.BaseSelector,
        listener: EventRouter,
        children: LivingChildren,
        directory: str,
    ) -> None:
        self._selector = selector
        self._listener = listener
        self._children = children
        self._directory = directory

    def admit(self, serial: int) -> None:
        """Let a caller take part."""
        guest = self._children.find(serial)
        if guest is None or guest.process is not None:
            return
        guest.pid, guest.is_guest = guest.caller_pid, True
        try:
            guest.pidfd = os.pidfd_open(guest.pid)
        except OSError as error:  # it is dead, or in a namespace that is not seen from here
            self._children.end(guest, Reason.of(Kind.NOT_STARTED, f"it cannot be watched: {error}"))
        else:
            # a fork of it may hold its lifeline open
            self._selector.register(
                guest.pidfd, selectors.EVENT_READ, lambda: self._handle_exit(guest)
            )
            self._listener.process_started(serial, guest.pid, clock.now_s())

    def _handle_exit(self, guest: Child) -> None:
        if self._children.find(guest.serial) is guest:
            self._children.end(guest, Reason.of(Kind.OTHER, "its process has ended"))

    # ------------------------------------------------------------- instances

    def start_instance(self, host: GuestHost, action: SpawnStub, page: int) -> None:
        """Let a guest run an instance, which owns the page from now on."""
        serial = action.serial
        guest = self._children.find(host.guest)
        if guest is None or not guest.is_guest:
            os.close(page)
            self._listener.process_ended(serial, _GONE)
            return
        with ExitStack() as ends, ExitStack() as own:
            own.callback(os.close, page)
            ours, theirs = pair()
            ends.callback(theirs.close)
            own.callback(ours.close)
            listener = endpoints.listen(self._directory, serial)
            ends.callback(os.close, listener)
            guest.lifeline.send(
                wire.HostInstance(host.binding, action.instance),
                theirs.fileno(),
                page,
                listener,
            )
            own.pop_all()
        child = Child(serial, guest.pid, progress_page=page, guest=guest.serial)
        # the user's process is not ours to limit, but its segments are
        child.quota = action.quota.of_segments()
        if action.quota != child.quota:
            _log.warning(
                "model '%s' runs in a user's process: %s and %s have no effect",
                action.model,
                MAX_MEMORY_BYTES,
                CPU_WEIGHT,
            )
        child.lifeline = Lifeline(ours)
        self._children.watch(child)
        self._listener.process_started(serial, guest.pid, clock.now_s())

    def signal(self, instance: Child, number: int) -> None:
        """Treat an instance as the signal would treat a process."""
        if number in _DEADLY:
            assert instance.progress_page is not None
            execution_progress.end(instance.progress_page)
            # what it begins at this moment is known to be begun by then
            time.sleep(execution_progress.FENCE_NS / 1e9)
            self._children.end(instance, Reason.of(Kind.OTHER, "it was ended"))

    def end_instances(self, guest: int, reason: Reason) -> None:
        """Forget the instances of a guest that has left."""
        for child in self._children.all():
            if child.guest == guest:
                self._children.end(child, reason)
