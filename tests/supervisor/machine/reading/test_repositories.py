"""Repositories of which some do not answer: what waits for them, and what does not."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.supervisor.machine.test_model_reading import add
from tests.supervisor.readings import DirectRunner
from zmqtriton.options import Options
from zmqtriton.repository.decisions import Decision
from zmqtriton.supervisor.actions import (
    FileReport,
    KeepDecisions,
    ListRepository,
    LoadOverride,
    ReadModel,
    RepositoriesInUse,
)
from zmqtriton.supervisor.machine.model_reading import ModelReader, host_of
from zmqtriton.supervisor.machine.reading.model_files import PATIENCE_S, ModelLookups
from zmqtriton.supervisor.machine.reading.reader_process import ReaderTasks
from zmqtriton.supervisor.machine.reading.readers import Task, Then, Topic
from zmqtriton.supervisor.machine.reading.repositories import (
    LISTING_PATIENCE_S,
    URGENT_PATIENCE_S,
    Gathering,
    Repositories,
)
from zmqtriton.supervisor.models.blueprint import Blueprint, ReadFailure
from zmqtriton.supervisor.plan import Plan
from zmqtriton_floor.reasons import Kind


class Runner(DirectRunner):
    """Does tasks at once, but for those of silent groups, which it does when they speak again."""

    def __init__(self, tasks: ReaderTasks) -> None:
        super().__init__(tasks)
        self.silent: set[str] = set()
        self.held: list[tuple[Task, Callable[[], Any]]] = []

    def submit(self, topic: Topic, name: str, arguments: tuple[Any, ...], then: Then) -> Task:
        if topic.group not in self.silent:
            return super().submit(topic, name, arguments, then)
        task = Task(topic, name, arguments, then)
        self.held.append((task, lambda: super(Runner, self).submit(topic, name, arguments, then)))
        return task

    def cancel(self, task: Task) -> None:
        self.held = [(held, do) for held, do in self.held if held is not task]

    def speak(self) -> None:
        self.silent.clear()
        while self.held:
            self.held.pop(0)[1]()


class Repository:
    """The repositories `one` with the model m, and `two` with n, of a server."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        add(directory / "one", "m")
        add(directory / "two", "n")
        paths = (f"{directory}/one", f"{directory}/two")
        options = Options(model_repository=paths, state_directory=f"{directory}/state")
        self.plan = Plan()
        self.runner = Runner(ReaderTasks(ModelReader(options)))
        later = self.plan.call_later
        self.repositories = Repositories(options, self.runner, later)
        self.lookups = ModelLookups(self.repositories, self.runner, later, host_of(options, ()))
        self._tickets = 0

    def silence(self, name: str) -> None:
        self.runner.silent.add(f"{self.directory}/{name}")

    def wait(self, seconds: float) -> None:
        self.plan.advance_to(self.plan.now_s + seconds)

    def listing(self, *, is_patient: bool = False, is_urgent: bool = False) -> list[Any]:
        answers: list[Any] = []
        self.repositories.list(ListRepository(1, (), is_patient, is_urgent), answers.append)
        return answers

    def read(self, name: str, override: LoadOverride | None = None) -> list[Any]:
        answers: list[Blueprint | ReadFailure] = []
        self._tickets += 1
        self.lookups.read(ReadModel(self._tickets, name, override), answers.append)
        return answers


