"""The jobs that run: for each model as many at a time as its configuration allows.

Disks are slow compared with small jobs. So the next short jobs of a model are begun on disk while
others execute, and an execution does not wait until the previous response is on disk.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Coroutine
from functools import partial
from typing import Any

from zmqtriton.sdk.frontend import Gateway, NotLoaded, Stages
from zmqtriton.sdk.models import config_parameter
from zmqtriton.sdk.wire import ZmqTritonError
from zmqtriton_extras.jobs.messages import OWN
from zmqtriton_extras.jobs.process.execution import AnswerTooLarge, Execution, Reply, judge
from zmqtriton_extras.jobs.process.store import (
    FAILED,
    FILE_BYTES,
    QUEUED,
    Job,
    Outcome,
    Store,
    Submission,
    path_of,
)
from zmqtriton_extras.jobs.process.store_thread import StoreThread
from zmqtriton_extras.jobs.process.troubles import Trouble

_log = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0
#: The jobs of a model that run at a time, unless its parameter JOBS_LIMIT says another number.
_LIMIT = 4
_MAX_LIMIT = 1024
_SAVE_AGAIN_S = 1.0
_SWEEP_EVERY_S = 10.0
#: While a model's last job took no longer, this many for each task begin on disk ahead.
_SHORT_S, _AHEAD = 0.05, 4
#: The small answers that are not on disk yet, while more jobs are executed.
_MAX_UNSAVED = 64
_AGAIN_S = 1.0
#: The tries of a job whose request cannot be read; each waits twice as long as the one before.
_MAX_READS = 5


class _Line:
    """The work for one model's jobs."""

    def __init__(self) -> None:
        #: Number of tasks that work for it, and of those that wait for a job.
        self.workers = self.waiting = 0
        #: The jobs that have begun on disk, and are not executed yet.
        self.ahead: dict[str, Job] = {}
        #: The task that starts further jobs.
        self.filling: asyncio.Task[None] | None = None
        #: Whether the last query found all queued jobs, and whether a job has arrived since.
        self.is_empty = self.is_woken = False
        self.is_short = False

    @property
    def may_have_more(self) -> bool:
        return self.is_woken or not self.is_empty


