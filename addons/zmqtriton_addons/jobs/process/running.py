"""The jobs that run: for each model as many at a time as it says, the oldest first."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from zmqtriton_addons.jobs.process.execution import AnswerTooLarge, Execution, Reply, judge
from zmqtriton_addons.jobs.process.store import FAILED, SUCCEEDED, Job, Outcome, Refused, Store
from zmqtriton_addons.jobs.process.store_thread import StoreThread
from zmqtriton_addons.jobs.process.troubles import Trouble
from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_floor.signature import config_parameter
from zmqtriton_frontends.gateway import Gateway
from zmqtriton_frontends.inference import Stages

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

_LOOK_EVERY_S = 1.0
#: The jobs of a model that run at a time, unless its parameter JOBS_LIMIT says another number.
_LIMIT = 4
_MAX_LIMIT = 1024
_SAVE_AGAIN_S = 1.0
_SWEEP_EVERY_S = 10.0


class Running:
    def __init__(self, gateway: Gateway, store: StoreThread) -> None:
        self._gateway = gateway
        self._store = store
        self._execution = Execution(gateway)
        self._news = asyncio.Event()
        #: How many tasks work for a model.
        self._workers: Counter[str] = Counter()
        #: Models that have got a job while as many tasks worked as may.
        self._woken: set[str] = set()
        #: The tasks that execute, by job.
        self._executing: dict[str, asyncio.Task[Any]] = {}
        self._stages: dict[str, Stages] = {}
        self._replies: dict[str, Reply] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._looking = Trouble("jobs cannot be looked for", "jobs are looked for again")
        self._keeping = Trouble(
            "answers of jobs cannot be kept yet", "all answers of jobs are kept again"
        )
        #: The tasks that look for jobs; none while the server leaves.
        self._lookers: list[asyncio.Task[None]] = []

    @property
    def is_idle(self) -> bool:
        return not self._tasks

    @property
    def is_leaving(self) -> bool:
        return not self._lookers

    def begin(self) -> None:
        self._lookers = [self._spawn(self._look()), self._spawn(self._sweep())]

    def wake(self) -> None:
        """Look for new jobs of all models."""
        self._news.set()

    def leave(self) -> None:
        """Begin no more jobs."""
        for task in self._lookers:
            task.cancel()
        self._lookers = []

    def progress(self, job: str) -> float | None:
        """Return the part that the model says to have done; None if it does not say."""
        done = self._stages[job].done if job in self._stages else None
        return None if done is None else done / 1000

    def reply(self, job: str) -> Reply | None:
        """Return what there is of the answer of a job that runs here."""
        return self._replies.get(job)

    def cancel(self, job: str) -> None:
        """Cancel the request of a job that runs here."""
        if job in self._executing:
            self._executing[job].cancel()

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("a job could not be gone on with", exc_info=task.exception())

    async def _look(self) -> None:
        while True:
            self._news.clear()
            for model in await self._try(Store.queued_models, "models") or ():
                while self.begin_worker(model):
                    continue
            try:
                await asyncio.wait_for(self._news.wait(), _LOOK_EVERY_S)
            except asyncio.TimeoutError:
                continue

    async def _try(self, work: Callable[[Store], _T], what: str) -> _T | None:
        """Perform work that is repeated soon; return None if the disk does not allow it now."""
        try:
            result = await self._unless_full(work)
        except Exception as error:  # noqa: BLE001 - whatever it is, jobs go on when it is over
            self._looking.goes_on(error, what)
            return None
        self._looking.ends(what)
        return result

    async def _unless_full(self, work: Callable[[Store], _T]) -> _T | None:
        """Perform work; return None if the disk is full, which the store says in the log."""
        try:
            return await self._store.do(work)
        except Refused:
            return None

    async def _sweep(self) -> None:
        while True:
            has_more = await self._try(Store.sweep, "old jobs")
            await asyncio.sleep(0 if has_more else _SWEEP_EVERY_S)

    def begin_worker(self, model: str) -> bool:
        """Begin one more task for a model that has a new job; False if enough of them work."""
        limit, may_repeat = self._rules_of(model)
        if self.is_leaving or self._workers[model] >= limit:
            self._woken.add(model)
            return False
        self._workers[model] += 1
        self._spawn(self._work(model, may_repeat))
        return True

    def _rules_of(self, model: str) -> tuple[int, bool]:
        """Return how many jobs of a model may run, none while it is not there, and again."""
        if not model:
            return _LIMIT, False
        try:
            version = self._gateway.catalogue.find(model)
        except ZmqTritonError as error:
            # one that is loaded on demand is loaded by the request
            return (1 if type(error).__name__ == "NotLoaded" else 0), False
        limit = config_parameter(version.config, "JOBS_LIMIT")
        number = int(limit) if limit.isascii() and limit.isdigit() else _LIMIT
        repeats = config_parameter(version.config, "JOBS_REPEAT").lower() == "true"
        return min(number, _MAX_LIMIT), repeats

    async def _work(self, model: str, may_repeat: bool) -> None:
        claim = partial(Store.claim, model=model, may_repeat=may_repeat)
        try:
            job = await self._unless_full(claim)
            while job is not None or (model in self._woken and not self.is_leaving):
                if job is None:  # one may have come after the question
                    self._woken.discard(model)
                    job = await self._unless_full(claim)
                    continue
                saving = self._save(job, await self._outcome(job, may_repeat))
                # in one transaction with the end of this one
                claiming = None if self.is_leaving else self._unless_full(claim)
                next_job = None if claiming is None else asyncio.ensure_future(claiming)
                outcome = await saving
                if outcome.state == SUCCEEDED and job.body is None:  # others may run again
                    self._store.do(partial(Store.forget_request, job=job.id))
                job = None if next_job is None else await next_job
        finally:
            self._workers[model] -= 1

    async def _outcome(self, job: Job, may_repeat: bool) -> Outcome:
        while (body := await self._unless_full(partial(Store.read_request, job=job))) is None:
            await asyncio.sleep(_SAVE_AGAIN_S)
        stages = self._stages[job.id] = Stages(0)
        reply = self._replies[job.id] = Reply(partial(self._fault_of, job.id))
        task = asyncio.ensure_future(self._execution.answer(job, body, stages, reply))
        del body
        self._executing[job.id] = task
        try:
            return judge(job, await task, may_repeat)
        except asyncio.CancelledError:
            if not task.cancelled() or self._is_ending():
                task.cancel()
                raise
            return Outcome(FAILED, reason="cancelled")  # its row has changed before
        except AnswerTooLarge as error:
            return Outcome(FAILED, error.status, reason=str(error))
        except Exception as error:  # noqa: BLE001 - an edge: one job fails, the others go on
            _log.exception("a job has failed")
            return Outcome(FAILED, 500, reason=f"internal error: {error}")
        finally:
            del self._executing[job.id], self._stages[job.id], self._replies[job.id]

    async def _fault_of(self, job: str, size: int) -> str:
        # on a full disk an answer waits until it can be kept
        return await self._unless_full(partial(Store.fault_of, job=job, size=size)) or ""

    def _is_ending(self) -> bool:
        task = asyncio.current_task()
        return task is not None and getattr(task, "cancelling", lambda: 0)() > 0

    def _save(self, job: Job, outcome: Outcome) -> asyncio.Future[Outcome]:
        return asyncio.ensure_future(self._save_until_kept(job, outcome))

    async def _save_until_kept(self, job: Job, outcome: Outcome) -> Outcome:
        """Save an outcome, again and again while the disk is full: it is not lost."""
        while True:
            try:
                outcome = await self._store.do(partial(Store.end, job=job.id, outcome=outcome))
                self._keeping.ends(job.id)
                return outcome
            except Exception as error:  # noqa: BLE001 - whatever it is, the answer is here
                self._keeping.goes_on(error, job.id)
                await asyncio.sleep(_SAVE_AGAIN_S)
