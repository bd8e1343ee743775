"""Loads models on demand, for requests that wait, and evicts them when they are idle.

Called for each request to a model that is not loaded, and after each event. All that wait share one
load; one that failed is not retried at once. A model that was loaded by name stays, and one that
was unloaded by name is not loaded. Does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from zmqtriton.supervisor import (
    Change,
    ControlCall,
    CoreParts,
    CountsReport,
    Feature,
    HelperOwner,
    PlanTimer,
    Promise,
    RepositoryListing,
    Story,
    Verb,
    Verbs,
    required_model_name,
    result_of,
)
from zmqtriton_floor.errors import DeadlineExceeded, Unavailable, ZmqTritonError
from zmqtriton_floor.reasons import Kind, Reason
from zmqtriton_standard.memory.measurements import MemoryReport, ModelProcesses
from zmqtriton_standard.on_demand.evictions import TOO_MUCH, Evictor

#: The text of the index for a model that was never requested.
AWAITING_FIRST_REQUEST = Reason.of(Kind.AWAITS_REQUEST, "not loaded: waits for its first request")
#: The pause after a failed load, doubled each time.
FIRST_RETRY_PAUSE_S, MAX_RETRY_PAUSE_S = 1.0, 60.0
#: Unknown names are looked up in the repositories no more often than this.
MIN_LISTING_INTERVAL_S = 1.0
#: A model that does not sleep within this time does not sleep at all.
SLEEP_WITHIN_S = 30.0
#: The time in which others must become idle for a model that is loaded or wakes up.
IDLE_WITHIN_S = 10.0
MIN_CHECK_INTERVAL_S, MAX_CHECK_INTERVAL_S = 0.25, 5.0

#: Gets True when the model is loaded, False if there is none to load, or an error.
Respond = Callable[[Any], None]


class _PendingLoad:
    """A requested model, and those who wait for it."""

    def __init__(self, name: str, answer: Respond, until_s: float, *, wakes: bool = False) -> None:
        self.name = name
        self.responders = [answer]
        #: True for a loaded model that waits for room to wake up.
        self.wakes = wakes
        #: The time by which others must have become idle.
        self.until_s = until_s
        #: The models that are evicted for it.
        self.evicted_models: set[str] = set()
        self.story = Story()
        #: Something has happened that it may wait for.
        self.change = Change()
        #: It has begun to load, and ends by itself.
        self.is_loading = False


@dataclass
class _Failure:
    error: ZmqTritonError
    retry_at_s: float = 0.0
    pause_s: float = FIRST_RETRY_PAUSE_S


class OnDemandLoader(Feature):
    def __init__(self, core: CoreParts) -> None:
        super().__init__(core)
        self._is_on = core.policy.load_on_demand
        self._pending_loads: dict[str, _PendingLoad] = {}
        self._failures: dict[str, _Failure] = {}
        #: Calls for models that another server has as yet.
        self._moving: list[ControlCall] = []
        self._names: set[str] = set()
        self._listed_s = float("-inf")
        self._is_listing, self._listing_error = False, ""
        self._evictions = Evictor(core.plan, core.server.models, core.policy)
        self._processes = ModelProcesses(core.plan)
        self._gpu_problem = ""
        #: The models that are asked to sleep, and for how long.
        self._falling_asleep: dict[str, PlanTimer] = {}
        #: What to call after the current refresh, and after the next one.
        self._refresh_callbacks: list[Callable[[], None]] | None = None
        self._then_look: list[Callable[[], None]] = []
        self._timer: PlanTimer | None = None

    # ----------------------------------------------------------- what is asked

    @property
    def verbs(self) -> Verbs:
        return {
            "demand": Verb(self._demand, needs_repository=True),
            "room": Verb(self._await_room, of_models=True),
            "slept": Verb(self._note_sleep),
        }

    @property
    def helpers(self) -> Iterable[HelperOwner]:
        return (self._processes,) if self._evictions.has_budget else ()

    def load_ended(self, name: str) -> None:
        self._evictions.forget_sleep(name)

    def _demand(self, call: ControlCall) -> None:
        """Load a model on demand."""
        name, answer = required_model_name(call.arguments), call.answer
        models, failure = self._server.models, self._failures.get(name)
        load, model = self._pending_loads.get(name), models.get(name)
        if self._server.is_stopping:
            answer(Unavailable("Server exiting"))
        elif load is not None:
            load.responders.append(answer)
        elif model is not None and model.serving_configs:
            answer(True)
        elif self._server.is_moving:
            self._moving.append(call)
        elif not self._is_on or (model is not None and not model.is_on_demand):
            answer(False)
        elif failure is not None and self._plan.now_s < failure.retry_at_s:
            answer(failure.error)
        else:
            self._begin(_PendingLoad(name, answer, self._plan.now_s + IDLE_WITHIN_S))

    def _await_room(self, call: ControlCall) -> None:
        """Answer an instance that is about to wake up, when others have made room.

        One that was loaded by name is not held back, as its load is not.
        """
        name = required_model_name(call.arguments)
        load, model = self._pending_loads.get(name), self._server.models.get(name)
        if self._server.is_stopping:
            call.answer(Unavailable("Server exiting"))
        elif load is not None:
            load.responders.append(call.answer)
        elif model is None or not (self._evictions.has_budget and model.is_on_demand):
            call.answer(True)
        elif name in self._falling_asleep:
            call.answer(True)  # this instance does not sleep again before it had its request
        else:
            until_s = self._plan.now_s + IDLE_WITHIN_S
            self._begin(_PendingLoad(name, call.answer, until_s, wakes=True))

    def _note_sleep(self, call: ControlCall) -> None:
        at_s = call.arguments.get("at_s")
        since_s = at_s if isinstance(at_s, float) else self._plan.now_s
        self._evictions.slept(required_model_name(call.arguments), since_s)
        call.answer(True)

    def advance(self) -> None:
        moving, self._moving = self._moving, []
        for call in moving:
            self._demand(call)
        self._tell_loads()

    def _tell_loads(self) -> None:
        """Tell all loads that something has happened."""
        for load in [*self._pending_loads.values()]:
            load.change()

    def stop(self) -> None:
        for load in [each for each in self._pending_loads.values() if not each.is_loading]:
            load.story.cancel()
            self._end(load, Unavailable("Server exiting"))

    # --------------------------------------------------------------- the load

    def _begin(self, load: _PendingLoad) -> None:
        self._pending_loads[load.name] = load
        load.story.begin(self._tell(load))

    async def _tell(self, load: _PendingLoad) -> None:
        result: Any
        try:
            result = await self._bring(load)
        except ZmqTritonError as error:
            result = error
        self._end(load, result)

    async def _bring(self, load: _PendingLoad) -> bool:
        """Load a model, or let it wake up, when there is room for it.

        Return False if there is none to load. Raises ZmqTritonError.
        """
        name, models = load.name, self._server.models
        if name not in models and not await self._is_known(load):
            return False
        while True:
            await load.change.until(lambda: self._is_settled(load) or self._are_gone(load))
            if self._is_settled(load):
                return True
            has_room = not self._evictions.has_budget or await self._has_room(load)
            model = models.get(name)
            if not load.wakes and model is not None and not model.is_on_demand:
                return bool(model.serving_configs)  # an operator has loaded or unloaded it
            if has_room:
                break
        if load.wakes:
            self._evictions.wake(name)
        else:
            await self._load(load)
        return True

    async def _has_room(self, load: _PendingLoad) -> bool:
        """Return whether there is room for it, or make some: others sleep, or are evicted.

        Raises Unavailable if none of them becomes idle in time.
        """
        await result_of(self._refresh_usage)
        if not self._falling_asleep:
            try:
                room = self._evictions.make_room(load.name, wakes=load.wakes)
            except Unavailable as error:
                await self._await_idle_ones(load, error)
                return False
            if not room.sleepers:
                load.evicted_models = set(room.leaving)
                return not room.leaving
            self._put_to_sleep(room.sleepers, f"to make room for '{load.name}'")
        await load.change.until(lambda: not self._falling_asleep)
        return False

    async def _is_known(self, load: _PendingLoad) -> bool:
        """Return whether a repository has the model, by a listing that is not too old."""
        if load.name in self._names:
            return True
        if not self._is_listing:  # a listing also settles the requests that come meanwhile
            if self._plan.now_s - self._listed_s < MIN_LISTING_INTERVAL_S:
                return False
            self._is_listing, self._listed_s = True, self._plan.now_s
            self._server.list_repository(self._on_listed)
        await load.change.until(lambda: not self._is_listing)
        if self._listing_error:
            raise Unavailable(self._listing_error)
        return load.name in self._names

    def _on_listed(self, listing: RepositoryListing) -> None:
        self._is_listing = False
        if isinstance(listing, ZmqTritonError):
            self._names, self._listing_error = set(), listing.text
        else:
            self._names, self._listing_error = set(listing), ""
        self._tell_loads()

    def _is_settled(self, load: _PendingLoad) -> bool:
        """True if it serves, or was unloaded while it wakes up."""
        model = self._server.models.get(load.name)
        return load.wakes != bool(model is not None and model.serving_configs)

    def _are_gone(self, load: _PendingLoad) -> bool:
        """True if all that was evicted for it has ended, and an old one of its name."""
        models = self._server.models
        ending = load.evicted_models if load.wakes else load.evicted_models | {load.name}
        return all(models[name].has_ended for name in ending if name in models)

    async def _await_idle_ones(self, load: _PendingLoad, error: Unavailable) -> None:
        """Wait a moment for other models to become idle. Raises the error after the last one."""
        if self._plan.now_s >= load.until_s:
            if not load.wakes:
                self._remember_failure(load.name, error)
            raise error
        await self._plan.pause(MIN_CHECK_INTERVAL_S)

    async def _load(self, load: _PendingLoad) -> None:
        name = load.name
        load.is_loading = True
        self._evictions.reserve(name)
        self._plan.log("I", f"loading '{name}', which is asked for")
        loaded = Promise[ZmqTritonError | None]()
        self._server.get_or_create_model(name).load_on_demand(loaded)
        error = await loaded
        self._evictions.load_ended(name, error)
        if error is not None:
            failure = Unavailable(error.text)
            self._remember_failure(name, failure)
            raise failure
        self._failures.pop(name, None)
        self._watch()

    def _remember_failure(self, name: str, error: ZmqTritonError) -> None:
        """Have requests that come soon get the same answer without another try."""
        failure = self._failures.setdefault(name, _Failure(error))
        failure.error = error
        failure.retry_at_s = self._plan.now_s + failure.pause_s
        failure.pause_s = min(2 * failure.pause_s, MAX_RETRY_PAUSE_S)

    def _end(self, load: _PendingLoad, result: Any) -> None:
        del self._pending_loads[load.name]
        for answer in load.responders:
            answer(result)

    # ------------------------------------------------------------------- sleep

    def _put_to_sleep(self, names: Iterable[str], why: str) -> None:
        """Have models sleep; loads that need the room go on when all have, or cannot."""
        late = DeadlineExceeded(f"it did not sleep within {SLEEP_WITHIN_S:g} s")
        ended = {name: partial(self._on_sleep_ended, name, why) for name in names}
        for name, end in ended.items():
            self._falling_asleep[name] = self._plan.call_later(SLEEP_WITHIN_S, partial(end, late))
        for name, end in ended.items():
            self._server.perform("sleep", {"model": name}, end)

    def _on_sleep_ended(self, name: str, why: str, result: Any) -> None:
        timer = self._falling_asleep.pop(name, None)
        if timer is None:
            return  # it was given up
        timer.cancel()
        error = result if isinstance(result, ZmqTritonError) else None
        if error is None:
            self._plan.log("I", f"put '{name}' to sleep: {why}")
        else:
            self._plan.log("V", f"'{name}' does not sleep: {error.text}")
        self._evictions.sleep_ended(name, why, error)
        if self._falling_asleep:
            return
        self._tell_loads()
        if why == TOO_MUCH and error is not None:
            self._refresh_usage(self._enforce_limits)  # the next one, or this one goes

    # ------------------------------------------------------------- looking

    def _watch(self) -> None:
        """Check from time to time for models that were idle for too long or take too much."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pause_s = min(self._evictions.usage.shortest_idle_limit_s() / 4, MAX_CHECK_INTERVAL_S)
        if self._evictions.has_candidates and not self._server.is_stopping:
            self._timer = self._plan.call_later(
                max(pause_s, MIN_CHECK_INTERVAL_S), self._on_check_due
            )

    def _on_check_due(self) -> None:
        self._timer = None
        self._refresh_usage(self._enforce_limits)

    def _enforce_limits(self) -> None:
        if not (self._server.is_stopping or self._falling_asleep):
            self._put_to_sleep(self._evictions.enforce_limits().sleepers, TOO_MUCH)
        self._watch()

    def _refresh_usage(self, then: Callable[[], None]) -> None:
        """Refresh use and memory, then call `then`."""
        self._then_look.append(then)
        if self._refresh_callbacks is None:
            self._start_refresh()

    def _start_refresh(self) -> None:
        self._refresh_callbacks, self._then_look = self._then_look, []
        self._counts.request(self._on_counts)

    def _on_counts(self, report: CountsReport) -> None:
        self._evictions.usage.record_counts(report["counts"])
        if not self._evictions.has_budget:
            self._finish_refresh()
            return
        generations = self._server.generations.values()
        self._processes.measure(generations, self._evictions.gpus, self._on_memory_measured)

    def _on_memory_measured(self, memory: MemoryReport) -> None:
        if memory.gpu_problem not in ("", self._gpu_problem):
            self._plan.log("W", f"--gpu-memory-budget has no effect: {memory.gpu_problem}")
        self._gpu_problem = memory.gpu_problem
        self._evictions.record_memory(memory.by_model)
        self._finish_refresh()

    def _finish_refresh(self) -> None:
        looked, self._refresh_callbacks = self._refresh_callbacks or [], None
        for then in looked:
            then()
        if self._then_look and self._refresh_callbacks is None:
            self._start_refresh()

    # --------------------------------------------------------------- showing

    def describe(self, counts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """Describe it for the status; empty if loading on demand is off."""
        if not self._is_on:
            return {}
        waiting = {name: len(load.responders) for name, load in self._pending_loads.items()}
        return {"on_demand": {**self._evictions.describe(), "waiting": waiting}}

    @property
    def why_never_loaded(self) -> Reason | None:
        return AWAITING_FIRST_REQUEST if self._is_on else None
