"""The processes that read repositories, and what they are asked to read."""

from __future__ import annotations

import dataclasses
import gc
import os
import selectors
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.reading.test_model_reading import CONFIG, add
from tests.supervisor.readings import DirectRunner
from tests.supervisor.settings import then
from tests.support.server import MODELS_DIRECTORY
from tests.support.waiting import eventually
from zmqtriton.config.errors import ConfigError
from zmqtriton.config.model_config import ModelHost, merge_completion
from zmqtriton.options import Options
from zmqtriton.reading import blueprints, reader
from zmqtriton.reading.blueprint import Blueprint, LoadOverride, ReadFailure
from zmqtriton.reading.model_reading import ModelReader, host_of
from zmqtriton.reading.plain import FoundModel, ModelReading, dumps, loads
from zmqtriton.repository.decisions import Decision, KeepDecisions
from zmqtriton.repository.scan import ModelPlace, Promotion, VersionSelection
from zmqtriton.supervisor.actions import FileReport, ListRepository, ReadModel
from zmqtriton.supervisor.machine.processes import process
from zmqtriton.supervisor.machine.repositories.model_files import PATIENCE_S, ModelLookups
from zmqtriton.supervisor.machine.repositories.readers import PER_GROUP, Readers, Task, Topic
from zmqtriton.supervisor.machine.repositories.repositories import (
    LISTING_PATIENCE_S,
    Gathering,
    Repositories,
)
from zmqtriton.supervisor.plan import Plan
from zmqtriton_floor.errors import InternalError, InvalidArgument, NotFound
from zmqtriton_floor.reasons import Kind

# ----------------------------------------------------------------------------- readers
# Readers as processes: tasks in order, tasks that hang, and readers that die.


def echo(value: Any) -> Any:
    return value


def open_pipe(path: str, turns: str = "") -> str:
    """Wait until somebody writes into a named pipe; note the turn in a file."""
    if turns:
        with Path(turns).open("a") as file:
            file.write(".")
    return Path(path).read_text()


def die_once(path: str) -> str:
    if not os.path.exists(path):
        Path(path).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def refuse() -> None:
    raise NotFound("it is not there")


def fail() -> None:
    raise ZeroDivisionError("by nothing")


TASKS: dict[str, Callable[..., Any]] = {
    task.__name__: task for task in (echo, open_pipe, die_once, die, refuse, fail)
}


