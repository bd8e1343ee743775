"""Who bears a stub: the nursery, or, where it cannot, a process is spawned instead.

The nursery is a copy of what a stub on the server's own interpreter has loaded, so that it serves
those alone. At the start of the server stubs wait for it; later nobody waits, and what it does not
bear in time is spawned. Decides; the children act.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from zmqtriton.environments.demand import Environment
from zmqtriton.supervisor.machine.log_ring import Stub

#: It loads what one stub does, amid all that starts with the server.
_READY_WITHIN_S = 20.0
#: A birth takes milliseconds.
_BORN_WITHIN_S = 5.0


class StubSpec(NamedTuple):
    """A stub that is wanted."""

    serial: int
    environment: Environment
    stub: Stub
    #: Given away with the order.
    page: int
    #: Where it may run; () is anywhere.
    cores: tuple[int, ...] = ()


class PendingStub(Protocol):
    """What is kept here for a stub that the nursery was asked for."""

    def born(self, pid: int) -> None:
        """The process is there. Raises OSError if not."""

    def drop(self) -> None:
        """It will not be, or is nobody's."""


class Spawner(Protocol):
    """Who does it."""

    def ask(self, nursery: int, order: StubSpec) -> PendingStub:
        """Asks the nursery for a stub."""

    def spawn_stub(self, order: StubSpec) -> None:
        """Starts its program anew."""

    def signal(self, serial: int, number: int, group: bool = False) -> None:
        """To the process of this serial number."""


@dataclass
class _Asked:
    order: StubSpec
    unborn: PendingStub
    until_s: float


class ForkServer:
    def __init__(self, midwife: Spawner, now_s: Callable[[], float] = time.monotonic) -> None:
        self._midwife = midwife
        self._now_s = now_s
        #: Its serial number; 0: there is none.
        self._nursery = 0
        self._is_ready = False
        #: When the first one must be ready; None: it has been, or nobody waits any more.
        self._until_s: float | None = None
        self._is_first = True
        self._queue: list[StubSpec] = []
        self._asked: dict[int, _Asked] = {}

    @property
    def is_under_way(self) -> bool:
        """A process may have become a child of this one that nobody knows yet."""
        return bool(self._asked)

    def want(self, order: StubSpec) -> None:
        if not order.environment.is_servers_own:
            self._midwife.spawn_stub(order)
        elif self._is_ready:
            self._ask(order)
        elif self._until_s is not None:
            self._queue.append(order)
        else:
            self._midwife.spawn_stub(order)

    def _ask(self, order: StubSpec) -> None:
        until_s = self._now_s() + _BORN_WITHIN_S
        try:
            unborn = self._midwife.ask(self._nursery, order)
        except OSError:
            self._midwife.spawn_stub(order)
            return
        self._asked[order.serial] = _Asked(order, unborn, until_s)

    # ------------------------------------------------------------ what happens

    def started(self, nursery: int) -> None:
        self._nursery = nursery
        if self._is_first:
            self._is_first = False
            self._until_s = self._now_s() + _READY_WITHIN_S

    def ready(self) -> None:
        self._is_ready = True
        self._until_s = None
        queue, self._queue = self._queue, []
        for order in queue:
            self._ask(order)

    def answered(self, serial: int, pid: int) -> None:
        """The stub says so itself; pid 0: the nursery could not fork."""
        asked = self._asked.pop(serial, None)
        if asked is None:
            return  # too late: its lifeline has ended, so it ends too
        try:
            if not pid:
                raise ProcessLookupError
            asked.unborn.born(pid)
        except OSError:
            self._spawn_instead(asked)

    def ended(self) -> None:
        """The nursery, or what was to become one. What it has borne lives on."""
        self._nursery = 0
        self._is_ready = False
        self._until_s = None
        asked, self._asked = self._asked, {}
        for one in asked.values():
            self._spawn_instead(one)
        queue, self._queue = self._queue, []
        for order in queue:
            self._midwife.spawn_stub(order)

    def tick(self, now_s: float) -> None:
        """Call it once a second: a nursery that is late is not waited for, and ended."""
        ends = [asked.until_s for asked in self._asked.values()]
        if self._until_s is not None:
            ends.append(self._until_s)
        if any(until_s <= now_s for until_s in ends):
            nursery = self._nursery
            self.ended()
            self._midwife.signal(nursery, 9, group=True)

    def close(self) -> None:
        """Nobody is born any more."""
        for asked in self._asked.values():
            asked.unborn.drop()
        for order in (*self._queue, *(asked.order for asked in self._asked.values())):
            os.close(order.page)
        self._asked.clear()
        self._queue.clear()

    def _spawn_instead(self, asked: _Asked) -> None:
        asked.unborn.drop()
        self._midwife.spawn_stub(asked.order)
