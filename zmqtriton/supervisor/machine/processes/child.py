"""What the loop keeps of one child, and who hears of all of them. Only data and types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from zmqtriton.supervisor.machine.processes.output import StubOutput
from zmqtriton.supervisor.machine.processes.process import Process
from zmqtriton_floor.lifeline import Lifeline


@dataclass
class Child:
    """A process with a lifeline, or a caller on the control socket, which has no pid."""

    serial: int
    lifeline: Lifeline
    pid: int = 0
    process: Process | None = None
    #: Of a process that somebody else will reap.
    pidfd: int | None = None
    output: StubOutput | None = None
    #: It may hand over lifelines of processes that it has forked.
    can_fork_workers: bool = False
    #: The fork server.
    can_fork: bool = False
    frozen_polls: int = 0
    is_watched_for_writing: bool = False
    #: A stub's, in which it tells the broker how far it has come.
    progress_page: int | None = None
    #: Where it is kept; () is anywhere.
    cores: tuple[int, ...] = ()


class ChildListener(Protocol):
    """Who hears of the children: the core."""

    def process_started(self, serial: int, pid: int, started_s: float) -> None:
        """It runs, and can be told who it is."""

    def process_ended(
        self, serial: int, reason: str, last_words: str = "", crash: str = ""
    ) -> None:
        """It is dead, and everything that it had said was received before."""

    def process_frozen(self, serial: int) -> None:
        """It was stopped by a signal and does not go on."""

    def worker_forked(self, pid: int, started_s: float) -> int:
        """Gunicorn has forked; returns the serial number of the new process's lifeline."""

    def messages_malformed(self, messages: int) -> None:
        """Dropped, because they did not decode."""

    def message_received(self, serial: int, message: Any) -> None:
        """A message of a process, or of a caller on the control socket."""