class Loop:
    """The loop of a service that has readers."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.plan = Plan(time.monotonic())
        self.pids: set[int] = set()
        start = partial(process.start_copy, "test-reader", partial(reader.serve, tasks=TASKS))
        self.readers = Readers(self.selector, start, self.plan, self.pids)

    def submit(self, name: str, *arguments: Any, about: Topic | None = None) -> Asked:
        """Without a topic, the task is the only one about its subject in the group `g`."""
        return Asked(self, name, arguments, about)

    def turn(self) -> None:
        """Do what there is to do."""
        while ready := self.selector.select(0.02):
            for key, _ in ready:
                if self.selector.get_map().get(key.fd) is key:
                    key.data()
        self.plan.advance_to(time.monotonic())

    def turn_until(self, holds: Callable[[], object]) -> None:
        def has_turned() -> bool:
            self.turn()
            return bool(holds())

        eventually(has_turned, 60, "what the readers do")


class Asked:
    """A task that was submitted."""

    def __init__(
        self, loop: Loop, name: str, arguments: tuple[Any, ...], about: Topic | None
    ) -> None:
        self._loop = loop
        self.answers: list[Any] = []
        self.task: Task = loop.readers.submit(about or Topic("g", str(id(self))), name, arguments)
        self.task.answer.at_end(self._take)

    def _take(self) -> None:
        answer = self.task.answer
        self.answers.append(answer.error or answer.value)

    def answer(self) -> Any:
        self._loop.turn_until(lambda: self.answers)
        [answer] = self.answers
        return answer


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.readers.close(5.0)
    assert not loop.pids
    loop.selector.close()


@pytest.fixture
def pipe(tmp_path: Path) -> str:
    """Nobody opens it: who reads there waits."""
    os.mkfifo(tmp_path / "pipe")
    return str(tmp_path / "pipe")


@pytest.mark.slow
def test_a_large_question_and_its_answer_pass_in_parts(loop: Loop) -> None:
    text = "x" * (8 << 20)

    assert text == loop.submit("echo", text).answer()


@pytest.mark.slow
def test_errors_are_answers(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    refused, failed = loop.submit("refuse").answer(), loop.submit("fail").answer()

    assert (NotFound, "it is not there") == (type(refused), refused.text)
    assert (InternalError, "by nothing") == (type(failed), failed.text)
    assert "ZeroDivisionError" in caplog.text
    assert 1 == loop.submit("echo", 1).answer()


@pytest.mark.slow
def test_a_group_takes_a_few_readers_and_no_more(loop: Loop, pipe: str) -> None:
    held = [loop.submit("open_pipe", pipe) for _ in range(PER_GROUP + 3)]

    assert 1 == loop.submit("echo", 1, about=Topic("other", "m")).answer()
    loop.turn_until(lambda: len(loop.pids) >= PER_GROUP)
    late = loop.submit("echo", 2)
    assert 3 == loop.submit("echo", 3, about=Topic("other", "m")).answer()

    assert PER_GROUP + 1 == len(loop.pids)
    assert not late.answers
    loop.readers.cancel(held[0].task)
    loop.readers.cancel(held[-1].task)
    loop.readers.cancel(held[-2].task)
    loop.readers.cancel(held[-3].task)
    assert 2 == late.answer()


@pytest.mark.slow
def test_a_cancelled_task_has_no_answer_and_its_reader_ends(loop: Loop, pipe: str) -> None:
    task = loop.submit("open_pipe", pipe)
    loop.turn_until(lambda: loop.pids)
    before = set(loop.pids)

    loop.readers.cancel(task.task)
    loop.turn_until(lambda: not loop.pids & before)

    assert not [pid for pid in before if Path(f"/proc/{pid}").exists()]
    assert not task.answers
    assert 1 == loop.submit("echo", 1).answer()
    [row] = loop.readers.describe()
    assert abs(row["started_s"] - time.time()) < 60


def test_after_the_end_nothing_is_read(loop: Loop) -> None:
    loop.readers.close(5.0)

    assert not loop.submit("echo", 1).answers
    assert not loop.pids


@pytest.mark.slow
def test_a_task_whose_reader_dies_is_done_by_another_one_once(loop: Loop, tmp_path: Path) -> None:
    assert "done" == loop.submit("die_once", str(tmp_path / "died")).answer()

    answer = loop.submit("die").answer()
    assert (InternalError, "the process that read the files has died: load the model again") == (
        type(answer),
        answer.text,
    )
    assert 1 == loop.submit("echo", 1).answer()


@pytest.mark.slow
def test_where_none_can_be_started_tasks_wait(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> int:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    task = loop.submit("echo", 1)
    monkeypatch.undo()

    assert 1 == task.answer()
    assert "no process can be started that reads files" in caplog.text


# -------------------------------------------------------------------------- blueprints
# Blueprints of what a reader has found.


def read(directory: Path, more: str = "", **options: Any) -> ModelReading:
    """Read a model as a reader does, and send it as one does."""
    add(directory, "m", CONFIG + more)
    reading = ModelReader(Options(model_repository=(str(directory),), **options)).read(
        "m", ModelPlace(directory / "m", directory)
    )
    assert isinstance(reading, ModelReading)
    return loads(dumps(reading))


@pytest.fixture
def merged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The answers of models that were looked at."""
    replies: list[str] = []

    def note(config: Any, reply: str, **more: Any) -> Any:
        replies.append(reply)
        return merge_completion(config, reply, **more)

    monkeypatch.setattr(blueprints, "merge_completion", note)
    return replies


