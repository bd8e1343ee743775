"""A repository as it was last seen: its models, and whether it answers."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from zmqtriton.supervisor.machine.reading.findings import FoundModel
from zmqtriton.supervisor.machine.reading.readers import Task, TaskRunner, Then, Topic
from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_floor.reasons import Kind, Reason

_log = logging.getLogger(__name__)

#: Names that no model has.
_NO_MODELS = ("", ".", "..")


class Place:
    """A place that may have a model, with the tasks about it."""

    def __init__(self, path: Path, runner: TaskRunner) -> None:
        self.path = path
        self._runner = runner
        #: Somebody has waited for it in vain, and it has not answered since.
        self.is_silent = False

    def place_of(self, name: str) -> tuple[str, str] | None:
        """Return the folder that a model would have, with the repository; or its file, with ""."""
        raise NotImplementedError

    def has_had(self, name: str) -> bool:
        """True if the model was there when it was last looked for."""
        raise NotImplementedError

    def find(self, name: str, arguments: tuple[Any, ...], then: Then) -> Task:
        """Have a model looked for, and read."""
        return self.submit(f"model {name}", "find_model", arguments, then)

    def submit(self, subject: str, task: str, arguments: tuple[Any, ...], then: Then) -> Task:
        topic = Topic(str(self.path), subject)
        return self._runner.submit(topic, task, arguments, partial(self._take, then))

    def _take(self, then: Then, answer: Any) -> None:
        if self.is_silent:
            self.is_silent = False
            _log.info("'%s' answers again", self.path)
        then(answer)

    def become_silent(self) -> None:
        """Wait for it no more until it has answered."""
        if not self.is_silent:
            self.is_silent = True
            _log.warning("'%s' does not answer; others go on without it", self.path)


class FileModel(Place):
    """One file that is a model."""

    def __init__(self, name: str, path: Path, runner: TaskRunner) -> None:
        super().__init__(path, runner)
        self._name = name

    def place_of(self, name: str) -> tuple[str, str] | None:
        return (str(self.path), "") if name == self._name else None

    def has_had(self, name: str) -> bool:
        return name == self._name


class Repository(Place):
    """A directory of models."""

    def __init__(self, path: Path, names: Mapping[str, str], runner: TaskRunner) -> None:
        """Set up; `names` are those of models that are not called as their folders, by these."""
        super().__init__(path, runner)
        self._names = dict(names)
        #: Each model by its name with the place where it was at the last listing, links followed;
        #: None before the first.
        self._listed: list[tuple[str, str]] | None = None
        #: Where models were found since.
        self._seen: dict[str, str] = {}
        #: Who waits for the listing under way, and for the one after it.
        self._waiting: list[Then] = []
        self._waiting_next: list[Then] = []

    @property
    def absolute_path(self) -> str:
        return os.path.abspath(self.path)

    @property
    def other_names(self) -> set[str]:
        """The names of models that are not called as their folders."""
        return set(self._names.values())

    @property
    def is_known(self) -> bool:
        """True if it was listed once."""
        return self._listed is not None

    @property
    def models(self) -> list[tuple[str, str]]:
        """The models by name, with the places where they were last seen."""
        listed = [entry for entry in self._listed or () if entry[0] not in self._seen]
        return [*listed, *self._seen.items()]

    @property
    def silence(self) -> Reason:
        """The reason of a model of which no more is known than before."""
        text = f"its repository '{self.path}' does not answer; the model was there before"
        return Reason.of(Kind.REPOSITORY_SILENT, text, repository=str(self.path))

    def place_of(self, name: str) -> tuple[str, str] | None:
        folder = self._folder(name)
        if folder is None or "/" in name or "\0" in name or name in _NO_MODELS:
            return None
        return str(self.path / folder), str(self.path)

    def _folder(self, name: str) -> str | None:
        """Return the folder of a model; None if it has another name there."""
        own = None if name in self._names else name
        return next((folder for folder, named in self._names.items() if named == name), own)

    def has_had(self, name: str) -> bool:
        return name in dict(self.models)

    def find(self, name: str, arguments: tuple[Any, ...], then: Then) -> Task:
        return super().find(name, arguments, partial(self._see, name, then))

    def _see(self, name: str, then: Then, answer: FoundModel | ZmqTritonError | None) -> None:
        if isinstance(answer, FoundModel):
            self._seen[name] = answer.place
        elif answer is None:
            self._seen.pop(name, None)
            if self._listed is not None:
                self._listed = [entry for entry in self._listed if entry[0] != name]
        then(answer)

    # ----------------------------------------------------------------- listing

    def list(self, then: Then) -> None:
        """Have it listed as it is from now on; `then` gets the error, or None."""
        if self._waiting:
            self._waiting_next.append(then)
        else:
            self._waiting = [then]
            self._begin_listing()

    def forget(self, then: Then) -> None:
        """Do not call back; the listing goes on, and shows that it answers again."""
        for waiting in (self._waiting, self._waiting_next):
            if then in waiting:
                waiting[waiting.index(then)] = _ignore
        self._waiting_next = [one for one in self._waiting_next if one is not _ignore]

    def become_silent(self) -> None:
        if not self._waiting:
            self.list(_ignore)
        super().become_silent()

    def _begin_listing(self) -> None:
        self.submit("the list", "list_models", (str(self.path),), self._listing_ended)

    def _listing_ended(self, answer: dict[str, str] | ZmqTritonError) -> None:
        error = answer if isinstance(answer, ZmqTritonError) else None
        if not isinstance(answer, ZmqTritonError):
            self._listed = [(self._names.get(name, name), place) for name, place in answer.items()]
            self._seen = {}
        waiting, self._waiting = self._waiting, self._waiting_next
        self._waiting_next = []
        if self._waiting:
            self._begin_listing()
        for then in waiting:
            then(error)


def _ignore(_: object) -> None:
    """Want to know no more than whether it answers."""
