"""The sockets at which stubs publish streams, whose files may be lost under them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from zmqtriton.supervisor.machine.processes.child import Child
from zmqtriton_floor import endpoints, wire


class StreamSockets:
    def __init__(
        self,
        directory: str,
        children: Mapping[int, Child],
        send: Callable[[int, Any, int], None],
    ) -> None:
        """Set up; `send` sends a process a message and a copy of a descriptor."""
        self._directory = directory
        self._children = children
        self._send = send

    def listen(self, serial: int) -> int:
        """Return the descriptor of a new socket for a stub. Raises OSError."""
        return endpoints.listen(self._directory, serial)

    def renew(self) -> None:
        """Make the sockets of all stubs again. Raises OSError.

        Each stub goes on at a listener of ours, since it may run as a user who cannot make one.
        """
        for child in list(self._children.values()):
            if child.progress_page is None:
                continue
            listener = self.listen(child.serial)
            try:
                self._send(child.serial, wire.StreamListener(), listener)
            finally:
                os.close(listener)
