"""The steps in this process and in the new one when the model forks.

The new process has a copy of everything, but no other threads. So the forking thread takes the
locks that other threads may hold, and releases them in both processes.
"""

from __future__ import annotations

import os
from typing import Any

from zmqtriton_floor import wire
from zmqtriton_stub import instance as this_process
from zmqtriton_stub.api.inference import sender_lock
from zmqtriton_stub.execution.responses import state_lock
from zmqtriton_stub.forks.fork_client import ForkClient, ForkedBlsClient
from zmqtriton_stub.forks.relay import Relay
from zmqtriton_stub.memory.tensor_memory import TensorMemory

#: Time to wait for each lock. Locks are held for a few steps, and longer only by a thread that is
#: in the middle of its own end.
_PATIENCE_S = 1.0


class Forks:
    """The steps of an instance before each fork, and on both sides after it."""

    def __init__(
        self, instance: this_process.StubInstance, bootstrap: wire.Bootstrap, memory: TensorMemory
    ) -> None:
        self._instance = instance
        self._bootstrap = bootstrap
        self._memory = memory
        self._relay = Relay(instance)
        #: Locks that destructors take, in their order; that of the mappings comes after them.
        self._locks = (state_lock, sender_lock, memory.passing.lock)
        self._held: list[Any] = []

    def begin(self) -> None:
        os.register_at_fork(
            before=self.prepare, after_in_parent=self.go_on, after_in_child=self.become_fork
        )

    @property
    def _is_ours(self) -> bool:
        """True in a thread of this instance: several instances may share the process."""
        return this_process.here() is self._instance

    def prepare(self) -> None:
        """Take the locks that destructors take, and make an inlet for the fork's calls."""
        for lock in self._locks:
            if lock.acquire(timeout=_PATIENCE_S):
                self._held.append(lock)
        if self._is_ours and not this_process.is_forked:
            self._relay.open_inlet()

    def _let_go(self) -> None:
        held, self._held = self._held, []
        for lock in reversed(held):
            lock.release()

    def go_on(self) -> None:
        """Release the locks, and serve the new process."""
        self._let_go()
        if self._is_ours and not this_process.is_forked:
            self._relay.serve()

    def become_fork(self) -> None:
        """Make the new process a fork of the instance, which it calls over its own connection."""
        self._let_go()
        current, asker = self._instance, self._instance.asker
        if not self._is_ours:
            self._relay.leave()
            return
        if current.line is None:
            inlet = self._relay.leave()
        else:  # a fork of a fork
            inlet = current.line.inlet
            assert asker is not None  # it came with the line
            current.line.abandon()
            asker.abandon()
        line = ForkClient(inlet)
        current.become_fork(line, ForkedBlsClient(self._bootstrap, self._memory, line))