def test_an_error_that_its_reader_has_found_is_the_same(tmp_path: Path, merged: list[str]) -> None:
    reading = read(tmp_path, 'input { name: "I" data_type: TYPE_FP32 }')
    blueprint = blueprints.make_blueprint(reading, ModelHost())

    with pytest.raises(InvalidArgument, match="'I' must specify 'dims'") as early:
        blueprint.finalize_config("")
    assert [""] == merged
    with pytest.raises(ConfigError) as later:
        blueprint.finalize_config(blueprint.config)
    assert (later.value.text, later.value.reason) == (early.value.text, early.value.reason)


def test_without_completion_there_is_nothing_to_finish_later(tmp_path: Path) -> None:
    reading = read(tmp_path, "max_batch_size: 4", strict_model_config=True)

    assert reading.finished is None
    assert reading.blueprint.final_config is not None


# ------------------------------------------------------------------------------- plain
# The texts that cross between the supervisor and its readers.


MODELS = sorted(path.parent.name for path in MODELS_DIRECTORY.glob("*/config.pbtxt"))


@pytest.mark.parametrize("name", MODELS)
def test_a_model_arrives_as_it_was_read(name: str) -> None:
    place = ModelPlace(MODELS_DIRECTORY / name, MODELS_DIRECTORY)
    reading = ModelReader(Options(), gpus=(0,)).read(name, place)

    arrived = loads(dumps(FoundModel("/there", reading))).reading

    if isinstance(reading, ModelReading):
        assert _without_errors(reading.blueprint) == _without_errors(arrived.blueprint)
        reading = dataclasses.replace(reading, blueprint=arrived.blueprint)
    assert reading == arrived


def _without_errors(blueprint: Blueprint) -> tuple[Blueprint, list[Any]]:
    """Errors are equal by their number, text and reason."""
    problems = [
        one.problem and (one.problem.number, one.problem.text, one.problem.reason)
        for one in blueprint.versions.values()
    ]
    versions = {n: dataclasses.replace(v, problem=None) for n, v in blueprint.versions.items()}
    return dataclasses.replace(blueprint, versions=versions), problems


def test_an_error_keeps_its_number_and_its_reason() -> None:
    error = ConfigError("wrong").because(Kind.CONFIG_WRONG, path="/m", line=3)

    arrived = loads(dumps(error))

    assert (error.number, error.text, error.reason) == (
        arrived.number,
        arrived.text,
        arrived.reason,
    )


def test_names_that_are_no_utf_8_arrive() -> None:
    selection = VersionSelection(frozenset({1}), ((2, "x"),), (Promotion(3, "y"),))
    arguments = ("m\udcff", {"a": ("b", b"\xff")}, LoadOverride("{}"), selection, None, [1.5])

    assert arguments == loads(dumps(arguments))


def test_nothing_else_crosses() -> None:
    with pytest.raises(TypeError, match="PosixPath is not in the table"):
        dumps((Path("/"),))
    with pytest.raises(KeyError):
        loads('["Path", {}]')


# ------------------------------------------------------------------------------------ repositories
# Repositories of which some do not answer: what waits for them, and what does not.


