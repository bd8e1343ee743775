"""Models that requests have loaded, and that go when nobody uses them or room is needed.

Called by Control for whoever holds a request to a model that is not loaded, and by the core after
all that happens. One load for all who wait; one that failed is not tried again at once. What
somebody has loaded by name stays, and what somebody has unloaded is not loaded. Does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from typing import Any, Protocol

from zmqtriton.supervisor.actions import Listing, MeasureMemory
from zmqtriton.supervisor.models.generation import Generation
from zmqtriton.supervisor.models.model import Model
from zmqtriton.supervisor.on_demand.broker_counts import BrokerCounts, Found
from zmqtriton.supervisor.on_demand.evictions import Evictions
from zmqtriton.supervisor.plan import Plan, Timer
from zmqtriton.supervisor.policy import Policy
from zmqtriton_floor.errors import Unavailable, ZmqTritonError

VERB = "demand"
#: What the index says of a model that nobody has asked for yet.
NOT_YET = "not loaded: waits for its first request"
#: After a failed load the next one is tried so much later, twice as long each time.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
#: Unknown names are looked for in the repositories no more often than this.
LISTED_S = 1.0
SHORTEST_LOOK_S, LONGEST_LOOK_S = 0.25, 5.0

#: Gets True when the model is loaded, False where there is none to load, or why it is not loaded.
Respond = Callable[[Any], None]


class Served(Protocol):
    models: dict[str, Model]
    generations: dict[int, Generation]

    @property
    def is_stopping(self) -> bool:
        """Nothing new may begin."""

    def model(self, name: str) -> Model:
        """It, made known if it was not."""

    def list_repository(self, then: Callable[[Listing], None]) -> None:
        """`then` gets the names that the repositories hold."""


class Phase(Enum):
    LISTING = "LISTING"  # whether there is such a model
    WAITING = "WAITING"  # until what has to end before has ended
    LOOKING = "LOOKING"  # whether there is room
    LOADING = "LOADING"


class _Wanted:
    """A model that is asked for, and by whom."""

    def __init__(self, answer: Respond) -> None:
        self.answers = [answer]
        self.phase = Phase.LISTING
        #: Models that make room for it.
        self.leaving: set[str] = set()


class _Failure:
    def __init__(self) -> None:
        self.error: ZmqTritonError = Unavailable("")
        self.until_s = 0.0
        self.pause_s = FIRST_PAUSE_S


class OnDemandLoader:
    def __init__(self, plan: Plan, policy: Policy, served: Served, counts: BrokerCounts) -> None:
        self._plan = plan
        self._is_on = policy.load_on_demand
        self._served = served
        self._counts = counts
        self._wanted: dict[str, _Wanted] = {}
        self._failures: dict[str, _Failure] = {}
        self._names: set[str] = set()
        self._listed_s = float("-inf")
        self._evictions = Evictions(plan, served.models, policy)
        #: What to call after the look that is under way, and after the next one.
        self._looking: list[Callable[[], None]] | None = None
        self._then_look: list[Callable[[], None]] = []
        self._timer: Timer | None = None

    # ----------------------------------------------------------- what is asked

    def want(self, name: str, answer: Respond) -> None:
        """`answer` is called once, now or when it is loaded or cannot be."""
        models, failure = self._served.models, self._failures.get(name)
        wanted, model = self._wanted.get(name), models.get(name)
        if self._served.is_stopping:
            answer(Unavailable("Server exiting"))
        elif wanted is not None:
            wanted.answers.append(answer)
        elif model is not None and model.serving:
            answer(True)
        elif not self._is_on or (model is not None and not model.is_on_demand):
            answer(False)
        elif failure is not None and self._plan.now_s < failure.until_s:
            answer(failure.error)
        else:
            self._wanted[name] = _Wanted(answer)
            if model is not None:
                self._go_on(name)
            else:
                self._list(name)

    def _list(self, name: str) -> None:
        if name in self._names:
            self._go_on(name)
        elif self._plan.now_s - self._listed_s < LISTED_S:
            self._end(name, False)
        else:
            # All that come meanwhile are settled by this listing too.
            self._listed_s = self._plan.now_s
            self._served.list_repository(self._listed)

    def _listed(self, found: Listing) -> None:
        self._names = set() if isinstance(found, ZmqTritonError) else set(found)
        for name in [n for n, w in self._wanted.items() if w.phase is Phase.LISTING]:
            if isinstance(found, ZmqTritonError):
                self._end(name, Unavailable(found.text))
            elif name in found:
                self._go_on(name)
            else:
                self._end(name, False)

    def _go_on(self, name: str) -> None:
        self._wanted[name].phase = Phase.WAITING
        self._proceed(name)

    def proceed(self) -> None:
        """To be called after all that happens."""
        for name in [n for n, w in self._wanted.items() if w.phase is Phase.WAITING]:
            self._proceed(name)

    def _proceed(self, name: str) -> None:
        wanted, models = self._wanted[name], self._served.models
        model = models.get(name)
        if model is not None and model.serving:
            self._end(name, True)
        elif all(models[n].has_ended for n in wanted.leaving | {name} if n in models):
            if self._evictions.has_budget:
                wanted.phase = Phase.LOOKING
                self._look(partial(self._fit, name))
            else:
                self._load(name)

    def stop(self) -> None:
        """The server ends; loads are cancelled by their models."""
        for name in [n for n, w in self._wanted.items() if w.phase is not Phase.LOADING]:
            self._end(name, Unavailable("Server exiting"))

    # --------------------------------------------------------------- the load

    def _fit(self, name: str) -> None:
        wanted = self._wanted.get(name)
        if wanted is None or wanted.phase is not Phase.LOOKING:
            return
        try:
            leaving = self._evictions.make_room(name)
        except Unavailable as error:
            self._fail(name, error)
            return
        if leaving:
            wanted.leaving, wanted.phase = set(leaving), Phase.WAITING
            self._proceed(name)
        else:
            self._load(name)

    def _load(self, name: str) -> None:
        self._wanted[name].phase = Phase.LOADING
        self._evictions.begin(name)
        self._plan.log("I", f"loading '{name}', which is asked for")
        self._served.model(name).load_on_demand(partial(self._loaded, name))

    def _loaded(self, name: str, error: ZmqTritonError | None) -> None:
        self._evictions.loaded(name, error)
        if error is None:
            self._failures.pop(name, None)
            self._end(name, True)
            self._watch()
        else:
            self._fail(name, Unavailable(error.text))

    def _fail(self, name: str, error: ZmqTritonError) -> None:
        """Requests that come soon hear the same, and are no reason for another try."""
        failure = self._failures.setdefault(name, _Failure())
        failure.error = error
        failure.until_s = self._plan.now_s + failure.pause_s
        failure.pause_s = min(2 * failure.pause_s, LONGEST_PAUSE_S)
        self._end(name, error)

    def _end(self, name: str, result: Any) -> None:
        for answer in self._wanted.pop(name).answers:
            answer(result)

    # ------------------------------------------------------------- looking

    def _watch(self) -> None:
        """Looks now and then for what has been idle for too long, or takes too much."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pause_s = min(self._evictions.shortest_limit_s() / 4, LONGEST_LOOK_S)
        if self._evictions.is_watching and not self._served.is_stopping:
            self._timer = self._plan.after(max(pause_s, SHORTEST_LOOK_S), self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        self._look(self._tidy)

    def _tidy(self) -> None:
        if not self._served.is_stopping:
            self._evictions.tidy()
        self._watch()

    def _look(self, then: Callable[[], None]) -> None:
        """Calls `then` when it is known what is used, and how much memory that takes, as it is from
        now on."""
        self._then_look.append(then)
        if self._looking is None:
            self._begin_look()

    def _begin_look(self) -> None:
        self._looking, self._then_look = self._then_look, []
        self._counts.ask(self._counted)

    def _counted(self, found: Found) -> None:
        self._evictions.usage.heard(found["counts"])
        if not self._evictions.has_budget:
            self._looked()
            return
        generations = self._served.generations.values()
        pids = {i.pid: g.blueprint.name for g in generations for i in g.instances if i.is_alive}
        self._plan.do(MeasureMemory({pid: name for pid, name in pids.items() if pid}))

    def measured(self, found: Mapping[str, int]) -> None:
        """The answer to MeasureMemory, by model."""
        self._evictions.measured(found)
        self._looked()

    def _looked(self) -> None:
        looked, self._looking = self._looking or [], None
        for then in looked:
            then()
        if self._then_look and self._looking is None:
            self._begin_look()

    # --------------------------------------------------------------- showing

    def describe(self) -> dict[str, Any]:
        """For the status; nothing where it is off."""
        if not self._is_on:
            return {}
        waiting = {name: len(wanted.answers) for name, wanted in self._wanted.items()}
        return {"on_demand": {**self._evictions.describe(), "waiting": waiting}}

    @property
    def never_loaded(self) -> dict[str, str]:
        """What the index says of a model that nobody has tried to load."""
        return {"state": "UNAVAILABLE", "reason": NOT_YET} if self._is_on else {}
