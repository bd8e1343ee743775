"""The repositories in use: every question about the files of models begins here.

A repository's last state is kept. A repository that does not answer in time is silent from then on:
questions that its last state or another repository can answer do not wait for it any more. Decides
only; a TaskRunner does the work.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from zmqtriton.options import Options
from zmqtriton.reading.plain import FoundModel
from zmqtriton.repository.decisions import KeepDecisions
from zmqtriton.repository.scan import DUPLICATE
from zmqtriton.store_places import is_remote
from zmqtriton.supervisor.actions import (
    ChangeRepositories,
    FileReport,
    ListRepository,
    RepositoryNames,
)
from zmqtriton.supervisor.machine.repositories.readers import Task, TaskRunner, Topic
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.story import Promise
from zmqtriton_floor.errors import AlreadyExists, InternalError, NotFound, ZmqTritonError
from zmqtriton_floor.reasons import Kind, Reason

_log = logging.getLogger(__name__)

#: Seconds that a listing, or a look at files, waits for each repository.
LISTING_PATIENCE_S = 5.0
#: Seconds that an urgent listing waits for each repository: a user is looking at the server.
URGENT_PATIENCE_S = 0.3
#: The topics of tasks that are about no repository, such as directories that came with loads.
_DECISIONS, STAGED, _REGISTRATION = "decisions", "staged", "registration"
#: Names that no model has.
_NO_MODELS = ("", ".", "..")
_Key = TypeVar("_Key", bound=Hashable)


class Gathering(Generic[_Key]):
    """The answers by key that have arrived so far."""

    def __init__(self, answers: Mapping[_Key, Promise[Any]], plan: Plan, patience_s: float) -> None:
        self._answers = answers
        self._late = plan.pause(patience_s)

    @property
    def pending(self) -> set[_Key]:
        return {key for key, answer in self._answers.items() if not answer.is_over}

    @property
    def ended(self) -> dict[_Key, Promise[Any]]:
        return {key: answer for key, answer in self._answers.items() if answer.is_over}

    @property
    def is_late(self) -> bool:
        """True once the patience for all answers is over."""
        return self._late.is_over


class PlaceReading:
    """A place that may have a model, with the tasks that concern it."""

    def __init__(self, path: Path, runner: TaskRunner) -> None:
        self.path = path
        self._runner = runner
        #: True from a wait for the place that was in vain to its next answer.
        self.is_silent = False

    def place_of(self, name: str) -> tuple[str, str] | None:
        """Return the folder of a model in this place, with the repository; or its file, with ""."""
        raise NotImplementedError

    def has_had(self, name: str) -> bool:
        """True if the model was in this place at the last look."""
        raise NotImplementedError

    def find(self, name: str, arguments: tuple[Any, ...]) -> Task:
        """Let a model be looked for, and read."""
        return self.submit(f"model {name}", "find_model", arguments)

    def submit(self, subject: str, name: str, arguments: tuple[Any, ...]) -> Task:
        task = self._runner.submit(Topic(str(self.path), subject), name, arguments)
        task.answer.at_end(self._note_answer)
        return task

    def _note_answer(self) -> None:
        if self.is_silent:
            self.is_silent = False
            _log.info("'%s' answers again", self.path)

    def become_silent(self) -> None:
        """Stop waiting for the place until it has answered."""
        if not self.is_silent:
            self.is_silent = True
            _log.warning("'%s' does not answer; others go on without it", self.path)


class FileModel(PlaceReading):
    """A file that is one model."""

    def __init__(self, name: str, path: Path, runner: TaskRunner) -> None:
        super().__init__(path, runner)
        self._name = name

    def place_of(self, name: str) -> tuple[str, str] | None:
        return (str(self.path), "") if name == self._name else None

    def has_had(self, name: str) -> bool:
        return name == self._name


class Repository(PlaceReading):
    """A directory of models, or a file that has several."""

    def __init__(self, path: Path, names: Mapping[str, str], runner: TaskRunner) -> None:
        """Set up; `names` has the names of models whose folders have other names, by folder."""
        super().__init__(path, runner)
        self._names = dict(names)
        #: Each model by its name with the place where it was at the last listing, links followed;
        #: None before the first.
        self._listed: list[tuple[str, str]] | None = None
        #: Places of models that were found since the listing.
        self._seen: dict[str, str] = {}
        #: The listing that is under way, and the one after it.
        self._listing: Promise[None] | None = None
        self._next_listing: Promise[None] | None = None

    @property
    def absolute_path(self) -> str:
        return os.path.abspath(self.path)

    @property
    def other_names(self) -> set[str]:
        """Return the names of models whose folders have other names."""
        return set(self._names.values())

    @property
    def is_known(self) -> bool:
        """True if the repository was listed at least once."""
        return self._listed is not None

    @property
    def models(self) -> list[tuple[str, str]]:
        """Return the models by name, with the places where they were last seen."""
        listed = [entry for entry in self._listed or () if entry[0] not in self._seen]
        return [*listed, *self._seen.items()]

    @property
    def silence(self) -> Reason:
        """Return the reason of a model in this repository, which does not answer now."""
        text = f"its repository '{self.path}' does not answer; the model was there before"
        return Reason.of(Kind.REPOSITORY_SILENT, text, repository=str(self.path))

    def place_of(self, name: str) -> tuple[str, str] | None:
        folder = self._folder(name)
        if folder is None or "/" in name or "\0" in name or name in _NO_MODELS:
            return None
        return str(self.path / folder), str(self.path)

    def _folder(self, name: str) -> str | None:
        """Return the folder of a model; None if the repository has it under another name."""
        own = None if name in self._names else name
        return next((folder for folder, named in self._names.items() if named == name), own)

    def has_had(self, name: str) -> bool:
        return name in dict(self.models)

    def find(self, name: str, arguments: tuple[Any, ...]) -> Task:
        task = super().find(name, arguments)
        task.answer.at_end(partial(self._see, name, task.answer))
        return task

    def _see(self, name: str, answer: Promise[FoundModel | None]) -> None:
        if answer.error is None and answer.value is not None:
            self._seen[name] = answer.value.place
        elif answer.error is None:  # else who has asked is told
            self._seen.pop(name, None)
            if self._listed is not None:
                self._listed = [entry for entry in self._listed if entry[0] != name]

    # ----------------------------------------------------------------- listing

    def list(self) -> Promise[None]:
        """Start a listing that shows the repository's state from now on; return its result."""
        if self._listing is None:
            listing = self._listing = Promise[None]()
            self._begin_listing()
            return listing
        self._next_listing = self._next_listing or Promise()
        return self._next_listing

    def become_silent(self) -> None:
        if self._listing is None:
            self.list()
        super().become_silent()

    def _begin_listing(self) -> None:
        task = self.submit("the list", "list_models", (str(self.path),))
        task.answer.at_end(partial(self._listing_ended, task.answer))

    def _listing_ended(self, answer: Promise[dict[str, str] | None]) -> None:
        ended, self._listing, self._next_listing = self._listing, self._next_listing, None
        if self._listing is not None:
            self._begin_listing()
        assert ended is not None
        try:
            listed = answer.value
        except ZmqTritonError as error:
            ended.fail(error)
        else:
            if listed is not None:  # else the file is half written, and its models stay
                self._listed = [(self._names.get(n, n), place) for n, place in listed.items()]
                self._seen = {}
            ended()


