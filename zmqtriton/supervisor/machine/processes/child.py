"""The loop's data of one child, and the listener for all of them. Only data and types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from zmqtriton.config.quotas import NO_QUOTA, Quota
from zmqtriton.supervisor.machine.processes.output import StubOutput
from zmqtriton.supervisor.machine.processes.process import Process
from zmqtriton_floor.lifeline import Lifeline
from zmqtriton_floor.reasons import Reason


@dataclass
class Child:
    """A process with a lifeline, or a caller on the control socket, which has no pid."""

    serial: int
    pid: int = 0
    #: Set before the child is watched.
    lifeline: Lifeline = field(init=False)
    process: Process | None = None
    #: Set for a process that somebody else reaps.
    pidfd: int | None = None
    #: The process of a caller, by its credentials; 0 if that is not seen from here.
    caller_pid: int = 0
    #: A caller that takes part as a frontend.
    is_guest: bool = False
    #: The serial of the guest whose threads it is; 0 for a process.
    guest: int = 0
    #: What a stub prints.
    output: StubOutput | None = None
    #: Passes on the last of what another process has printed.
    read_rest: Callable[[], None] | None = None
    #: It may hand over the lifelines of processes that it has forked.
    can_fork_workers: bool = False
    #: It is the fork server.
    can_fork: bool = False
    frozen_polls: int = 0
    is_watched_for_writing: bool = False
    #: A stub's page, in which it tells the broker how far it has come.
    progress_page: int | None = None
    #: The cores that it is pinned to; () means any.
    cores: tuple[int, ...] = ()
    #: What it may take, if it runs a model.
    quota: Quota = NO_QUOTA

    @property
    def is_users(self) -> bool:
        """True if its process is a user's, which is never signalled."""
        return self.is_guest or self.guest > 0


class ChildListener(Protocol):
    """Hears of the children's events; the core implements it."""

    def process_started(self, serial: int, pid: int, started_s: float) -> None:
        """The process runs, and can be told who it is."""

    def process_ended(
        self,
        serial: int,
        reason: Reason,
        last_words: str = "",
        crash: str = "",
        had_begun: bool = False,
    ) -> None:
        """The process is dead, and everything that it had sent was received before."""

    def caller_ended(self, serial: int) -> None:
        """A caller on the control socket has closed its end, or is dead."""

    def process_frozen(self, serial: int) -> None:
        """The process was stopped by a signal and does not go on."""

    def memory_exceeded(self, serial: int, reason: Reason) -> None:
        """The process has more memory than its model may have."""

    def worker_forked(self, pid: int, started_s: float) -> int:
        """Gunicorn has forked; return the serial number of the new process's lifeline."""

    def messages_malformed(self, messages: int) -> None:
        """Messages were dropped because they did not decode."""

    def message_received(self, serial: int, message: Any) -> None:
        """A message came from a process, or from a caller on the control socket."""
