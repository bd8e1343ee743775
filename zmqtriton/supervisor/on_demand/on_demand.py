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

from zmqtriton.supervisor.actions import MeasureMemory, RepositoryListing
from zmqtriton.supervisor.models.generation import Generation
from zmqtriton.supervisor.models.model import Model
from zmqtriton.supervisor.on_demand.broker_counts import BrokerCounts, CountsReport
from zmqtriton.supervisor.on_demand.evictions import Evictor
from zmqtriton.supervisor.plan import Plan, Timer
from zmqtriton.supervisor.policy import Policy
from zmqtriton_floor.errors import Unavailable, ZmqTritonError

VERB = "demand"
#: What the index says of a model that nobody has asked for yet.
AWAITING_FIRST_REQUEST = "not loaded: waits for its first request"
#: After a failed load the next one is tried so much later, twice as long each time.
FIRST_RETRY_PAUSE_S, MAX_RETRY_PAUSE_S = 1.0, 60.0
#: Unknown names are looked for in the repositories no more often than this.
MIN_LISTING_INTERVAL_S = 1.0
MIN_CHECK_INTERVAL_S, MAX_CHECK_INTERVAL_S = 0.25, 5.0

#: Gets True when the model is loaded, False where there is none to load, or why it is not loaded.
Respond = Callable[[Any], None]


class OnDemandServer(Protocol):
    models: dict[str, Model]
    generations: dict[int, Generation]

    @property
    def is_stopping(self) -> bool:
        """Nothing new may begin."""

    def get_or_create_model(self, name: str) -> Model:
        """It, made known if it was not."""

    def list_repository(self, then: Callable[[RepositoryListing], None]) -> None:
        """`then` gets the names that the repositories hold."""


class LoadPhase(Enum):
    LISTING = "LISTING"  # whether there is such a model
    WAITING = "WAITING"  # until what has to end before has ended
    MEASURING = "LOOKING"  # whether there is room
    LOADING = "LOADING"


class _PendingLoad:
    """A model that is asked for, and by whom."""

    def __init__(self, answer: Respond) -> None:
        self.responders = [answer]
        self.phase = LoadPhase.LISTING
        #: Models that make room for it.
        self.evicted_models: set[str] = set()


class _Failure:
    def __init__(self) -> None:
        self.error: ZmqTritonError = Unavailable("")
        self.retry_at_s = 0.0
        self.pause_s = FIRST_RETRY_PAUSE_S