class Running:
    def __init__(self, gateway: Gateway, store: StoreThread) -> None:
        self._gateway = gateway
        self._store = store
        self._execution = Execution(gateway)
        self._news = asyncio.Event()
        #: The work, by model.
        self._lines: defaultdict[str, _Line] = defaultdict(_Line)
        #: The models that are being loaded for their jobs.
        self._loading: set[str] = set()
        self._unsaved = 0
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
        self._is_closed = False

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
        """Return the progress that the model has reported, from 0 to 1; None without a report."""
        done = self._stages[job].done if job in self._stages else None
        return None if done is None else done / 1000

    def reply(self, job: str) -> Reply | None:
        """Return the response so far of a job that runs here."""
        return self._replies.get(job)

    def cancel(self, job: str) -> None:
        """Cancel the request of a job that runs here, or soon will."""
        for line in self._lines.values():
            line.ahead.pop(job, None)
        if job in self._executing:
            self._executing[job].cancel()

    def close(self) -> None:
        """End all work here, and leave it to the next process."""
        self._is_closed = True
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
            models = await self._store.attempt(Store.queued_models, self._looking, "models")
            for model in models or ():
                while self.begin_worker(model):
                    continue
            try:
                await asyncio.wait_for(self._news.wait(), _LOOK_EVERY_S)
            except asyncio.TimeoutError:
                continue

    async def _sweep(self) -> None:
        while True:
            has_more = await self._store.attempt(Store.sweep, self._looking, "old jobs")
            await asyncio.sleep(0 if has_more else _SWEEP_EVERY_S)

    async def submit(self, submission: Submission) -> Job:
        """Store a job, and begin it in the same transaction if its model has a free worker.

        Returns the job as queued. Raises Refused.
        """
        model = submission.model
        line = self._lines[model]
        limit, may_repeat = self._rules_of(model)
        if self.is_leaving or line.workers >= limit:
            job = await self._store.do(partial(Store.submit, job=submission))
            self.begin_worker(model)
            return job
        line.workers += 1
        try:
            work = partial(Store.submit_and_begin, job=submission, may_repeat=may_repeat)
            job, begun = await self._store.do(work)
        except BaseException:
            line.workers -= 1
            raise
        line.is_woken |= begun is not job  # others wait, too
        self._spawn(self._work(model, may_repeat, begun))
        return job

    def begin_worker(self, model: str) -> bool:
        """Start another task for a model with a new job; False if its limit is reached."""
        line = self._lines[model]
        line.is_woken = True
        limit, may_repeat = self._rules_of(model)
        if self.is_leaving or line.workers >= limit:
            return False
        line.workers += 1
        self._spawn(self._work(model, may_repeat))
        return True

    def _rules_of(self, model: str) -> tuple[int, bool]:
        """Return a model's maximum number of running jobs, and whether they may be repeated."""
        if not model:
            return _LIMIT, False
        try:
            version = self._gateway.catalogue.find(model)
        except NotLoaded as missing:
            # its rules are those of its configuration, which is known once it is loaded
            self._load(model, missing)
            return 0, False
        except ZmqTritonError:
            return 0, False
        limit = config_parameter(version.config, "JOBS_LIMIT")
        number = int(limit) if limit.isascii() and limit.isdigit() else _LIMIT
        repeats = config_parameter(version.config, "JOBS_REPEAT").lower() == "true"
        return min(number, _MAX_LIMIT), repeats

    def _load(self, model: str, missing: NotLoaded) -> None:
        if model not in self._loading and not self.is_leaving:
            self._loading.add(model)
            self._spawn(self._load_for_jobs(model, missing.load()))

    async def _load_for_jobs(self, model: str, loading: Coroutine[Any, Any, None]) -> None:
        """Load a model that has jobs; if that fails, a job's request reports the reason."""
        line = self._lines[model]
        try:
            await loading
        except ZmqTritonError:
            if not line.workers and not self.is_leaving:
                line.workers, line.is_woken = 1, True
                self._spawn(self._work(model, may_repeat=False))
        finally:
            self._loading.discard(model)
        self.wake()

    async def _work(self, model: str, may_repeat: bool, begun: Job | None = None) -> None:
        """Execute a begun job, and all that follow."""
        line, clock = self._lines[model], asyncio.get_running_loop().time
        try:
            job = begun or await self._next(line, model, may_repeat)
            while job is not None:
                started_s = clock()
                outcome = await self._outcome(job, may_repeat)
                is_over = outcome.state != QUEUED
                line.is_short = is_over and clock() - started_s < _SHORT_S
                saving = self._spawn(self._save(job, outcome))
                if self._unsaved >= _MAX_UNSAVED or len(outcome.reply) > FILE_BYTES:
                    await saving
                job = await self._next(line, model, may_repeat)
        finally:
            line.workers -= 1

    async def _next(self, line: _Line, model: str, may_repeat: bool) -> Job | None:
        """Return the next job, which is begun on disk; None without one."""
        while not line.ahead:
            if self.is_leaving or (line.filling is None and not line.may_have_more):
                return None
            line.waiting += 1
            await self._fill(line, model, may_repeat)
            line.waiting -= 1
        job = line.ahead.pop(next(iter(line.ahead)))
        is_low = line.is_short and len(line.ahead) <= line.workers * _AHEAD // 2
        if is_low and line.may_have_more and not self.is_leaving:
            self._fill(line, model, may_repeat)
        return job

    def _fill(self, line: _Line, model: str, may_repeat: bool) -> asyncio.Task[None]:
        """Begin jobs of a model on disk for its workers; done when this is durable."""

        async def begin(limit: int) -> None:
            claim = partial(Store.claim_some, model=model, may_repeat=may_repeat, limit=limit)
            jobs = await self._store.attempt(claim, self._looking, model) or ()
            line.is_empty = len(jobs) < limit
            line.ahead |= {job.id: job for job in jobs}
            line.filling = None

        if line.filling is None:
            line.is_woken = False  # a job that comes from now on may not be found
            ahead = line.workers * _AHEAD - len(line.ahead) if line.is_short else 0
            line.filling = self._spawn(begin(max(line.waiting, ahead)))
        return line.filling

    async def _outcome(self, job: Job, may_repeat: bool) -> Outcome:
        """Execute a job in a task that can be cancelled at any time."""
        stages = self._stages[job.id] = Stages(0)
        reply = self._replies[job.id] = Reply(partial(self._fault_of, job.id))
        task = asyncio.ensure_future(self._execute(job, may_repeat, stages, reply))
        self._executing[job.id] = task
        try:
            return await task
        except asyncio.CancelledError:
            if self._is_closed:
                raise
            return Outcome(FAILED, reason="cancelled")  # its row has changed before
        except AnswerTooLarge as error:
            return Outcome(FAILED, error.status, reason=str(error))
        except Exception as error:  # noqa: BLE001 - an edge: one job fails, the others go on
            _log.exception("a job has failed")
            return Outcome(FAILED, 500, reason=f"internal error: {error}")
        finally:
            del self._executing[job.id], self._stages[job.id], self._replies[job.id]

    async def _execute(self, job: Job, may_repeat: bool, stages: Stages, reply: Reply) -> Outcome:
        try:
            body = await self._read_request(job)
        except OSError as error:
            _log.error("the request of a job cannot be read: %s", error)
            return _unread(job, error)
        try:
            self._store.marks.begin(job.id)
        except OSError as error:
            _log.error("a job cannot begin yet: %s", error)
            return Outcome(QUEUED, not_before=time.time() + _AGAIN_S)
        answer = await self._execution.answer(job, body, stages, reply)
        return judge(job, answer, may_repeat)

    async def _read_request(self, job: Job) -> bytes:
        if job.body is not None:
            return job.body
        file = path_of(self._store.directory, job.id, "request")
        return await OWN.run(file.read_bytes)

    async def _fault_of(self, job: str, size: int) -> str:
        # on a full disk an answer waits until it can be kept
        work = partial(Store.fault_of, job=job, size=size)
        return await self._store.attempt(work, self._looking, "room for answers") or ""

    async def _save(self, job: Job, outcome: Outcome) -> None:
        """Save an outcome, repeatedly while the disk is full, so that it is not lost."""
        self._unsaved += 1
        while True:
            try:
                outcome = await self._store.do(partial(Store.end, job=job, outcome=outcome))
                self._keeping.ends(job.id)
                break
            except Exception as error:  # noqa: BLE001 - whatever it is, the answer is here
                self._keeping.goes_on(error, job.id)
                await asyncio.sleep(_SAVE_AGAIN_S)
        self._unsaved -= 1
        self._store.marks.end(job.id)


def _unread(job: Job, error: OSError) -> Outcome:
    """Return the outcome of a job whose request cannot be read; `job` is as before this try."""
    if job.tries + 1 < _MAX_READS and not isinstance(error, FileNotFoundError):
        return Outcome(QUEUED, not_before=time.time() + _AGAIN_S * 2**job.tries)
    return Outcome(
        FAILED, 500, reason=f"the request cannot be read, send the job again: {error.strerror}"
    )
