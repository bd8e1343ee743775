"""Ports that other servers also have: new connections go to them while this server leaves.

Does no I/O.
"""

from __future__ import annotations

from zmqtriton.supervisor.actions import LookAtPorts, SendElsewhere, TakeClientsBack
from zmqtriton.supervisor.plan import Plan

#: Seconds within which a connection that is being made reaches this server.
SETTLE_S = 1.0
_LOOK_S = 1.0


class PortSharing:
    def __init__(self, plan: Plan, *, is_shared: bool) -> None:
        """Set up; `is_shared` is True if other servers may have this server's ports."""
        self._plan = plan
        self.is_shared = is_shared

    def begin(self) -> None:
        """Begin to share ports, once this server listens."""
        if self.is_shared:
            self._plan.enqueue(TakeClientsBack())
            self._plan.tell(self._look())

    async def _look(self) -> None:
        # who came first has to be known when one of the servers leaves
        while not await self._plan.ask(LookAtPorts):
            await self._plan.pause(_LOOK_S)

    def send_elsewhere(self) -> None:
        if self.is_shared:
            self._plan.enqueue(SendElsewhere())

    def take_back(self) -> None:
        if self.is_shared:
            self._plan.enqueue(TakeClientsBack())