class OnDemandLoader:
    def __init__(
        self, plan: Plan, policy: Policy, served: OnDemandServer, counts: BrokerCounts
    ) -> None:
        self._plan = plan
        self._is_on = policy.load_on_demand
        self._server = served
        self._counts = counts
        self._pending_loads: dict[str, _PendingLoad] = {}
        self._failures: dict[str, _Failure] = {}
        self._names: set[str] = set()
        self._listed_s = float("-inf")
        self._evictions = Evictor(plan, served.models, policy)
        #: What to call after the look that is under way, and after the next one.
        self._refresh_callbacks: list[Callable[[], None]] | None = None
        self._then_look: list[Callable[[], None]] = []
        self._timer: Timer | None = None

    # ----------------------------------------------------------- what is asked

    def request_load(self, name: str, answer: Respond) -> None:
        """`answer` is called once, now or when it is loaded or cannot be."""
        models, failure = self._server.models, self._failures.get(name)
        wanted, model = self._pending_loads.get(name), models.get(name)
        if self._server.is_stopping:
            answer(Unavailable("Server exiting"))
        elif wanted is not None:
            wanted.responders.append(answer)
        elif model is not None and model.serving_configs:
            answer(True)
        elif not self._is_on or (model is not None and not model.is_on_demand):
            answer(False)
        elif failure is not None and self._plan.now_s < failure.retry_at_s:
            answer(failure.error)
        else:
            self._pending_loads[name] = _PendingLoad(answer)
            if model is not None:
                self._go_on(name)
            else:
                self._list(name)

    def _list(self, name: str) -> None:
        if name in self._names:
            self._go_on(name)
        elif self._plan.now_s - self._listed_s < MIN_LISTING_INTERVAL_S:
            self._end(name, False)
        else:
            # All that come meanwhile are settled by this listing too.
            self._listed_s = self._plan.now_s
            self._server.list_repository(self._on_listed)

    def _on_listed(self, found: RepositoryListing) -> None:
        self._names = set() if isinstance(found, ZmqTritonError) else set(found)
        for name in [n for n, w in self._pending_loads.items() if w.phase is LoadPhase.LISTING]:
            if isinstance(found, ZmqTritonError):
                self._end(name, Unavailable(found.text))
            elif name in found:
                self._go_on(name)
            else:
                self._end(name, False)

    def _go_on(self, name: str) -> None:
        self._pending_loads[name].phase = LoadPhase.WAITING
        self._proceed(name)

    def advance(self) -> None:
        """To be called after all that happens."""
        for name in [n for n, w in self._pending_loads.items() if w.phase is LoadPhase.WAITING]:
            self._proceed(name)

    def _proceed(self, name: str) -> None:
        wanted, models = self._pending_loads[name], self._server.models
        model = models.get(name)
        if model is not None and model.serving_configs:
            self._end(name, True)
        elif all(models[n].has_ended for n in wanted.evicted_models | {name} if n in models):
            if self._evictions.has_budget:
                wanted.phase = LoadPhase.MEASURING
                self._refresh_usage(partial(self._make_room, name))
            else:
                self._load(name)

    def stop(self) -> None:
        """The server ends; loads are cancelled by their models."""
        for name in [n for n, w in self._pending_loads.items() if w.phase is not LoadPhase.LOADING]:
            self._end(name, Unavailable("Server exiting"))

    # --------------------------------------------------------------- the load

    def _make_room(self, name: str) -> None:
        wanted = self._pending_loads.get(name)
        if wanted is None or wanted.phase is not LoadPhase.MEASURING:
            return
        try:
            leaving = self._evictions.make_room(name)
        except Unavailable as error:
            self._fail(name, error)
            return
        if leaving:
            wanted.evicted_models, wanted.phase = set(leaving), LoadPhase.WAITING
            self._proceed(name)
        else:
            self._load(name)

    def _load(self, name: str) -> None:
        self._pending_loads[name].phase = LoadPhase.LOADING
        self._evictions.reserve(name)
        self._plan.log("I", f"loading '{name}', which is asked for")
        self._server.get_or_create_model(name).load_on_demand(partial(self._on_load_ended, name))

    def _on_load_ended(self, name: str, error: ZmqTritonError | None) -> None:
        self._evictions.load_ended(name, error)
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
        failure.retry_at_s = self._plan.now_s + failure.pause_s
        failure.pause_s = min(2 * failure.pause_s, MAX_RETRY_PAUSE_S)
        self._end(name, error)

    def _end(self, name: str, result: Any) -> None:
        for answer in self._pending_loads.pop(name).responders:
            answer(result)

    # ------------------------------------------------------------- looking

    def _watch(self) -> None:
        """Looks now and then for what has been idle for too long, or takes too much."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pause_s = min(self._evictions.shortest_idle_limit_s() / 4, MAX_CHECK_INTERVAL_S)
        if self._evictions.has_candidates and not self._server.is_stopping:
            self._timer = self._plan.call_later(
                max(pause_s, MIN_CHECK_INTERVAL_S), self._on_check_due
            )

    def _on_check_due(self) -> None:
        self._timer = None
        self._refresh_usage(self._enforce_limits)

    def _enforce_limits(self) -> None:
        if not self._server.is_stopping:
            self._evictions.enforce_limits()
        self._watch()

    def _refresh_usage(self, then: Callable[[], None]) -> None:
        """Calls `then` when it is known what is used, and how much memory that takes, as it is from
        now on."""
        self._then_look.append(then)
        if self._refresh_callbacks is None:
            self._start_refresh()

    def _start_refresh(self) -> None:
        self._refresh_callbacks, self._then_look = self._then_look, []
        self._counts.request(self._on_counts)

    def _on_counts(self, found: CountsReport) -> None:
        self._evictions.usage.record_counts(found["counts"])
        if not self._evictions.has_budget:
            self._finish_refresh()
            return
        generations = self._server.generations.values()
        pids = {i.pid: g.blueprint.name for g in generations for i in g.instances if i.is_alive}
        self._plan.enqueue(MeasureMemory({pid: name for pid, name in pids.items() if pid}))

    def on_memory_measured(self, found: Mapping[str, int]) -> None:
        """The answer to MeasureMemory, by model."""
        self._evictions.record_memory(found)
        self._finish_refresh()

    def _finish_refresh(self) -> None:
        looked, self._refresh_callbacks = self._refresh_callbacks or [], None
        for then in looked:
            then()
        if self._then_look and self._refresh_callbacks is None:
            self._start_refresh()

    # --------------------------------------------------------------- showing

    def describe(self) -> dict[str, Any]:
        """For the status; nothing where it is off."""
        if not self._is_on:
            return {}
        waiting = {name: len(wanted.responders) for name, wanted in self._pending_loads.items()}
        return {"on_demand": {**self._evictions.describe(), "waiting": waiting}}

    @property
    def never_loaded_entry(self) -> dict[str, str]:
        """What the index says of a model that nobody has tried to load."""
        return {"state": "UNAVAILABLE", "reason": AWAITING_FIRST_REQUEST} if self._is_on else {}