class Repositories:
    """Repositories of models; their number changes only if clients may register repositories."""

    def __init__(self, options: Options, runner: TaskRunner, plan: Plan) -> None:
        self._runner = runner
        self._plan = plan
        paths = [Path(path) for path in options.model_repository if not is_remote(path)]
        self._repositories = [Repository(path, {}, runner) for path in paths]
        self._files = {
            name: FileModel(name, Path(path).absolute(), runner)
            for name, path in options.model_file
        }
        self._remote_urls = tuple(filter(is_remote, options.model_repository))
        #: Repositories whose files are looked at.
        self._looked_at: set[PlaceReading] = set()
        #: Decisions that are about to be kept, by model.
        self._keeping: dict[str, Promise[None]] = {}

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the directories in use."""
        return (*(each.absolute_path for each in self._repositories), *self._remote_urls)

    @property
    def places(self) -> tuple[PlaceReading, ...]:
        """Return all places that may have a model."""
        return (*self._repositories, *self._files.values())

    @property
    def silent_places(self) -> list[str]:
        """Return the places that did not answer in time, and have not answered since."""
        return [str(place.path) for place in self.places if place.is_silent]

    def places_of(self, name: str) -> dict[PlaceReading, tuple[str, str]]:
        """Return the places where a model may be."""
        return {each: where for each in self.places if (where := each.place_of(name)) is not None}

    # ------------------------------------------------------------------- lists

    async def list(self, action: ListRepository) -> RepositoryNames:
        """List the models of all repositories and of object stores, each with its problem.

        Raises ZmqTritonError for a repository that cannot be listed.
        """
        patience_s = URGENT_PATIENCE_S if action.is_urgent else LISTING_PATIENCE_S
        gathering = Gathering(
            {each: each.list() for each in self._repositories}, self._plan, patience_s
        )

        def is_enough() -> bool:
            silent = gathering.pending
            if action.is_patient and not all(each.is_known for each in silent):
                return False
            return gathering.is_late or all(each.is_silent for each in silent)

        await self._plan.until(is_enough)
        silent = gathering.pending
        if action.is_urgent:  # who takes longer than a moment may answer all the same
            silent = {each for each in silent if each.is_silent}
        for repository in silent:
            repository.become_silent()
        for listing in gathering.ended.values():
            await listing
        return self._names(action.remote_models, silent)

    def _names(self, remote: Iterable[tuple[str, str]], silent: set[Repository]) -> RepositoryNames:
        listing: RepositoryNames = {}
        places: dict[str, str] = {}
        for repository in self._repositories:
            for name, place in repository.models:
                if places.setdefault(name, place) != place:
                    listing[name] = DUPLICATE
                else:
                    listing.setdefault(name, repository.silence if repository in silent else None)
        for name, problem in (*remote, *((name, "") for name in self._files)):
            stated = InternalError(problem).reason if problem else None
            listing[name] = DUPLICATE if name in listing else stated
        return dict(sorted(listing.items()))

    # ------------------------------------------------------------------- looks

    async def look(self, names: Sequence[str]) -> FileReport:
        """Check the files of models for changes; silent repositories are left out."""
        by_place: dict[PlaceReading, dict[str, tuple[str, str]]] = {}
        for name in names:
            for place, where in self.places_of(name).items():
                by_place.setdefault(place, {})[name] = where
        free = {place: names for place, names in by_place.items() if place not in self._looked_at}
        looks = {place: self._look_at(place, free[place]) for place in free}
        gathering = Gathering(looks, self._plan, LISTING_PATIENCE_S)
        await self._plan.until(lambda: gathering.is_late or not gathering.pending)
        for place in gathering.pending:
            place.become_silent()
        seen: dict[str, dict[str, str]] = {}
        took_s = 0.0
        for answer in gathering.ended.values():
            with suppress(ZmqTritonError):  # it is not looked at this time
                by_name, this_s = await answer
                took_s = max(took_s, this_s)
                for name, (where, fingerprint) in by_name.items():
                    seen.setdefault(name, {})[where] = fingerprint
        fingerprints = {
            name: next(iter(by_place.values()))
            for name, by_place in seen.items()
            if len(by_place) == 1
        }
        return FileReport(fingerprints, took_s)

    def _look_at(self, place: PlaceReading, names: dict[str, tuple[str, str]]) -> Promise[Any]:
        self._looked_at.add(place)
        answer = place.submit("the files", "fingerprints", (names,)).answer
        answer.at_end(partial(self._looked_at.discard, place))
        return answer

    # --------------------------------------------------------------- decisions

    async def keep_decisions(self, action: KeepDecisions) -> str:
        """Keep decisions about a model; return the reason if that fails, or "". Readings follow."""
        name, places = action.model, [*self.places_of(action.model).values()]
        are_kept = self._keeping.setdefault(name, Promise())
        try:
            problem: str = await self._runner.submit(
                Topic(_DECISIONS, name), "keep_decisions", (action, places)
            ).answer
        except ZmqTritonError as error:
            problem = error.text
        if self._keeping.get(name) is are_kept:
            del self._keeping[name]
        are_kept()
        return problem

    def decisions_kept(self, name: str) -> Promise[None]:
        """Return a promise that the decisions about a model are kept that are known now."""
        return self._keeping.get(name) or Promise.kept(None)

    # ------------------------------------------------------------- registration

    async def change(self, action: ChangeRepositories) -> tuple[str, ...]:
        """Add a directory, or remove one; return all in use. Models loaded from it stay.

        Raises ZmqTritonError.
        """
        path, directory = action.path, os.path.abspath(action.path)
        if action.is_registration:
            await self._runner.submit(Topic(_REGISTRATION, path), "check_directory", (path,)).answer
            self._check_new(path, action.names)
            self._repositories.append(Repository(Path(path), action.names, self._runner))
        elif directory in self.paths:
            self._repositories = [r for r in self._repositories if r.absolute_path != directory]
        else:
            raise NotFound(f"failed to unregister '{path}', repository not found")
        return self.paths

    def _check_new(self, path: str, names: Mapping[str, str]) -> None:
        """Raise AlreadyExists for a directory that is in use, or a name that another has."""
        if os.path.abspath(path) in self.paths:
            raise AlreadyExists(f"model repository '{path}' has already been registered")
        taken = {name for each in self._repositories for name in each.other_names}
        for name in taken.intersection(names.values()):
            raise AlreadyExists(
                f"failed to register '{name}', there is a conflicting mapping for '{name}'"
            )

    def log_hints(self) -> None:
        """Log warnings about the repositories themselves, as far as they can be read."""
        for repository in self._repositories:
            task = repository.submit("the form", "hint", (str(repository.path),))
            task.answer.at_end(partial(_log_hints, task.answer))

    def remove_directory(self, path: str) -> None:
        """Remove a directory that came with a load, after the readings of it."""
        self._runner.submit(Topic(STAGED, path), "remove_directory", (path,))


def _log_hints(hints: Promise[list[str]]) -> None:
    with suppress(ZmqTritonError):  # the start reports that
        for text in hints.value:
            _log.warning("%s", text)
