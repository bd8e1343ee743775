"""The files of models as the service uses them: its repositories, what loads read, the readers.

For a load all repositories are asked for the model, since one that two have cannot be loaded. A
repository that does not answer holds up the loads of its own models alone.
"""

from __future__ import annotations

import logging
import selectors
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from zmqtriton.config.model_config import ModelHost
from zmqtriton.options import Options
from zmqtriton.repository.scan import not_found, not_unique
from zmqtriton.supervisor.actions import (
    ListRepository,
    LocalCopy,
    ReadModel,
    RepositoryListing,
)
from zmqtriton.supervisor.machine.model_reading import ModelReader, host_of
from zmqtriton.supervisor.machine.reading.blueprints import make_blueprint
from zmqtriton.supervisor.machine.reading.plain import FoundModel, ModelReading
from zmqtriton.supervisor.machine.reading.reader_process import ReaderTasks, start_reader
from zmqtriton.supervisor.machine.reading.readers import Readers, Task, TaskRunner, Topic
from zmqtriton.supervisor.machine.reading.repositories import (
    Clock,
    Gathering,
    PlaceReading,
    Repositories,
)
from zmqtriton.supervisor.models.blueprint import Blueprint, ReadFailure
from zmqtriton_floor.errors import InternalError, ZmqTritonError

#: Readers have nothing to lose; one that cannot be killed must not hold up the server's end.
_END_WITHIN_S = 0.5
_log = logging.getLogger(__name__)

#: How long a load that has found its model waits for repositories that may have it, too.
PATIENCE_S = 10.0
#: The topics of copies and of files that a load has brought along.
_COPIES = "copies"

#: Gets a blueprint, or why there is none.
_Then = Callable[[Blueprint | ReadFailure], None]


class _Lookup:
    """A reading from its request to its answer."""

    def __init__(self, action: ReadModel, then: _Then) -> None:
        self.action = action
        self.then = then
        self.tasks: dict[PlaceReading, Task] = {}
        self.gathering: Gathering[PlaceReading] | None = None


class ModelLookups:
    def __init__(
        self, repositories: Repositories, runner: TaskRunner, call_later: Clock, host: ModelHost
    ) -> None:
        self._repositories = repositories
        self._runner = runner
        self._call_later = call_later
        self._host = host
        #: Those that several repositories are asked for, by ticket.
        self._lookups: dict[int, _Lookup] = {}

    def read(self, action: ReadModel, then: _Then) -> None:
        """Read a model; `then` gets the blueprint that a load would build now, or why not."""
        lookup = _Lookup(action, then)
        override, copy = action.override, action.local_copy
        if copy is not None and copy.is_whole:
            then_made = partial(self._pass_on, lookup)
            self._read_directory(action, copy.directory, copy.digest, then_made)
            return
        if override is None or not override.directory:
            begin = partial(self._begin, lookup)
            self._lookups[action.ticket] = lookup
            self._repositories.after_decisions(action.model, begin)
            return
        self._repositories.use_directory(override.directory)

        def read(answer: Any) -> None:
            self._repositories.release_directory(override.directory)
            then(self._made(answer))

        self._read_directory(action, override.directory, "", read)

    def cancel(self, ticket: int) -> None:
        """Want no answer any more."""
        lookup = self._lookups.pop(ticket, None)
        if lookup is not None and lookup.gathering is not None:
            lookup.gathering.end()
            for task in lookup.tasks.values():
                self._runner.cancel(task)

    def _begin(self, lookup: _Lookup) -> None:
        action = lookup.action
        if action.ticket not in self._lookups:
            return  # it was cancelled while decisions were kept
        places = self._repositories.places_of(action.model)
        lookup.gathering = gathering = Gathering(places, partial(self._decide, lookup))
        for place, where in places.items():
            arguments = action.model, where, action.override, action.selection
            lookup.tasks[place] = place.find(
                action.model, arguments, partial(gathering.take, place)
            )
        gathering.begin(self._call_later, PATIENCE_S)

    def _decide(self, lookup: _Lookup, gathering: Gathering[PlaceReading]) -> bool:
        models: dict[str, FoundModel] = {}
        for place in self._repositories.places:  # of two names of one place the first counts
            answer = gathering.answers.get(place)
            if isinstance(answer, ZmqTritonError):
                answer = FoundModel(str(place.path), ReadFailure(answer.reason, "unreadable"))
            if answer is not None:
                models.setdefault(answer.place, answer)
        if gathering.pending and not self._can_do_without(lookup, gathering, bool(models)):
            return False
        for place in gathering.pending:
            _log.warning(
                "'%s' is loaded without a look into '%s', which does not answer",
                lookup.action.model,
                place.path,
            )
            self._runner.cancel(lookup.tasks[place])
            place.become_silent()
        self._lookups.pop(lookup.action.ticket, None)
        self._answer(lookup, list(models.values()))
        return True

    @staticmethod
    def _can_do_without(
        lookup: _Lookup, gathering: Gathering[PlaceReading], is_found: bool
    ) -> bool:
        """True if others have answered enough, and none of the rest has had the model."""
        rest = gathering.pending
        is_over = gathering.is_late or all(place.is_silent for place in rest)
        return is_found and is_over and not any(p.has_had(lookup.action.model) for p in rest)

    def _answer(self, lookup: _Lookup, models: list[FoundModel]) -> None:
        action = lookup.action
        copied = action.local_copy or LocalCopy()
        urls = copied.repository_urls
        if len(models) + len(urls) > 1:
            lookup.then(
                ReadFailure(not_unique(action.model).reason, "duplicate", is_duplicate=True)
            )
        elif models:
            lookup.then(self._made(models[0].reading))
        elif copied.problem:
            lookup.then(ReadFailure(InternalError(copied.problem).reason, copied.digest))
        elif urls:
            then = partial(self._pass_on, lookup)
            self._read_directory(action, copied.directory, copied.digest, then)
        else:
            self._repositories.list(ListRepository(0), partial(self._suggest, lookup))

    def _read_directory(
        self, action: ReadModel, directory: str, digest: str, then: Callable[[Any], None]
    ) -> None:
        arguments = action.model, directory, action.override, action.selection, digest
        self._runner.submit(Topic(_COPIES, directory), "read_model", arguments, then)

    def _pass_on(self, lookup: _Lookup, answer: Any) -> None:
        lookup.then(self._made(answer))

    def _suggest(self, lookup: _Lookup, listing: RepositoryListing) -> None:
        """Answer that no repository has the model, with the name that was probably meant."""
        names = () if isinstance(listing, ZmqTritonError) else listing
        lookup.then(ReadFailure(not_found(lookup.action.model, names).reason))

    def _made(self, answer: ModelReading | ReadFailure | ZmqTritonError) -> Blueprint | ReadFailure:
        if isinstance(answer, ZmqTritonError):
            return ReadFailure(answer.reason, "unreadable")
        if isinstance(answer, ReadFailure):
            return answer
        return make_blueprint(answer, self._host)


class ModelFiles:
    def __init__(
        self,
        options: Options,
        gpus: Sequence[int],
        selector: selectors.BaseSelector,
        call_later: Clock,
        pids: set[int],
    ) -> None:
        """Set up, in the loop of the selector; `pids` get those of the readers."""
        start = partial(start_reader, ReaderTasks(ModelReader(options, gpus)))
        self.readers = Readers(selector, start, call_later, pids)
        self.repositories = Repositories(options, self.readers, call_later)
        host = host_of(options, gpus)
        self.lookups = ModelLookups(self.repositories, self.readers, call_later, host)

    def close(self) -> None:
        self.readers.close(_END_WITHIN_S)
