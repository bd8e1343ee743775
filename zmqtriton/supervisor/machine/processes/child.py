"""The data of one child, and the keepers of parts of all children.

`children.py` starts them, receives their messages, signals and reaps them.
"""

from __future__ import annotations

import os
import selectors
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from zmqtriton.config.parameters import NO_QUOTA, Quota
from zmqtriton.supervisor.events import EventRouter
from zmqtriton.supervisor.machine.processes.output import StubOutput
from zmqtriton.supervisor.machine.processes.process import (
    ChildProcess,
    is_frozen,
    take_stopped_children,
)
from zmqtriton_floor import endpoints, wire
from zmqtriton_floor.execution_progress import has_begun
from zmqtriton_floor.lifeline import Lifeline, pair
from zmqtriton_floor.reasons import Reason


@dataclass
class Child:
    """A process with a lifeline, or a caller on the control socket, which has no pid."""

    serial: int
    pid: int = 0
    #: Set before the child is watched.
    lifeline: Lifeline = field(init=False)
    process: ChildProcess | None = None
    #: Descriptor of an HTTP worker's process; its parent, the arbiter, reaps it.
    pidfd: int | None = None
    #: The process of a caller, by its credentials; 0 if that is not seen from here.
    caller_pid: int = 0
    #: A caller that takes part as a frontend.
    is_guest: bool = False
    #: Serial of the guest whose threads run the child; 0 for a process.
    guest: int = 0
    #: Serial of the template whose thread runs the child; 0 for a process.
    host: int = 0
    #: The kernel's number of that thread.
    thread: int = 0
    #: Output of a stub.
    output: StubOutput | None = None
    #: Passes on the last of what another process has printed.
    read_rest: Callable[[], None] | None = None
    #: True if it may hand over the lifelines of processes that it has forked.
    can_fork_workers: bool = False
    #: True for the fork server, for a spare process of an environment, and for a template.
    can_fork: bool = False
    is_spare: bool = False
    is_template: bool = False
    frozen_polls: int = 0
    is_watched_for_writing: bool = False
    #: Descriptor of a stub's progress page, where the broker reads the batches it has begun.
    progress_page: int | None = None
    #: The cores that it is pinned to; () means any.
    cores: tuple[int, ...] = ()
    #: Quota of its model, if it runs one.
    quota: Quota = NO_QUOTA

    @property
    def is_users(self) -> bool:
        """True if its process belongs to a user, who alone may signal it."""
        return self.is_guest or self.guest > 0


class LivingChildren(Protocol):
    """All children, as the keepers of parts of them need those."""

    def find(self, serial: int) -> Child | None:
        """Return the child with this serial, or None."""

    def all(self) -> list[Child]: ...

    def watch(self, child: Child) -> None:
        """Add a child."""

    def end(self, child: Child, reason: Reason) -> None:
        """Pass on what a child has sent, and forget it."""

    def send(self, serial: int, message: Any, descriptor: int | None = None) -> None:
        """Send a process a message, and a copy of a descriptor."""


#: Looks in a row that find a process stopped before it counts as frozen; a profiler stops it for
#: moments only.
_POLLS = 2


class FrozenProcesses:
    """Finds processes that were stopped by a signal and not continued."""

    def __init__(self, children: LivingChildren, listener: EventRouter) -> None:
        self._children = children
        self._listener = listener
        #: Own children that may be stopped.
        self._stopped = set[int]()

    def poll(self) -> None:
        """Report frozen processes; called once a second."""
        self._stopped |= take_stopped_children()
        for child in self._children.all():
            # The kernel tells of own children, since to look at a thousand takes long.
            if child.is_users or (child.process is not None and child.pid not in self._stopped):
                continue
            is_stopped = child.pid > 0 and is_frozen(child.pid)
            child.frozen_polls = child.frozen_polls + 1 if is_stopped else 0
            if not is_stopped:
                self._stopped.discard(child.pid)
            elif child.frozen_polls == _POLLS:
                self._listener.process_frozen(child.serial)


#: Maximum number of kept pages: a new broker asks for those of stubs that died with the earlier
#: one, or since.
_MAX_PAGES = 32


class LastPages:
    """The progress pages of the stubs that died last, for a broker that starts after their deaths.

    The broker reads there which requests a stub may have begun, and refuses no others. A living
    broker reads the page that it has mapped itself.
    """

    def __init__(self) -> None:
        #: Pages by serial, the oldest first.
        self._pages: dict[int, int] = {}

    def keep(self, serial: int, page: int) -> bool:
        """Keep the page of a dead stub, and own its descriptor; True if it had begun a batch."""
        self._pages[serial] = page
        if len(self._pages) > _MAX_PAGES:
            os.close(self._pages.pop(next(iter(self._pages))))
        return has_begun(page)

    def find(self, serial: int) -> int | None:
        return self._pages.get(serial)

    def close(self) -> None:
        while self._pages:
            os.close(self._pages.popitem()[1])


class StreamSockets:
    """The sockets where stubs publish streams; their files may be removed while in use."""

    def __init__(self, directory: str, children: LivingChildren) -> None:
        self._directory = directory
        self._children = children

    def renew(self) -> None:
        """Make the sockets of all stubs again. Raises OSError.

        Each stub continues on a socket that this process makes, since it may run as a user who
        cannot make one.
        """
        for child in self._children.all():
            if child.progress_page is not None:
                listener = endpoints.listen(self._directory, child.serial)
                try:
                    self._children.send(child.serial, wire.StreamListener(), listener)
                finally:
                    os.close(listener)


class ReadinessLifelines:
    """The second lifelines of stubs whose models define is_ready.

    A thread of the stub answers there while the main thread may be in execute(). There is only one
    question at a time, so that none ever waits to be written.
    """

    def __init__(self, selector: selectors.BaseSelector, listener: EventRouter) -> None:
        self._selector = selector
        self._listener = listener
        self._lifelines: dict[int, Lifeline] = {}

    def open(self, serial: int) -> int:
        """Open a lifeline and return the stub's end, which the caller closes."""
        self.close(serial)
        ours, theirs = pair()
        self._lifelines[serial] = line = Lifeline(ours)
        self._selector.register(
            line, selectors.EVENT_READ, lambda: self._handle_input(serial, line)
        )
        return theirs.detach()

    def send(self, serial: int, message: Any) -> None:
        """Send a question; it is lost if there is no lifeline, and the caller's limit applies."""
        line = self._lifelines.get(serial)
        if line is not None:
            line.send(message)

    def _handle_input(self, serial: int, line: Lifeline) -> None:
        for message, descriptors in line.receive():
            for unexpected in descriptors:
                os.close(unexpected)
            if isinstance(message, wire.CallResult):
                self._listener.message_received(serial, message)
        if line.ended:
            self.close(serial)

    def close(self, serial: int) -> None:
        """Close the lifeline of a stub that is dead or has closed its end."""
        line = self._lifelines.pop(serial, None)
        if line is not None:
            self._selector.unregister(line)
            line.close()
