"""The rest of the core as every model needs it, in one object."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from zmqtriton.supervisor.models.blueprint import Blueprint
from zmqtriton.supervisor.models.call_graph import LoadOrder, RetirementQueue
from zmqtriton.supervisor.models.ensembles import EnsembleMembers
from zmqtriton.supervisor.models.generation import Generation
from zmqtriton.supervisor.models.preparations import EnvironmentPreparations
from zmqtriton.supervisor.models.readings import ModelReadings
from zmqtriton.supervisor.plan import Plan, Timer
from zmqtriton.supervisor.policy import Policy
from zmqtriton.supervisor.server_processes.audience import Audience
from zmqtriton.supervisor.server_processes.introductions import Introductions
from zmqtriton_floor.errors import ZmqTritonError

#: Gets an error, or None if all is well.
LoadCallback = Callable[[ZmqTritonError | None], None]


class LoadSlots:
    """Limits how many models load at a time; the others wait in order.

    A load that takes very long gives its slot back, so that it does not hold up the others.
    """

    def __init__(self, plan: Plan, count: int, patience_s: float) -> None:
        self._plan = plan
        self._free = max(1, count)
        self._patience_s = patience_s
        self._waiting: deque[tuple[object, Callable[[], None]]] = deque()
        #: Those that have a slot, with the timer that takes it from a slow one.
        self._holders: dict[object, Timer] = {}

    def acquire(self, holder: object, then: Callable[[], None]) -> None:
        """Call `then` when it is this holder's turn."""
        self._waiting.append((holder, then))
        self._fill()

    def release(self, holder: object) -> None:
        """Release a slot, or a place among the waiting. May be called again."""
        timer = self._holders.pop(holder, None)
        if timer is not None:
            timer.cancel()
            self._free += 1
        else:
            self._waiting = deque(entry for entry in self._waiting if entry[0] is not holder)
        self._fill()

    def _fill(self) -> None:
        while self._free and self._waiting:
            holder, then = self._waiting.popleft()
            self._free -= 1
            late = partial(self.release, holder)
            self._holders[holder] = self._plan.call_later(self._patience_s, late)
            then()


class LoadListener(Protocol):
    """Hears of models before a load serves them, of serving ones, and of each load's end."""

    def load_began(self, blueprint: Blueprint) -> None: ...

    def load_succeeded(self, blueprint: Blueprint) -> None: ...

    def load_ended(self, name: str) -> None: ...


class ModelContext(NamedTuple):
    plan: Plan
    introductions: Introductions
    audience: Audience
    load_slots: LoadSlots
    #: All that were started and have not ended, by number.
    generations: dict[int, Generation]
    ensemble_members: EnsembleMembers
    load_order: LoadOrder
    retirements: RetirementQueue
    preparations: EnvironmentPreparations
    readings: ModelReadings
    listener: LoadListener
    policy: Policy
