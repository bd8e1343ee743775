"""The files of models as the service uses them: its repositories, and the readers for loads.

For a load all repositories are asked for the model, since a model in two of them cannot be loaded.
A repository that does not answer delays only the loads of its own models.
"""

from __future__ import annotations

import logging
import selectors
from collections.abc import Sequence
from functools import partial

from zmqtriton.config.model_config import ModelHost
from zmqtriton.options import Options
from zmqtriton.reading import reader
from zmqtriton.reading.blueprint import Blueprint, ReadFailure
from zmqtriton.reading.blueprints import make_blueprint
from zmqtriton.reading.model_reading import ModelReader, host_of
from zmqtriton.reading.plain import FoundModel, ModelReading
from zmqtriton.reading.reader import ReaderTasks
from zmqtriton.repository.scan import not_found, not_unique
from zmqtriton.supervisor.actions import (
    ListRepository,
    LocalCopy,
    ReadModel,
)
from zmqtriton.supervisor.machine.processes import process
from zmqtriton.supervisor.machine.repositories.readers import Readers, TaskRunner, Topic
from zmqtriton.supervisor.machine.repositories.repositories import (
    STAGED,
    Gathering,
    PlaceReading,
    Repositories,
)
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.story import Promise, Scope
from zmqtriton_floor.errors import InternalError, ZmqTritonError

_READER = "zmqtriton-reader"
#: Readers have nothing to lose; one that cannot be killed must not hold up the server's end.
_END_WITHIN_S = 0.5
_log = logging.getLogger(__name__)

#: Seconds that a load which has found its model waits for other repositories that may have it.
PATIENCE_S = 10.0
#: The topic of copies of stores.
_COPIES = "copies"


class ModelLookups:
    def __init__(
        self, repositories: Repositories, runner: TaskRunner, plan: Plan, host: ModelHost
    ) -> None:
        self._repositories = repositories
        self._runner = runner
        self._plan = plan
        self._host = host
        #: Readings that ask several repositories, by ticket.
        self._lookups: dict[int, Scope] = {}

    def read(self, action: ReadModel) -> Promise[Blueprint | ReadFailure]:
        """Read a model: the blueprint that a load would build now, or the error."""
        override, copy = action.override, action.local_copy
        if copy is not None and copy.is_whole:
            return self._plan.tell(self._read_copy(action, copy))
        if override is not None and override.directory:
            return self._plan.tell(self._read_directory(action, Topic(STAGED, override.directory)))
        lookup = self._lookups[action.ticket] = self._plan.scope()
        return lookup.tell(self._look_up(action))

    def cancel(self, ticket: int) -> None:
        """Expect no answer any more."""
        lookup = self._lookups.pop(ticket, None)
        if lookup is not None:
            lookup.cancel()

    async def _look_up(self, action: ReadModel) -> Blueprint | ReadFailure:
        """Ask each place that may have the model."""
        await self._repositories.decisions_kept(action.model)
        tasks = {
            place: place.find(
                action.model, (action.model, where, action.override, action.selection)
            )
            for place, where in self._repositories.places_of(action.model).items()
        }
        gathering = Gathering(
            {place: task.answer for place, task in tasks.items()}, self._plan, PATIENCE_S
        )
        try:
            await self._plan.until(partial(self._is_enough, action.model, gathering))
        except GeneratorExit:  # it is cancelled
            for task in tasks.values():
                self._runner.cancel(task)
            raise
        for place in gathering.pending:
            _log.warning(
                "'%s' is loaded without a look into '%s', which does not answer",
                action.model,
                place.path,
            )
            self._runner.cancel(tasks[place])
            place.become_silent()
        del self._lookups[action.ticket]
        return await self._chosen(action, self._found(gathering))

    def _found(self, gathering: Gathering[PlaceReading]) -> list[FoundModel]:
        models: dict[str, FoundModel] = {}
        for place in self._repositories.places:  # of two names of one place the first counts
            if place in gathering.ended:
                try:
                    answer = gathering.ended[place].value
                except ZmqTritonError as error:
                    answer = FoundModel(str(place.path), ReadFailure(error.reason, "unreadable"))
                if answer is not None:
                    models.setdefault(answer.place, answer)
        return list(models.values())

    def _is_enough(self, name: str, gathering: Gathering[PlaceReading]) -> bool:
        """True if enough places have answered, and the others have never had the model."""
        rest = gathering.pending
        if not rest:
            return True
        is_over = gathering.is_late or all(place.is_silent for place in rest)
        return is_over and bool(self._found(gathering)) and not any(p.has_had(name) for p in rest)

    async def _chosen(self, action: ReadModel, models: list[FoundModel]) -> Blueprint | ReadFailure:
        copied = action.local_copy or LocalCopy()
        urls = copied.repository_urls
        if len(models) + len(urls) > 1:
            return ReadFailure(not_unique(action.model).reason, "duplicate", is_duplicate=True)
        if models:
            return self._made(models[0].reading)
        if copied.problem:
            return ReadFailure(InternalError(copied.problem).reason, copied.digest)
        if urls:
            return await self._read_copy(action, copied)
        # none has it: name the one that was probably meant
        try:
            names = await self._repositories.list(ListRepository(0))
        except ZmqTritonError:
            names = {}
        return ReadFailure(not_found(action.model, names).reason)

    async def _read_copy(self, action: ReadModel, copy: LocalCopy) -> Blueprint | ReadFailure:
        return await self._read_directory(action, Topic(_COPIES, copy.directory), copy.digest)

    async def _read_directory(
        self, action: ReadModel, topic: Topic, digest: str = ""
    ) -> Blueprint | ReadFailure:
        """Read a model from the directory that is the subject of the topic."""
        task = self._runner.submit(
            topic,
            "read_model",
            (action.model, topic.subject, action.override, action.selection, digest),
        )
        try:
            return self._made(await task.answer)
        except ZmqTritonError as error:
            return ReadFailure(error.reason, "unreadable")

    def _made(self, answer: ModelReading | ReadFailure) -> Blueprint | ReadFailure:
        return answer if isinstance(answer, ReadFailure) else make_blueprint(answer, self._host)


class ModelFiles:
    def __init__(
        self,
        options: Options,
        gpus: Sequence[int],
        selector: selectors.BaseSelector,
        plan: Plan,
        pids: set[int],
    ) -> None:
        """Set up, in the loop of the selector; `pids` gets the readers' pids."""
        tasks = ReaderTasks(ModelReader(options, gpus)).by_name
        start = partial(process.start_copy, _READER, partial(reader.serve, tasks=tasks))
        self.readers = Readers(selector, start, plan, pids)
        self.repositories = Repositories(options, self.readers, plan)
        self.lookups = ModelLookups(self.repositories, self.readers, plan, host_of(options, gpus))

    def close(self) -> None:
        self.readers.close(_END_WITHIN_S)
