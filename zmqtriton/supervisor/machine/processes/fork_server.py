"""The fork server as the supervisor uses it: it forks stubs and templates, others are spawned.

It has loaded the modules that stubs on the server's own interpreter need, so it serves only those.
At the server's start, stubs wait for it; later they do not, and a stub or template that it does not
fork in time is spawned. Decides only; a `ForkServerActions` acts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, Protocol

from zmqtriton.config.instances import THREADS
from zmqtriton.config.parameters import NO_QUOTA, Quota
from zmqtriton.environments.demand import Environment
from zmqtriton.environments.users import StubUser
from zmqtriton.logs.log_ring import StubName
from zmqtriton.supervisor.actions import Template
from zmqtriton.supervisor.machine.processes.child import Child

#: Seconds for the fork server's start. It loads as much as a stub while everything else starts.
_READY_WITHIN_S = 20.0
#: A fork takes milliseconds.
_FORK_WITHIN_S = 5.0


class StubSpec(NamedTuple):
    """The parameters of the start of a stub, or of a template, which has no page."""

    serial: int
    environment: Environment
    stub: StubName
    #: Descriptor of its progress page, which goes with the parameters.
    page: int
    #: Cores that the stub may use; () means any.
    cores: tuple[int, ...] = ()
    #: The user it runs as; None is the server's own.
    user: StubUser | None = None
    quota: Quota = NO_QUOTA
    #: The process that it is a fork of; None for one that loads its model by itself.
    template: Template | None = None
    #: Serial of the spare process of its environment that forks it; 0 without one.
    spare: int = 0
    #: Variables that it gets in addition.
    variables: Mapping[str, str] = MappingProxyType({})

    @property
    def is_template(self) -> bool:
        """True for the start of the template itself."""
        return self.template is not None and self.serial == self.template.serial

    def of_template(self) -> StubSpec:
        """Return the parameters of the stub's template."""
        assert self.template is not None
        name = THREADS if self.template.has_threads else "template"
        stub, serial = self.stub._replace(instance=name), self.template.serial
        return self._replace(serial=serial, stub=stub, cores=())


class PendingStub(Protocol):
    """The supervisor's part of a stub that was requested from the fork server."""

    def adopt(self, pid: int) -> None:
        """Take over the new process. Raises OSError if it does not exist."""

    def drop(self) -> None:
        """Release the held descriptors: the stub will not come, or comes too late."""


class ForkedStub(NamedTuple):
    """A stub that was requested from the fork server, until its process is known."""

    child: Child
    reading: int
    #: Takes over the new process. Raises OSError if it does not exist.
    adopt: Callable[[int], None]

    def drop(self) -> None:
        """Close its lifeline: the stub does not come, or comes too late and ends with it."""
        self.child.lifeline.close()
        os.close(self.reading)


class RenewedTemplate(NamedTuple):
    """A template that was requested from the process of earlier code, and holds nothing."""

    #: Records its pid, which is shared with the earlier code.
    adopt: Callable[[int], None]

    def drop(self) -> None:
        """Do nothing: the code that was imported is not used."""


class ForkServerActions(Protocol):
    """Forks, spawns and kills stubs."""

    def request_fork(self, fork_server: int, spec: StubSpec) -> PendingStub:
        """Request a stub from the fork server. Raises OSError if it cannot be reached."""

    def spawn_stub(self, spec: StubSpec) -> None:
        """Start the stub or template as a new program."""

    def kill(self, serial: int, reason: str) -> None:
        """Kill the process with this serial number, and log the reason."""


@dataclass
class _Request:
    spec: StubSpec
    #: Serial of the process that forks it.
    origin: int
    pending: PendingStub
    until_s: float


class ForkServerLife:
    def __init__(
        self, spawner: ForkServerActions, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._spawner = spawner
        self._now_s = now_s
        #: Serial of the fork server; 0 if there is none.
        self._fork_server = 0
        self._is_ready = False
        #: Time limit of the first fork server's start; None once it is ready, or has failed.
        self._until_s: float | None = None
        self._is_first = True
        self._queue: list[StubSpec] = []
        self._pending: dict[int, _Request] = {}

    @property
    def is_under_way(self) -> bool:
        """True if a process may have become a child of this one and is not yet known."""
        return bool(self._pending)

    def may_come(self, serial: int) -> bool:
        """Return whether a stub may have been forked and is not yet known."""
        return serial in self._pending

    def start(self, spec: StubSpec) -> None:
        is_ours = spec.environment.is_server_environment
        # the libraries of a spare process have read variables, and counted the cores, already
        if spec.spare and not spec.cores and not spec.variables:
            self._ask(spec, spec.spare)
        elif is_ours and self._is_ready:
            self._ask(spec, self._fork_server)
        elif is_ours and self._until_s is not None:
            self._queue.append(spec)
        else:
            self._spawner.spawn_stub(spec)

    def _ask(self, spec: StubSpec, origin: int) -> None:
        try:
            pending = self._spawner.request_fork(origin, spec)
        except OSError:
            self._start_without(spec)
        else:
            until_s = self._now_s() + _FORK_WITHIN_S
            self._pending[spec.serial] = _Request(spec, origin, pending, until_s)

    def _start_without(self, spec: StubSpec) -> None:
        """Start a stub without the process that could not fork it."""
        if spec.spare:
            self.start(spec._replace(spare=0))
        else:
            self._spawner.spawn_stub(spec)

    # ------------------------------------------------------------ what happens

    def started(self, fork_server: int) -> None:
        self._fork_server = fork_server
        if self._is_first:
            self._is_first = False
            self._until_s = self._now_s() + _READY_WITHIN_S

    def ready(self) -> None:
        self._is_ready = True
        self._until_s = None
        queue, self._queue = self._queue, []
        for spec in queue:
            self._ask(spec, self._fork_server)

    def answered(self, serial: int, pid: int) -> None:
        """Adopt a new stub that has reported its pid; pid 0 means that the fork failed."""
        request = self._pending.pop(serial, None)
        if request is None:
            return  # too late: its lifeline is closed, so it exits
        try:
            if not pid:
                raise ProcessLookupError
            request.pending.adopt(pid)
        except OSError:
            self._start_instead(request)

    def ended(self, origin: int) -> None:
        """Handle the death of the fork server or a spare process: its stubs live on.

        Pending stubs are started without it.
        """
        queue: list[StubSpec] = []
        if origin == self._fork_server:
            self._fork_server = 0
            self._is_ready = False
            self._until_s = None
            queue, self._queue = self._queue, []
        for request in [each for each in self._pending.values() if each.origin == origin]:
            del self._pending[request.spec.serial]
            self._start_instead(request)
        for spec in queue:
            self._spawner.spawn_stub(spec)

    def tick(self, now_s: float) -> None:
        """Kill a fork server or a spare process that is late; called once a second."""
        late = {each.origin for each in self._pending.values() if each.until_s <= now_s}
        if self._until_s is not None and self._until_s <= now_s:
            late.add(self._fork_server)
        for origin in late:
            self.ended(origin)
            self._spawner.kill(origin, "it is late with a stub, or with its own start")

    def close(self) -> None:
        """Stop forking."""
        for request in self._pending.values():
            request.pending.drop()
        specs = (*self._queue, *(request.spec for request in self._pending.values()))
        for page in (spec.page for spec in specs if not spec.is_template):
            os.close(page)
        self._pending.clear()
        self._queue.clear()

    def _start_instead(self, request: _Request) -> None:
        request.pending.drop()
        self._start_without(request.spec)
