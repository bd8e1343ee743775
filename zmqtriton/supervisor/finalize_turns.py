"""The order of instances' finalizers, so that each has its full time.

When a server with many models stops, all finalizers at once would share the cores, and reach their
time limit together before any has finished. So only as many start as can compute at the same time.
A finalizer that only waits, for a disk or another machine, does not count. Does no I/O.
"""

from __future__ import annotations

from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.settings import ServerInfo
from zmqtriton.supervisor.story import Promise

#: Interval of the looks at which finalizing instances use a processor.
_LOOK_S = 0.05


class FinalizeTurns:
    def __init__(self, plan: Plan, server: ServerInfo) -> None:
        self._plan = plan
        self._server = server
        #: Waiting instances in their order, by serial: the process, and the turn.
        self._waiting: dict[int, tuple[int, Promise[None]]] = {}
        #: Instances that finalize, by serial: the process, and its ticks at the last look.
        self._begun: dict[int, tuple[int, int]] = {}
        #: Serials of finalizing instances that use a processor.
        self._computing: set[int] = set()
        self._is_looking = False

    def request(self, serial: int, pid: int) -> Promise[None]:
        """Return a promise that is kept when an instance may finalize."""
        turn = Promise[None]()
        self._waiting[serial] = (pid, turn)
        self._begin_next()
        return turn

    def leave(self, serial: int) -> None:
        """Forget an instance whose process has ended."""
        self._waiting.pop(serial, None)
        self._begun.pop(serial, None)
        self._computing.discard(serial)
        self._begin_next()

    def _begin_next(self) -> None:
        while self._waiting and len(self._computing) < self._server.max_finalizing:
            serial = next(iter(self._waiting))
            pid, turn = self._waiting.pop(serial)
            self._begun[serial] = (pid, self._server.processor_use(pid).ticks)
            self._computing.add(serial)
            turn()
        if self._waiting and not self._is_looking:
            self._is_looking = True
            self._plan.call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        """Find the finalizers that compute: their processes want a processor or have had one."""
        self._is_looking = False
        for serial, (pid, before) in self._begun.items():
            use = self._server.processor_use(pid)
            self._begun[serial] = (pid, use.ticks)
            if use.is_runnable or use.ticks > before:
                self._computing.add(serial)
            else:
                self._computing.discard(serial)
        self._begin_next()
