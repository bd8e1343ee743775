"""Reports the server's state to the service manager: ready, alive, stopping, and a status line.

The server counts as alive when this code runs and the broker has answered a question since the last
message. Otherwise systemd gets no message, and finally restarts the server. During a take-over only
one of the two servers sends messages. Does no I/O.
"""

from __future__ import annotations

from typing import Protocol

from zmqtriton.supervisor.actions import NotifyServiceManager
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.story import Promise

#: A start may take this many beats longer; each beat says so again.
_BEATS_AHEAD = 6


class NotifyingServer(Protocol):
    @property
    def is_open(self) -> bool:
        """True once clients can connect to every service."""

    @property
    def is_ending(self) -> bool:
        """True from the request to stop."""

    def probe_broker(self) -> Promise[None]:
        """Return a promise of the broker's answer."""

    def summary(self) -> str:
        """Return the state in a line."""


class ServiceManager:
    def __init__(self, plan: Plan, beat_s: float | None, server: NotifyingServer) -> None:
        """Set up the notifications; without `beat_s` none are sent."""
        self._plan = plan
        self._beat_s = beat_s
        self._server = server
        self._status = ""
        self._is_main = True
        #: The reload of the service may take its time.
        self.is_being_replaced = False

    @property
    def is_there(self) -> bool:
        return self._beat_s is not None

    def begin(self) -> None:
        if self._beat_s is not None:
            self._plan.tell(self._beat(self._beat_s))
            self._plan.tell(self._report_state())

    async def _report_state(self) -> None:
        server = self._server
        await self._plan.until(lambda: self._is_main and (server.is_open or server.is_ending))
        if not server.is_ending:
            self._notify("READY=1")
            await self._plan.until(lambda: self._is_main and server.is_ending)
        self._notify("STOPPING=1")

    def wait_for_turn(self) -> None:
        """Send nothing until this server is the main process of the service."""
        self._is_main = False

    def become_main(self) -> None:
        """Send messages for the service from now on: the predecessor sends none any more."""
        if not self._is_main:
            self._is_main = True
            self._notify("WATCHDOG=1")

    def hand_over(self, pid: int) -> None:
        """Report another server as the service's main process; send nothing after that."""
        self._notify(f"MAINPID={pid}")
        self._is_main = False

    async def _beat(self, beat_s: float) -> None:
        while True:
            if self._server.is_ending:
                # The shutdown has a limit of its own, and the broker is among what ends.
                self._notify("WATCHDOG=1")
            else:
                self._plan.tell(self._report_when_alive(beat_s))
            await self._plan.pause(beat_s)

    async def _report_when_alive(self, beat_s: float) -> None:
        await self._server.probe_broker()
        more_time = f"EXTEND_TIMEOUT_USEC={int(beat_s * _BEATS_AHEAD * 1e6)}"
        if not (self._server.is_open or self._server.is_ending):
            self._notify(more_time)
        elif self.is_being_replaced:
            self._notify(f"WATCHDOG=1\n{more_time}")
        else:
            self._notify("WATCHDOG=1")

    def _notify(self, assignment: str) -> None:
        if self.is_there and self._is_main:
            status = self._server.summary()
            if status != self._status:
                self._status = status
                assignment += f"\nSTATUS={status}"
            self._plan.enqueue(NotifyServiceManager(assignment))
