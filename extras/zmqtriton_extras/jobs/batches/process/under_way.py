"""The batches in progress: each has a task that lets its lines be executed.

All of its state is in the store, so it continues where another process has ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from zmqtriton.sdk.frontend import Gateway
from zmqtriton_extras.jobs.batches.process import results, tables
from zmqtriton_extras.jobs.batches.process.lines import (
    MAX_LINE_BYTES,
    Line,
    Text,
    read_some,
    validate,
)
from zmqtriton_extras.jobs.batches.process.tables import (
    CANCELLING,
    ENDS,
    EXPIRING,
    IN_PROGRESS,
    VALIDATING,
    Batch,
)
from zmqtriton_extras.jobs.messages import OWN
from zmqtriton_extras.jobs.process.running import Running
from zmqtriton_extras.jobs.process.store import Store
from zmqtriton_extras.jobs.process.store_thread import StoreThread
from zmqtriton_extras.jobs.process.troubles import Trouble
from zmqtriton_extras.openai import tensor_names

_log = logging.getLogger(__name__)

#: The lines of a batch that are jobs at a time; others follow when half of them have ended.
_MAX_JOBS = 256
#: The lines that are answered at a time when none is executed any more.
_REFUSED_AT_ONCE = 5000
_SOON_S, _SELDOM_S = 0.05, 1.0
_LOOK_EVERY_S = 10.0


class UnderWay:
    def __init__(self, gateway: Gateway, store: StoreThread, running: Running) -> None:
        self._gateway = gateway
        self._store = store
        self._running = running
        self._max_line = min(gateway.settings.http.max_input_size, MAX_LINE_BYTES)
        self._news = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        #: Locks for one reader at a time, because a parsed line is larger than its text.
        self._reading, self._validating = asyncio.Lock(), asyncio.Lock()
        self._is_over = False
        #: The batches that were cancelled while they are validated.
        self._cancelled: set[str] = set()
        self._trouble = Trouble("batches cannot go on", "batches go on again")

    def begin(self) -> None:
        self._is_over = False
        # whose lines would be refused, without the API
        if self._gateway.settings.option("allow_openai"):
            self._looking = asyncio.ensure_future(self._look())

    def wake(self) -> None:
        """Look for new batches, and for changes of running ones."""
        self._news.set()

    def cancel(self, batch: str) -> None:
        """Continue with a batch that was cancelled, to end it."""
        if batch in self._tasks:
            self._cancelled.add(batch)
        self.wake()

    def leave(self) -> None:
        """Begin no more lines; the next process continues."""
        self._is_over = True
        for task in (self._looking, *self._tasks.values()):
            if task is not None:
                task.cancel()

    async def _look(self) -> None:
        while True:
            self._news.clear()
            batches = await self._store.attempt(tables.next_batches, self._trouble)
            for batch in batches or ():
                if batch not in self._tasks:
                    self._spawn(batch)
            await self._sweep()
            try:
                await asyncio.wait_for(self._news.wait(), _LOOK_EVERY_S)
            except asyncio.TimeoutError:
                continue

    def _spawn(self, batch: str) -> None:
        task = self._tasks[batch] = asyncio.ensure_future(self._advance(batch))

        def ended(task: asyncio.Task[None]) -> None:
            del self._tasks[batch]
            self._cancelled.discard(batch)
            if not task.cancelled() and task.exception() is not None:
                _log.error("%s could not be gone on with", batch, exc_info=task.exception())
            elif not self._is_over:
                self.wake()

        task.add_done_callback(ended)

    async def _sweep(self) -> None:
        while await self._store.attempt(tables.sweep, self._trouble, "sweep"):
            continue

    # -------------------------------------------------------------- one batch

    async def _advance(self, batch: str) -> None:
        pause_s = _SOON_S
        while True:
            collect = partial(results.collect, batch=batch)
            progress = await self._store.attempt(collect, self._trouble, batch)
            has_moved = False
            if progress is not None:
                if progress.batch.state in ENDS:
                    return
                has_moved = await self._step(progress.batch, progress.under_way)
                has_moved = has_moved or progress.collected > 0
            pause_s = _SOON_S if has_moved else min(2 * pause_s, _SELDOM_S)
            await asyncio.sleep(pause_s)

    async def _step(self, batch: Batch, under_way: int) -> bool:
        """Take the next step; return whether another may follow at once."""
        if batch.state == VALIDATING:
            return await self._validate(batch)
        is_over = batch.state in (CANCELLING, EXPIRING)
        if is_over and under_way:
            cancel = partial(results.cancel_jobs, batch=batch.id)
            for job in await self._store.attempt(cancel, self._trouble, batch.id) or ():
                self._running.cancel(job)
            return True
        text = await self._text(batch)
        if text is not None and text.begin < text.end and (batch.state == IN_PROGRESS or is_over):
            if is_over:
                return await self._refuse(batch, text)
            return under_way <= _MAX_JOBS // 2 and await self._submit(batch, text, under_way)
        if under_way:
            return False
        end = partial(results.end, batch=batch.id)
        return await self._store.attempt(end, self._trouble, batch.id) is not None

    async def _text(self, batch: Batch) -> Text | None:
        """Return the unread input of a batch; None if it was not validated."""
        if batch.output is None and batch.state != VALIDATING:
            return None

        def of(store: Store) -> Text:
            file = tables.find_file(store, batch.input)
            begin, end = file.begin + batch.position, file.begin + file.bytes
            return Text(tables.path_of(store.directory, file.id), begin, end, self._max_line)

        return await self._store.do(of)

    async def _validate(self, batch: Batch) -> bool:
        text = await self._text(batch)
        assert text is not None, "it is to be validated"
        async with self._validating:
            validation = await OWN.run(
                validate, text, batch.endpoint, lambda: self._is_over or batch.id in self._cancelled
            )
        work: Callable[[Store], Batch]
        if validation.faults:
            work = partial(results.fail, batch=batch.id, faults=validation.faults)
        else:
            work = partial(results.begin, batch=batch.id, total=validation.total)
        return await self._store.attempt(work, self._trouble, batch.id) is not None

    async def _submit(self, batch: Batch, text: Text, under_way: int) -> bool:
        """Make jobs of the next lines."""
        lines, position = await self._read(batch, text, _MAX_JOBS - under_way)
        catalogue = self._gateway.catalogue
        named = [(tensor_names.queue_of(catalogue, line.model), line) for line in lines]
        work = partial(results.submit, batch=batch, lines=named, position=position)
        has_moved = await self._store.attempt(work, self._trouble, batch.id) is not None
        self._running.wake()
        return has_moved

    async def _refuse(self, batch: Batch, text: Text) -> bool:
        lines, position = await self._read(batch, text, _REFUSED_AT_ONCE)
        work = partial(results.refuse, batch=batch, lines=lines, position=position)
        return await self._store.attempt(work, self._trouble, batch.id) is not None

    async def _read(self, batch: Batch, text: Text, limit: int) -> tuple[list[Line], int]:
        async with self._reading:
            lines, at = await OWN.run(read_some, text, batch.endpoint, limit)
        return lines, batch.position + at - text.begin
