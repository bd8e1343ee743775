"""Questions to object stores, without a process; the answers are the test's."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.floor.reasons import because
from tests.supervisor.features.core_parts import core_parts
from tests.supervisor.settings import then
from zmqtriton.reading.blueprint import FileSource, LoadOverride, ReadFailure
from zmqtriton.store_places import is_remote
from zmqtriton.supervisor.actions import ListRepository, LocalCopy, Log, ReadModel, Send, Spawn
from zmqtriton.supervisor.models.readings import ModelReadings
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.settings import Policy
from zmqtriton.supervisor.story import Story
from zmqtriton_extras.storage.object_stores import ObjectStores
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InternalError, ZmqTritonError

URL = "s3://bucket"
COPIED = "it is copied from the store"


class Introductions:
    """Nobody is introduced."""

    def guard_process_group(self, serial: int, role: str, label: str, pid: int) -> None:
        """The broker hears of it."""

    def report_death(self, serial: int, reason: str) -> None:
        """It is dead."""


class Model:
    def __init__(self, *, was_unloaded: bool = False) -> None:
        self.was_unloaded = was_unloaded


class Watched:
    """The repositories, and everything that they had done."""

    def __init__(self, *repositories: str, exit_on_error: bool = True) -> None:
        self.plan = Plan()
        #: The tickets of the plan so far, and the readings by theirs.
        self.tickets: list[int] = []
        self.stories: dict[int, Story[Any]] = {}
        self.plan.new_ticket = self._new_ticket
        storage = "/copies" if any(map(is_remote, repositories)) else ""
        policy = Policy(repositories=repositories, exit_on_error=exit_on_error)
        settings = SimpleNamespace(broker=SimpleNamespace(storage_directory=storage))
        self.server = SimpleNamespace(models={}, generations={})
        self.stores = ObjectStores(
            core_parts(
                plan=self.plan,
                policy=policy,
                introductions=Introductions(),
                server=self.server,
                info=SimpleNamespace(claim_storage=self.claim, settings=settings),
            )
        )
        self.readings = ModelReadings(self.plan, self.stores.source)
        self.outcomes: list[Any] = []
        self.listings: list[Any] = []
        self.done: list[Any] = []
        self.questions: list[tuple[int, str, dict[str, Any]]] = []
        self.serial = 0
        self.no_directory = ""

    def claim(self, url: str) -> str:
        """Make the directory of copies; a text is why that is impossible."""
        if self.no_directory:
            raise InternalError(self.no_directory)
        return "/claimed"

    def act(self) -> list[Any]:
        """Return what was done since the last time, but for what is between us and the process."""
        actions = []
        for action in self.plan.take_actions():
            if isinstance(action, Spawn):
                self.serial = action.serial
            elif isinstance(action, Send):
                call = action.message
                self.questions.append((call.id, call.verb, json.loads(call.arguments)))
            else:
                actions.append(action)
        return actions

    def read(
        self, model: str, override: LoadOverride | None = None, *, is_poll: bool = False
    ) -> int:
        """Begin to read a model; return the ticket of the reading."""
        reading = self.readings.read(model, override, is_patient=True, is_poll=is_poll)
        before = len(self.tickets)
        story = self.plan.tell(reading)
        then(story, self.outcomes.append)
        self.stories[self.tickets[before]] = story
        return self.tickets[before]

    def list_models(self) -> None:
        story = self.plan.tell(self.readings.list_models())
        story.at_end(lambda: self.listings.append(story.error or story.value))

    def _new_ticket(self) -> int:
        self.tickets.append(len(self.tickets) + 1)
        return self.tickets[-1]

    def take(self, ticket: int, result: Any) -> None:
        """Take the answer to an action."""
        self.plan.answer(ticket, result)
        self.plan.ready.settle()

    def answer(self, result: Any, revisions: dict[str, str] | None = None) -> list[Any]:
        """To the question that was asked last."""
        self.act()
        number = self.questions[-1][0]
        error = isinstance(result, ZmqTritonError)
        message = wire.CallResult(
            number,
            result.number if error else 0,
            result.text if error else "",
            "null" if error else json.dumps({"result": result, "revisions": revisions or {}}),
        )
        assert self.stores.handle_result(self.serial, message)
        return self.act()

    def listing(self, *answers: dict[str, Any]) -> Any:
        """Return what a listing comes to."""
        self.plan.advance_to(self.plan.now_s + 5)
        self.list_models()
        remote = [a.remote_models for a in self.answer([*answers]) if isinstance(a, ListRepository)]
        return remote[0] if remote else self.listings[-1]

    @property
    def verbs(self) -> list[str]:
        self.act()
        return [verb for _, verb, _ in self.questions]


def there(directory: str = "/copies/7/m", digest: str = "d") -> dict[str, Any]:
    return {"urls": [URL], "directory": directory, "digest": digest, "odd": ""}


def names(**models: str) -> dict[str, Any]:
    return {"models": models, "odd": {}}


COPY = LocalCopy((URL,), "/copies/7/m", "d")


def test_where_all_are_directories_nobody_is_asked() -> None:
    watched = Watched("/models")

    watched.read("m")
    watched.list_models()

    assert [ReadModel(1, "m", None), ListRepository(2)] == watched.act()
    assert [] == watched.questions


def test_files_that_a_load_brings_along_are_read_at_once() -> None:
    watched = Watched(URL)

    files = LoadOverride("{}", "/files")
    ticket = watched.read("m", files)

    assert [ReadModel(ticket, "m", files)] == watched.act()


@pytest.mark.row("F21")
def test_a_model_is_read_when_its_copy_is_there() -> None:
    watched = Watched(URL)

    ticket = watched.read("m")

    assert [] == watched.act()
    assert [ReadModel(ticket, "m", None, COPY)] == watched.answer(there())
    (question,) = watched.questions
    expected = {
        "model": "m",
        "directory": "/copies",
        "is_patient": True,
        "urls": [URL],
        "revisions": {},
    }
    assert ("copy", expected) == question[1:]


def test_a_model_that_nobody_wants_any_more_is_not_read() -> None:
    watched = Watched(URL)
    ticket = watched.read("m")

    watched.stories[ticket].cancel()

    assert ["copy", "abandon"] == watched.verbs
    assert [] == watched.act()


def test_what_was_read_is_told_once_to_whom_it_was_read_for_and_still_wants_it() -> None:
    watched = Watched("/models")
    first, second, third = (watched.read("m") for _ in range(3))
    nothing, something = ReadFailure(because("nothing")), ReadFailure(because("something"))

    watched.stories[second].cancel()
    watched.take(second, nothing)
    watched.take(third, something)
    watched.take(third, nothing)

    assert [something] == watched.outcomes
    watched.take(first, nothing)
    assert [something, nothing] == watched.outcomes


@pytest.mark.row("F21")
def test_a_poll_asks_only_for_what_the_listing_shows_to_be_different() -> None:
    watched = Watched(URL, "/models")
    watched.listing(names(m="d"))
    watched.read("m")
    watched.answer(there())

    assert (("m", ""),) == watched.listing(names(m="d"))
    ticket = watched.read("m", is_poll=True)
    assert [ReadModel(ticket, "m", None, COPY)] == watched.act()
    ticket = watched.read("of a directory", is_poll=True)
    assert [ReadModel(ticket, "of a directory", None, LocalCopy())] == watched.act()
    watched.listing(names(m="other"))
    count = len(watched.questions)
    watched.read("m", is_poll=True)

    assert ["copy"] == watched.verbs[count:]


@pytest.mark.row("F21")
def test_a_store_that_does_not_answer_changes_nothing_of_what_is_known() -> None:
    watched = Watched(URL)
    watched.listing(names(m="d"))
    watched.read("m")
    watched.answer(there())

    assert (("m", ""),) == watched.listing({"error": "it is down"})
    ticket = watched.read("m", is_poll=True)

    assert [ReadModel(ticket, "m", None, COPY)] == watched.act()


def test_an_error_is_logged_once_until_it_is_another() -> None:
    watched = Watched(URL, exit_on_error=False)
    logged = []
    for error in ("down", "down", "", "down", "other"):
        watched.plan.advance_to(watched.plan.now_s + 5)
        watched.list_models()
        actions = watched.answer([{"error": error} if error else names()])
        logged += [action.text for action in actions if isinstance(action, Log)]

    assert ["down", "down", "other"] == [text.rpartition(": ")[2] for text in logged]


def test_the_first_listing_must_succeed_unless_errors_do_not_count() -> None:
    watched, easy = Watched(URL), Watched(URL, exit_on_error=False)

    listing = watched.listing({"error": "it is down"})

    assert (InternalError, "it is down") == (type(listing), listing.text)
    assert () == easy.listing({"error": "it is down"})


def test_a_model_with_odd_objects_has_that_as_its_problem_and_is_not_asked_for() -> None:
    watched = Watched(URL)

    assert (("m", ""), ("o", "odd name")) == watched.listing(
        {"models": {"m": "d"}, "odd": {"o": "odd name"}}
    )
    ticket = watched.read("o", is_poll=True)

    odd = LocalCopy((URL,), "", "odd: odd name", "odd name")
    assert [ReadModel(ticket, "o", None, odd)] == watched.act()


def test_a_copy_says_how_far_it_is_until_it_ends() -> None:
    watched = Watched(URL)
    ticket = watched.read("m")
    watched.act()

    assert ([], COPIED) == (watched.stores.describe_preparations(), watched.readings.phase("m"))
    watched.plan.advance_to(10.0)
    for call, done in ((ticket, 0), (ticket + 1, 1), (ticket, 5)):
        message = wire.PreparationProgress(call, "Copying m", done, 20)
        watched.stores.handle_progress(watched.serial, message)
        watched.stores.handle_progress(watched.serial + 1, message._replace(done=19))
    watched.plan.advance_to(70.0)

    row = {"model": "m", "step": "Copying m", "progress": 0.25, "seconds": 60.0}
    assert [row] == watched.stores.describe_preparations()
    assert "Copying m: 25 %" == watched.readings.phase("m")
    watched.answer(there())
    assert ([], "") == (watched.stores.describe_preparations(), watched.readings.phase("m"))


def test_when_the_process_dies_its_questions_fail_and_the_next_starts_another() -> None:
    watched = Watched(URL)
    watched.read("m")
    watched.act()
    first = watched.serial

    watched.stores.process_ended(first, because("killed by SIGKILL"), "")

    (read,) = watched.act()
    text = "the process that asks stores has died, load the model again: killed by SIGKILL"
    assert LocalCopy((), "", "unreachable", text) == read.local_copy
    watched.read("m")
    watched.act()
    assert first != watched.serial


@pytest.mark.row("F21")
def test_a_copy_stays_while_it_is_used_or_the_last_of_a_model_that_is_wanted() -> None:
    watched = Watched(URL)
    watched.read("m")
    watched.answer(there())

    def sweep(used: list[str], models: dict[str, Model]) -> None:
        watched.server.models = models
        watched.server.generations = {
            number: SimpleNamespace(blueprint=SimpleNamespace(directory=directory))
            for number, directory in enumerate(used)
        }
        watched.plan.ready.settle()

    models = {"m": Model()}
    watched.server.models = models
    watched.stores.start()
    sweep([], models)
    assert ["copy"] == watched.verbs
    watched.read("m")
    sweep([], {})
    assert ["copy", "copy"] == watched.verbs  # it may be what the question will find
    sweep(["/copies/7/m"], models)
    watched.answer(there("/copies/8/m", "e"))
    assert ["copy", "copy"] == watched.verbs
    sweep([], models)
    unloaded = {"m": Model(was_unloaded=True)}
    sweep([], unloaded)
    for directory in ("/copies/9/m", "/copies/10/m"):
        watched.read("m")
        sweep(["/copies/9/m"], unloaded)
        watched.answer(there(directory, directory))
    sweep(["/copies/9/m"], unloaded)  # an earlier generation still answers
    sweep([], unloaded)

    watched.act()
    removed = [arguments["path"] for _, verb, arguments in watched.questions if verb == "remove"]
    assert ["/copies/7", "/copies/8", "/copies/10", "/copies/9"] == removed


# ------------------------------------------- models with files in a store, too

SOURCE = FileSource("hf://org/name@v1", "/models/m", "f1")
PART = ReadFailure(because("no add-on"), "f1", source=SOURCE)


def answer_read(watched: Watched, ticket: int, reading: Any) -> list[Any]:
    watched.act()
    watched.take(ticket, reading)
    return watched.act()


def whole(**changes: Any) -> LocalCopy:
    return LocalCopy((SOURCE.url,), "/claimed/7/m", "f1 d", is_whole=True)._replace(**changes)


def copied(**changes: Any) -> dict[str, Any]:
    there = {"urls": [SOURCE.url], "directory": "/claimed/7/m", "digest": "f1 d", "odd": ""}
    return {**there, **changes}


def test_a_model_with_a_source_is_copied_and_then_read_as_a_whole() -> None:
    watched = Watched("/models")

    ticket = watched.read("m")
    assert [] == answer_read(watched, ticket, PART)

    [(number, verb, arguments)] = watched.questions
    assert (ticket, "copy", [SOURCE.url]) == (number, verb, arguments["urls"])
    assert ["/models/m", "f1"] == arguments["own"]
    assert "/claimed" == arguments["directory"]
    assert COPIED == watched.readings.phase("m")
    revisions = {SOURCE.url: "c0ffee"}
    assert ReadModel(ticket, "m", None, whole()) in watched.answer(copied(), revisions)
    watched.take(ticket, "the model")
    assert ["the model"] == watched.outcomes
    sources = watched.stores.describe(())["model_sources"]
    assert [{"model": "m", "repository": SOURCE.url, "revision": "c0ffee"}] == sources


def test_a_poll_copies_it_again_once_its_own_files_have_changed() -> None:
    watched = Watched("/models")
    answer_read(watched, watched.read("m"), PART)
    watched.answer(copied())
    watched.server.models["m"] = Model()

    # When nothing has changed
    ticket = watched.read("m", is_poll=True)
    assert [ReadModel(ticket, "m", None, whole())] == answer_read(watched, ticket, PART)
    assert ["copy"] == watched.verbs

    # When its configuration has
    changed = SOURCE._replace(fingerprint="f2")
    ticket = watched.read("m", is_poll=True)
    answer_read(watched, ticket, replace(PART, fingerprint="f2", source=changed))
    assert ["copy", "copy"] == watched.verbs


def test_a_source_that_fails_is_why_the_model_is_not_read() -> None:
    watched = Watched("/models")
    ticket = watched.read("m")
    answer_read(watched, ticket, PART)

    watched.answer(InternalError("it does not answer"))

    assert [ReadFailure(because("it does not answer"), "unreachable")] == watched.outcomes


def test_an_empty_source_and_a_missing_directory_for_copies_are_told() -> None:
    watched = Watched("/models")
    answer_read(watched, watched.read("m"), PART)
    watched.answer(copied(urls=[], directory="", digest=""))
    assert "hf://org/name@v1 has no files" == watched.outcomes[0].reason.text

    watched = Watched("/models")
    watched.no_directory = "the disk is full"
    answer_read(watched, watched.read("m"), PART)
    assert "the disk is full" == watched.outcomes[0].reason.text
    assert [] == watched.questions


def test_a_cancelled_load_abandons_the_copy() -> None:
    watched = Watched("/models")
    ticket = watched.read("m")
    answer_read(watched, ticket, PART)

    watched.stories[ticket].cancel()

    assert ["copy", "abandon"] == watched.verbs
    assert [] == watched.outcomes
