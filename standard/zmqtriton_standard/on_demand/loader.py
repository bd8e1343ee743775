"""Loads models on demand, for requests that wait, and evicts them when they are idle.

Called for each request to a model that is not loaded. All that wait share one
load; one that failed is not retried at once. A model that was loaded by name stays, and one that
was unloaded by name is not loaded. Does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from zmqtriton.sdk.supervisor import (
    ControlCall,
    CoreParts,
    Feature,
    HelperOwner,
    Promise,
    Scope,
    Verb,
)
from zmqtriton.sdk.wire import Kind, Reason, Unavailable, ZmqTritonError, errors
from zmqtriton_standard.memory.measurements import ModelProcesses
from zmqtriton_standard.on_demand.evictions import TOO_MUCH, Evictor

#: The text of the index for a model that was never requested.
AWAITING_FIRST_REQUEST = Reason.of(Kind.AWAITS_REQUEST, "not loaded: waits for its first request")
#: The pause after a failed load, doubled each time.
FIRST_RETRY_PAUSE_S, MAX_RETRY_PAUSE_S = 1.0, 60.0
#: Unknown names are looked up in the repositories no more often than this.
MIN_LISTING_INTERVAL_S = 1.0
#: A model that does not sleep within this time does not sleep at all.
SLEEP_WITHIN_S = 30.0
#: Seconds for other models to become idle and make room for one that is loaded or wakes up.
IDLE_WITHIN_S = 10.0
MIN_CHECK_INTERVAL_S, MAX_CHECK_INTERVAL_S = 0.25, 5.0


class _PendingLoad:
    """A load that requests wait for."""

    def __init__(self, name: str, until_s: float, scope: Scope, *, wakes: bool = False) -> None:
        self.name = name
        #: Number of callers that wait for the model.
        self.waiting = 0
        #: True for a loaded model that waits for room to wake up.
        self.wakes = wakes
        #: Time until which the load waits for other models to become idle.
        self.until_s = until_s
        #: The models that are evicted for it.
        self.evicted_models: set[str] = set()
        self.scope = scope
        #: True for a loaded model, False without one.
        self.outcome = Promise[bool]()
        #: True once the load has begun; a stop of the server then does not cancel the load.
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
        self._names: set[str] = set()
        self._listed_s = float("-inf")
        self._is_listing, self._listing_error = False, ""
        self._evictions = Evictor(core)
        self._processes = ModelProcesses(core.plan)
        self._gpu_problem = ""
        #: Timers of the sleep calls in progress, by model.
        self._falling_asleep: dict[str, Callable[[], None]] = {}
        self._is_refreshing = False
        #: Promises that are kept after the refresh that begins next.
        self._refreshed: list[Promise[None]] = []
        self._end_timer: Callable[[], None] | None = None

    # ----------------------------------------------------------- what is asked

    @property
    def verbs(self) -> Mapping[str, Verb]:
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

    async def _demand(self, call: ControlCall) -> bool:
        """Load a model on demand."""
        name = ControlCall.required_model_name(call.arguments)
        await self._until_here(name)
        load, model = self._pending_loads.get(name), self._server.models.get(name)
        if self._server.is_stopping:
            raise Unavailable("Server exiting")
        if load is not None:
            return await self._outcome(load)
        if model is not None and model.serving_configs:
            return True
        failure = self._failures.get(name)
        if not self._is_on or (model is not None and not model.is_on_demand):
            return False
        if failure is not None and self._plan.now_s < failure.retry_at_s:
            raise failure.error
        return await self._begin(name)

    async def _until_here(self, name: str) -> None:
        """Wait while another server has the model as yet."""
        server, models = self._server, self._server.models
        await self._plan.until(
            lambda: (
                server.is_stopping
                or not server.is_moving
                or name in self._pending_loads
                or (name in models and bool(models[name].serving_configs))
            )
        )

    async def _await_room(self, call: ControlCall) -> bool:
        """Answer an instance that is about to wake up, once other models have made room.

        A model that was loaded by name is not held back, as its load is not.
        """
        name = ControlCall.required_model_name(call.arguments)
        load, model = self._pending_loads.get(name), self._server.models.get(name)
        if self._server.is_stopping:
            raise Unavailable("Server exiting")
        if load is not None:
            return await self._outcome(load)
        if model is None or not (self._evictions.has_budget and model.is_on_demand):
            return True
        if name in self._falling_asleep:
            return True  # this instance does not sleep again before it had its request
        return await self._begin(name, wakes=True)

    def _note_sleep(self, call: ControlCall) -> bool:
        at_s = call.arguments.get("at_s")
        since_s = at_s if isinstance(at_s, float) else self._plan.now_s
        self._evictions.slept(ControlCall.required_model_name(call.arguments), since_s)
        return True

    def stop(self) -> None:
        for load in [each for each in self._pending_loads.values() if not each.is_loading]:
            load.scope.cancel()
            load.outcome.fail(Unavailable("Server exiting"))

    # --------------------------------------------------------------- the load

    def _begin(self, name: str, *, wakes: bool = False) -> Promise[bool]:
        until_s, scope = self._plan.now_s + IDLE_WITHIN_S, self._plan.scope()
        load = self._pending_loads[name] = _PendingLoad(name, until_s, scope, wakes=wakes)
        load.scope.tell(self._tell(load))
        return self._outcome(load)

    def _outcome(self, load: _PendingLoad) -> Promise[bool]:
        load.waiting += 1
        return load.outcome

    async def _tell(self, load: _PendingLoad) -> None:
        try:
            load.outcome(await self._bring(load))
        except ZmqTritonError as error:
            load.outcome.fail(error)
        finally:
            del self._pending_loads[load.name]

    async def _bring(self, load: _PendingLoad) -> bool:
        """Load a model, or let it wake up, when there is room.

        Returns False for an unknown model. Raises ZmqTritonError.
        """
        name, models = load.name, self._server.models
        if name not in models and not await self._is_known(load):
            return False
        while True:
            await self._plan.until(lambda: self._is_settled(load) or self._are_gone(load))
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
        """Return whether there is room for the model; if not, let others sleep, or evict them.

        Raises Unavailable if none of them becomes idle in time.
        """
        await self._refresh_usage()
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
        await self._plan.until(lambda: not self._falling_asleep)
        return False

    async def _is_known(self, load: _PendingLoad) -> bool:
        """Return whether a repository has the model, by a listing that is not too old."""
        if load.name in self._names:
            return True
        if not self._is_listing:  # a listing also settles the requests that come meanwhile
            if self._plan.now_s - self._listed_s < MIN_LISTING_INTERVAL_S:
                return False
            self._is_listing, self._listed_s = True, self._plan.now_s
            self._plan.tell(self._list())
        await self._plan.until(lambda: not self._is_listing)
        if self._listing_error:
            raise Unavailable(self._listing_error)
        return load.name in self._names

    async def _list(self) -> None:
        try:
            self._names, self._listing_error = set(await self._server.list_repository()), ""
        except ZmqTritonError as error:
            self._names, self._listing_error = set(), error.text
        self._is_listing = False

    def _is_settled(self, load: _PendingLoad) -> bool:
        """True if the model serves, or was unloaded while it woke up."""
        model = self._server.models.get(load.name)
        return load.wakes != bool(model is not None and model.serving_configs)

    def _are_gone(self, load: _PendingLoad) -> bool:
        """True if all models that were evicted for the load have ended, and the old generation."""
        models = self._server.models
        ending = load.evicted_models if load.wakes else load.evicted_models | {load.name}
        return all(models[name].has_ended for name in ending if name in models)

    async def _await_idle_ones(self, load: _PendingLoad, error: Unavailable) -> None:
        """Wait a moment for other models to become idle. Raises the error after the load's time."""
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
        try:
            await self._server.get_or_create_model(name).load_on_demand()
        except ZmqTritonError as error:
            self._evictions.load_ended(name, error)
            failure = Unavailable(error.text)
            self._remember_failure(name, failure)
            raise failure from None
        self._evictions.load_ended(name, None)
        self._failures.pop(name, None)
        self._watch()

    def _remember_failure(self, name: str, error: ZmqTritonError) -> None:
        """Let requests that come soon fail with the same error, without another try."""
        failure = self._failures.setdefault(name, _Failure(error))
        failure.error = error
        failure.retry_at_s = self._plan.now_s + failure.pause_s
        failure.pause_s = min(2 * failure.pause_s, MAX_RETRY_PAUSE_S)

    # ------------------------------------------------------------------- sleep

    def _put_to_sleep(self, names: Iterable[str], why: str) -> None:
        """Let models sleep; waiting loads continue when all models sleep, or have refused."""
        late = errors.DeadlineExceeded(f"it did not sleep within {SLEEP_WITHIN_S:g} s")
        called = list(names)
        for name in called:
            give_up = partial(self._on_sleep_ended, name, why, late)
            self._falling_asleep[name] = self._plan.call_later(SLEEP_WITHIN_S, give_up).cancel
        for name in called:
            self._plan.tell(self._put_one_to_sleep(name, why))

    async def _put_one_to_sleep(self, name: str, why: str) -> None:
        try:
            await self._server.perform("sleep", {"model": name})
        except ZmqTritonError as error:
            self._on_sleep_ended(name, why, error)
        else:
            self._on_sleep_ended(name, why, None)

    def _on_sleep_ended(self, name: str, why: str, error: ZmqTritonError | None) -> None:
        end_timer = self._falling_asleep.pop(name, None)
        if end_timer is None:
            return  # it was given up
        end_timer()
        if error is None:
            self._plan.log("I", f"put '{name}' to sleep: {why}")
        else:
            self._plan.log("V", f"'{name}' does not sleep: {error.text}")
        self._evictions.sleep_ended(name, why, error)
        if why == TOO_MUCH and error is not None and not self._falling_asleep:
            self._plan.tell(self._enforce_limits())  # the next one, or this one goes

    # ------------------------------------------------------------- looking

    def _watch(self) -> None:
        """Look from time to time for models that were idle for too long, or take much memory."""
        if self._end_timer is not None:
            self._end_timer()
            self._end_timer = None
        pause_s = min(self._evictions.usage.shortest_idle_limit_s() / 4, MAX_CHECK_INTERVAL_S)
        if self._evictions.has_candidates and not self._server.is_stopping:
            timer = self._plan.call_later(max(pause_s, MIN_CHECK_INTERVAL_S), self._on_check_due)
            self._end_timer = timer.cancel

    def _on_check_due(self) -> None:
        self._end_timer = None
        self._plan.tell(self._enforce_limits())

    async def _enforce_limits(self) -> None:
        await self._refresh_usage()
        if not (self._server.is_stopping or self._falling_asleep):
            self._put_to_sleep(self._evictions.enforce_limits().sleepers, TOO_MUCH)
        self._watch()

    def _refresh_usage(self) -> Promise[None]:
        """Refresh use and memory, by a reading that has not begun yet."""
        refreshed = Promise[None]()
        self._refreshed.append(refreshed)
        self._plan.tell(self._refresh())
        return refreshed

    async def _refresh(self) -> None:
        while self._refreshed and not self._is_refreshing:
            refreshed, self._refreshed = self._refreshed, []
            self._is_refreshing = True
            self._evictions.usage.record_counts((await self._counts.request())["counts"])
            if self._evictions.has_budget:
                await self._measure_memory()
            self._is_refreshing = False
            for each in refreshed:
                each()

    async def _measure_memory(self) -> None:
        memory = await self._processes.measure(
            self._server.generations.values(), self._evictions.gpus
        )
        if memory.gpu_problem not in ("", self._gpu_problem):
            self._plan.log("W", f"--gpu-memory-budget has no effect: {memory.gpu_problem}")
        self._gpu_problem = memory.gpu_problem
        self._evictions.record_memory(memory.by_model)

    # --------------------------------------------------------------- showing

    def describe(self, counts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """Return loads and evictions for the status; empty if loading on demand is off."""
        if not self._is_on:
            return {}
        waiting = {name: load.waiting for name, load in self._pending_loads.items()}
        return {"on_demand": {**self._evictions.describe(), "waiting": waiting}}

    @property
    def why_never_loaded(self) -> Reason | None:
        return AWAITING_FIRST_REQUEST if self._is_on else None