@pytest.fixture
def files(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def test_a_listing_has_what_a_silent_repository_had_before(files: Repository) -> None:
    assert [{"m": None, "n": None}] == files.listing()
    files.silence("two")
    add(files.directory / "one", "k")

    first = files.listing()
    files.wait(LISTING_PATIENCE_S - 0.1)
    assert [] == first
    files.wait(0.2)

    for [listing] in (first, files.listing()):
        assert (None, None) == (listing["k"], listing["m"])
        assert (Kind.REPOSITORY_SILENT, f"{files.directory}/two") == (
            listing["n"].kind,
            listing["n"].values["repository"],
        )


def test_an_urgent_listing_waits_a_moment_and_calls_nobody_silent(files: Repository) -> None:
    assert [{"m": None, "n": None}] == files.listing(is_urgent=True)
    files.silence("two")
    add(files.directory / "one", "k")

    urgent, usual = files.listing(is_urgent=True), files.listing()
    files.wait(URGENT_PATIENCE_S + 0.1)

    assert [{"k": None, "m": None, "n": None}] == urgent
    assert [] == usual
    files.wait(LISTING_PATIENCE_S)
    assert Kind.REPOSITORY_SILENT == usual[0]["n"].kind
    [after] = files.listing(is_urgent=True)
    assert Kind.REPOSITORY_SILENT == after["n"].kind


def test_listings_that_were_answered_without_a_repository_leave_nothing_at_it(
    files: Repository,
) -> None:
    files.silence("two")
    before = _gatherings()

    answers = [files.listing()]
    files.wait(LISTING_PATIENCE_S + 0.1)
    answers += [files.listing(is_urgent=True) for _ in range(100)]

    assert all(map(len, answers))
    assert before == _gatherings()


def _gatherings() -> int:
    gc.collect()
    return sum(isinstance(one, Gathering) for one in gc.get_objects())


def test_many_listings_of_a_silent_repository_are_one_task(files: Repository) -> None:
    files.listing()
    files.silence("two")
    calls = [files.listing() for _ in range(5)]
    files.wait(LISTING_PATIENCE_S)
    calls += [files.listing() for _ in range(5)]

    assert all(len(answers) == 1 for answers in calls)
    assert 1 == len(files.runner.held)
    files.runner.speak()
    assert [{"m": None, "n": None}] == files.listing()
    assert all(len(answers) == 1 for answers in calls)


def test_a_listing_begins_after_the_call_that_asks_for_it(files: Repository) -> None:
    files.silence("one")
    early, late = files.listing(), files.listing()
    [(_, do)] = files.runner.held
    files.runner.held.clear()
    do()
    assert ["m", "n"] == list(early[0])
    assert [] == late
    add(files.directory / "one", "k")

    files.runner.speak()

    assert [["k", "m", "n"]] == [list(listing) for listing in late]


def test_a_repository_that_was_never_listed_is_left_out_unless_all_are_awaited(
    files: Repository,
) -> None:
    files.silence("two")

    listed, awaited = files.listing(), files.listing(is_patient=True)
    files.wait(3600)

    assert [{"m": None}] == listed
    assert [] == awaited
    files.runner.speak()
    assert [{"m": None, "n": None}] == awaited


def test_a_model_that_was_loaded_is_known_without_a_listing(files: Repository) -> None:
    assert isinstance(files.read("n")[0], Blueprint)
    files.silence("two")

    listed = files.listing()
    files.wait(LISTING_PATIENCE_S)

    assert {"m", "n"} == set(listed[0])


def test_a_load_goes_on_without_a_repository_that_never_had_the_model(
    files: Repository, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    files.listing()
    files.silence("two")

    first = files.read("m")
    assert [] == first
    files.wait(PATIENCE_S)
    second = files.read("m")

    assert isinstance(first[0], Blueprint)
    assert isinstance(second[0], Blueprint)
    assert f"'m' is loaded without a look into '{files.directory}/two'" in caplog.text
    assert ["list_models"] == [task.name for task, _ in files.runner.held]
    files.runner.speak()
    assert f"'{files.directory}/two' answers again" in caplog.text


def test_a_load_waits_for_a_repository_that_has_had_the_model(files: Repository) -> None:
    add(files.directory / "two", "m")
    files.listing()
    files.silence("two")

    calls, own = files.read("m"), files.read("n")
    files.wait(3600)
    assert ([], []) == (calls, own)
    files.runner.speak()

    assert "not unique" in calls[0].reason.text
    assert isinstance(own[0], Blueprint)


def test_a_cancelled_reading_has_no_answer(files: Repository) -> None:
    files.silence("two")
    calls = files.read("m")

    files.lookups.cancel(1)
    files.wait(3600)
    files.runner.speak()

    assert [] == calls


def test_an_unknown_name_is_suggested_one_of_those_that_are_known(files: Repository) -> None:
    add(files.directory / "one", "resnet")

    [failure] = files.read("resnett")

    assert "Did you mean 'resnet'?" in failure.reason.text
    assert "" == failure.fingerprint


def test_a_look_at_files_leaves_silent_repositories_out(files: Repository) -> None:
    reports: list[FileReport] = []
    files.repositories.look(("m", "n", "nobody"), reports.append)
    files.silence("two")
    files.repositories.look(("m", "n"), reports.append)
    assert 1 == len(reports)
    files.wait(LISTING_PATIENCE_S)
    files.repositories.look(("m", "n"), reports.append)

    assert [{"m", "n"}, {"m"}, {"m"}] == [set(report.fingerprints) for report in reports]
    assert ["fingerprints", "list_models"] == [task.name for task, _ in files.runner.held]
    files.runner.speak()
    files.repositories.look(("m", "n"), reports.append)
    assert reports[0].fingerprints == reports[-1].fingerprints


def test_a_reading_comes_after_the_decisions_about_its_model(files: Repository) -> None:
    files.runner.silent.add("decisions")
    problems: list[str] = []
    decision = Decision(1, "other", is_promotion=True)
    action = KeepDecisions("m", f"{files.directory}/one/m", (decision,))
    files.repositories.keep_decisions(action, problems.append)

    calls, other = files.read("m"), files.read("n")
    assert ([], 1) == (calls, len(other))
    files.runner.speak()

    assert [""] == problems
    assert isinstance(calls[0], Blueprint)


def test_a_directory_that_is_read_is_removed_afterwards(files: Repository) -> None:
    staged = add(files.directory / "staged", "m")
    files.runner.silent.add("copies")

    calls = files.read("m", LoadOverride('{"backend": "python"}', str(staged)))
    files.repositories.remove_directory(str(staged))
    assert staged.exists()
    files.runner.speak()

    assert isinstance(calls[0], Blueprint)
    assert not staged.exists()


def test_a_registration_waits_for_its_own_directory_alone(files: Repository) -> None:
    add(files.directory / "three", "k")
    files.runner.silent.add("registration")
    changes: list[RepositoriesInUse] = []

    files.repositories.register(f"{files.directory}/three", {}, changes.append)
    files.repositories.register(f"{files.directory}/three", {}, changes.append)
    assert ["m", "n"] == list(files.listing()[0])
    files.runner.speak()

    assert ["k", "m", "n"] == list(files.listing()[0])
    [done, again] = changes
    assert done.error is None
    assert "has already been registered" in str(again.error)