class Runner(DirectRunner):
    """Does tasks at once, but for those of silent groups, which it does when they speak again."""

    def __init__(self, tasks: reader.ReaderTasks) -> None:
        super().__init__(tasks)
        self.silent: set[str] = set()
        self.held: list[tuple[Task, Callable[[], Any]]] = []

    def submit(self, topic: Topic, name: str, arguments: tuple[Any, ...]) -> Task:
        if topic.group not in self.silent:
            return super().submit(topic, name, arguments)
        task = Task(topic, name, arguments)
        self.held.append((task, lambda: self.perform(task)))
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
        self.runner = Runner(reader.ReaderTasks(ModelReader(options)))
        self.repositories = Repositories(options, self.runner, self.plan)
        self.lookups = ModelLookups(self.repositories, self.runner, self.plan, host_of(options, ()))
        self._tickets = 0

    def silence(self, name: str) -> None:
        self.runner.silent.add(f"{self.directory}/{name}")

    def speak(self) -> None:
        self.runner.speak()
        self.plan.ready.settle()

    def wait(self, seconds: float) -> None:
        self.plan.advance_to(self.plan.now_s + seconds)

    def listing(self, *, is_patient: bool = False, is_urgent: bool = False) -> list[Any]:
        answers: list[Any] = []
        listing = self.repositories.list(ListRepository(1, (), is_patient, is_urgent))
        then(self.plan.tell(listing), answers.append)
        self.plan.ready.settle()
        return answers

    def read(self, name: str, override: LoadOverride | None = None) -> list[Any]:
        answers: list[Blueprint | ReadFailure] = []
        self._tickets += 1
        then(self.lookups.read(ReadModel(self._tickets, name, override)), answers.append)
        self.plan.ready.settle()
        return answers


@pytest.fixture
def files(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


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


def test_a_repository_that_was_never_listed_is_left_out_unless_all_are_awaited(
    files: Repository,
) -> None:
    files.silence("two")

    listed, awaited = files.listing(), files.listing(is_patient=True)
    files.wait(3600)

    assert ([{"m": None}], []) == (listed, awaited)
    files.speak()
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
    assert 1 == caplog.text.count("does not answer; others go on without it")
    assert ["list_models"] == [task.name for task, _ in files.runner.held]
    assert [f"{files.directory}/two"] == files.repositories.silent_places
    files.speak()
    assert f"'{files.directory}/two' answers again" in caplog.text
    assert [] == files.repositories.silent_places


def test_a_cancelled_reading_has_no_answer(files: Repository) -> None:
    files.silence("two")
    calls = files.read("m")

    files.lookups.cancel(1)
    files.wait(3600)
    files.speak()

    assert [] == calls


def test_a_look_at_files_leaves_silent_repositories_out(files: Repository) -> None:
    reports: list[FileReport] = []
    then(files.plan.tell(files.repositories.look(("m", "n", "nobody"))), reports.append)
    files.silence("two")
    then(files.plan.tell(files.repositories.look(("m", "n"))), reports.append)
    assert 1 == len(reports)
    files.wait(LISTING_PATIENCE_S)
    then(files.plan.tell(files.repositories.look(("m", "n"))), reports.append)

    assert [{"m", "n"}, {"m"}, {"m"}] == [set(report.fingerprints) for report in reports]
    assert ["fingerprints", "list_models"] == [task.name for task, _ in files.runner.held]
    files.speak()
    then(files.plan.tell(files.repositories.look(("m", "n"))), reports.append)
    assert reports[0].fingerprints == reports[-1].fingerprints


def test_a_reading_comes_after_the_decisions_about_its_model(files: Repository) -> None:
    files.runner.silent.add("decisions")
    problems: list[str] = []
    decision = Decision(1, "other", is_promotion=True)
    action = KeepDecisions("m", f"{files.directory}/one/m", (decision,))
    then(files.plan.tell(files.repositories.keep_decisions(action)), problems.append)

    calls, other = files.read("m"), files.read("n")
    assert ([], 1) == (calls, len(other))
    files.speak()

    assert [""] == problems
    assert isinstance(calls[0], Blueprint)


def test_a_directory_that_is_read_is_removed_afterwards(files: Repository) -> None:
    staged = add(files.directory / "staged", "m")
    files.runner.silent.add("staged")

    calls = files.read("m", LoadOverride('{"backend": "python"}', str(staged)))
    files.repositories.remove_directory(str(staged))
    assert staged.exists()
    files.speak()

    assert isinstance(calls[0], Blueprint)
    assert not staged.exists()
