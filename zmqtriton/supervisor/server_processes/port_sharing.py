"""Ports that other servers have, too: new connections go to them while this server leaves.

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
        """Set up; `is_shared` is whether other servers may have the ports of this one."""
        self._plan = plan
        self.is_shared = is_shared
        self._has_begun = False

    def begin(self) -> None:
        """Take part: this server listens."""
        if self.is_shared and not self._has_begun:
            self._has_begun = True
            self._plan.enqueue(TakeClientsBack())
            self._look()

    def _look(self) -> None:
        # who came first has to be known when one of the servers leaves
        self._plan.ask(LookAtPorts).then(self._looked)

    def _looked(self, is_enough: bool) -> None:
        if not is_enough:
            self._plan.call_later(_LOOK_S, self._look)

    def send_elsewhere(self) -> None:
        if self.is_shared:
            self._plan.enqueue(SendElsewhere())

    def take_back(self) -> None:
        if self.is_shared:
            self._plan.enqueue(TakeClientsBack())
