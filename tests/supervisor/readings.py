"""The readings of a server without its readers: each task is done at once, in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.supervisor.settings import then
from zmqtriton.options import Options
from zmqtriton.reading.blueprint import Blueprint, LoadOverride, ReadFailure
from zmqtriton.reading.model_reading import ModelReader, host_of
from zmqtriton.reading.plain import loads
from zmqtriton.reading.reader import ReaderTasks, answer
from zmqtriton.repository.decisions import KeepDecisions
from zmqtriton.repository.scan import NO_EXCEPTIONS, VersionSelection
from zmqtriton.supervisor.actions import (
    ChangeRepositories,
    ListRepository,
    LocalCopy,
    ReadModel,
    RepositoryNames,
)
from zmqtriton.supervisor.machine.repositories.model_files import ModelLookups
from zmqtriton.supervisor.machine.repositories.readers import Task, Topic
from zmqtriton.supervisor.machine.repositories.repositories import Repositories
from zmqtriton.supervisor.plan import Plan
from zmqtriton_floor import wire
from zmqtriton_floor.errors import from_number


class DirectRunner:
    """Does each task as a reader would, with all that crosses made text on the way."""

    def __init__(self, tasks: ReaderTasks) -> None:
        self._tasks = tasks

    def submit(self, topic: Topic, name: str, arguments: tuple[Any, ...]) -> Task:
        task = Task(topic, name, arguments)
        self.perform(task)
        return task

    def perform(self, task: Task) -> None:
        result = answer(wire.Call(0, task.name, task.text), self._tasks.by_name)
        assert not (result.code and result.result), result.result
        if result.code:
            task.answer.fail(from_number(result.code, result.text, result.reason))
        else:
            task.answer(loads(result.result))

    def cancel(self, task: Task) -> None:
        raise AssertionError("it has been answered")


class Readings:
    """The repositories of a server with these options, and what it reads there."""

    def __init__(self, options: Options, gpus: Sequence[int] = ()) -> None:
        runner, self._plan = DirectRunner(ReaderTasks(ModelReader(options, gpus))), Plan()
        self.repositories = Repositories(options, runner, self._plan)
        host = host_of(options, gpus)
        self._lookups = ModelLookups(self.repositories, runner, self._plan, host)

    def read_model(
        self,
        name: str,
        override: LoadOverride | None = None,
        copied: LocalCopy | None = None,
        selection: VersionSelection = NO_EXCEPTIONS,
    ) -> Blueprint | ReadFailure:
        answers: list[Blueprint | ReadFailure] = []
        then(self._lookups.read(ReadModel(1, name, override, copied, selection)), answers.append)
        [reading] = answers
        return reading

    def list_names(self) -> RepositoryNames:
        listing = self._plan.tell(self.repositories.list(ListRepository(1)))
        self._plan.ready.settle()
        return listing.value

    def keep_decisions(self, action: KeepDecisions) -> None:
        problems: list[str] = []
        then(self._plan.tell(self.repositories.keep_decisions(action)), problems.append)
        assert [""] == problems

    def register(self, path: str, names: Mapping[str, str] | None = None) -> None:
        self._change(ChangeRepositories(0, path, True, names or {}))

    def unregister(self, path: str) -> None:
        self._change(ChangeRepositories(0, path, False))

    def _change(self, action: ChangeRepositories) -> None:
        changed = self._plan.tell(self.repositories.change(action))
        self._plan.ready.settle()
        assert changed.value
