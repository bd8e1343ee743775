"""Models that object stores have: a process is asked, and copies them to this machine before they
are read.

Whoever wants a model read or all of them listed comes through here; where every repository is a
directory, nothing is between. A store that does not answer changes nothing of what is served. Does
no I/O.
"""

from __future__ import annotations

import itertools
import json
import posixpath
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from zmqtriton.storage.places import is_remote
from zmqtriton.supervisor.actions import (
    ListRepository,
    LoadOverride,
    LocalCopy,
    ReadModel,
    RepositoryListing,
    Send,
    Spawn,
)
from zmqtriton.supervisor.fleet.introductions import Introductions
from zmqtriton.supervisor.models.blueprint import Blueprint, ReadFailure
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.policy import Policy
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InternalError, ZmqTritonError, from_number

ROLE = "storage"
#: A listing this old is as good as a new one, to whoever asks for all names.
_FRESH_S = 1.0
#: And to a poll, which has just had all names listed, for each single model.
_POLLED_S = 10.0
#: Of a model that a store could not be asked for: another try may find it.
_UNREACHABLE = "unreachable"

ResultCallback = Callable[[Any], None]


class FetchRequest(Protocol):
    """A model, as far as its copy goes."""

    @property
    def was_unloaded(self) -> bool:
        """Somebody wanted it gone, and it is."""


class ObjectStores:
    def __init__(self, plan: Plan, introductions: Introductions, policy: Policy) -> None:
        self._plan = plan
        self._introductions = introductions
        self._urls = [path for path in policy.repositories if is_remote(path)]
        self._directory = policy.storage_directory
        #: Until the first listing that shall not fail.
        self._may_start_without = not policy.exit_on_error
        self._numbers = itertools.count(1)
        #: Who waits for what is on this machine, by ticket.
        self._readings: dict[int, Callable[[Blueprint | ReadFailure], None]] = {}
        self._listings: dict[int, Callable[[RepositoryListing], None]] = {}
        #: The process; 0: there is none.
        self._serial = 0
        self._process: dict[str, Any] = {}
        #: What hears its answers, by the number of the question: for a copy the ticket.
        self._pending_calls: dict[int, ResultCallback] = {}
        #: The models that are being copied, by ticket.
        self._copying: dict[int, str] = {}
        #: Those who wait for what is in stores.
        self._waiting: list[Callable[[RepositoryListing], None]] = []
        self._listed_s = float("-inf")
        #: By repository, as it was last seen: names with digests, and those that cannot be used.
        self._models: dict[str, dict[str, str]] = {}
        self._unusable_models: dict[str, dict[str, str]] = {}
        self._errors: dict[str, str] = {}
        #: What was last found of each model.
        self._last_copies: dict[str, LocalCopy] = {}
        #: Copies that are on this machine, with their models.
        self._local_copies: dict[str, str] = {}

    # ---------------------------------------------------------- what is asked

    def request_read(
        self,
        model: str,
        override: LoadOverride | None,
        then: Callable[[Blueprint | ReadFailure], None],
        *,
        is_patient: bool,
        is_poll: bool,
    ) -> int:
        """Has the model read, now or when it is here; returns the ticket, which `abandon` takes."""
        ticket = next(self._numbers)
        self._readings[ticket] = then
        is_elsewhere = override is not None and override.directory
        if not self._urls or is_elsewhere or not _can_be_asked_for(model):
            self._plan.enqueue(ReadModel(ticket, model, override))
            return ticket
        known = self._known_copy(model) if is_poll else None
        if known is not None:
            self._plan.enqueue(ReadModel(ticket, model, override, known))
            return ticket

        def copied(found: Any) -> None:
            self._plan.enqueue(ReadModel(ticket, model, override, self._record_copy(model, found)))

        arguments = {"model": model, "directory": self._directory, "is_patient": is_patient}
        self._call_process(ticket, "copy", arguments, copied)
        self._copying[ticket] = model
        return ticket

    def cancel_read(self, ticket: int) -> None:
        """Nobody wants the model any more."""
        self._readings.pop(ticket, None)
        if self._pending_calls.pop(ticket, None) is not None:
            self._copying.pop(ticket, None)
            self._send_call("abandon", {"id": ticket})

    def on_model_read(self, ticket: int, found: Blueprint | ReadFailure) -> None:
        """The answer to ReadModel, which may have been abandoned meanwhile."""
        then = self._readings.pop(ticket, None)
        if then is not None:
            then(found)

    def list_models(self, then: Callable[[RepositoryListing], None]) -> None:
        """`then` gets the names that they hold, each with the problem that all can see, or ""."""
        if not self._urls or self._plan.now_s - self._listed_s < _FRESH_S:
            self._list(then)
            return
        self._waiting.append(then)
        if len(self._waiting) == 1:
            self._call_process(next(self._numbers), "names", {}, self._stores_listed)

    def on_repository_listed(self, ticket: int, found: RepositoryListing) -> None:
        """The answer to ListRepository."""
        self._listings.pop(ticket)(found)

    def _known_copy(self, model: str) -> LocalCopy | None:
        """What a poll would find, if that is known without asking."""
        if self._plan.now_s - self._listed_s > _POLLED_S:
            return None
        for url, odd in self._unusable_models.items():
            if model in odd:
                return LocalCopy((url,), "", f"odd: {odd[model]}", odd[model])
        places = tuple(url for url, names in self._models.items() if model in names)
        if len(places) != 1:
            return LocalCopy(places)
        found = self._last_copies.get(model)
        if found is None or (found.repository_urls, found.digest) != (
            places,
            self._models[places[0]][model],
        ):
            return None
        return found if found.problem or found.directory in self._local_copies else None

    # ------------------------------------------------------------ what is heard

    def _record_copy(self, model: str, found: Any) -> LocalCopy:
        """The answer to a question for a model, which stays known if it is worth knowing."""
        if isinstance(found, ZmqTritonError):
            return LocalCopy((), "", _UNREACHABLE, found.text)
        copied = LocalCopy(tuple(found["urls"]), found["directory"], found["digest"], found["odd"])
        self._last_copies[model] = copied
        if copied.directory:
            self._local_copies[copied.directory] = model
        return copied

    def _stores_listed(self, found: Any) -> None:
        answers: list[dict[str, Any]]
        if isinstance(found, ZmqTritonError):
            answers = [{"error": found.text}] * len(self._urls)
        else:
            answers = found
            self._listed_s = self._plan.now_s
        for url, answer in zip(self._urls, answers, strict=True):
            error = answer.get("error", "")
            if error and error != self._errors.get(url):
                self._plan.log("E", f"failed to poll the model repository: {error}")
            self._errors[url] = error
            if not error:
                self._models[url], self._unusable_models[url] = answer["models"], answer["odd"]
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            self._list(then)

    def _list(self, then: Callable[[RepositoryListing], None]) -> None:
        missing = [url for url in self._urls if url not in self._models]
        if missing and not self._may_start_without:
            then(InternalError(self._errors[missing[0]]))
            return
        # What could not be listed is taken to be as it was.
        names: list[tuple[str, str]] = []
        for url in self._urls:
            names += [(name, "") for name in self._models.get(url, {})]
            names += self._unusable_models.get(url, {}).items()
        self._may_start_without = True
        ticket = next(self._numbers)
        self._listings[ticket] = then
        self._plan.enqueue(ListRepository(ticket, tuple(names)))

    # --------------------------------------------------------------- the process

    def _call_process(
        self, number: int, verb: str, arguments: dict[str, Any], then: ResultCallback
    ) -> None:
        self._pending_calls[number] = then
        self._send_call(verb, {**arguments, "urls": self._urls}, number)

    def _send_call(self, verb: str, arguments: dict[str, Any], number: int = 0) -> None:
        if not self._serial:
            self._serial = self._plan.new_serial()
            self._plan.enqueue(Spawn(self._serial, ROLE))
        self._plan.enqueue(Send(self._serial, wire.Call(number, verb, json.dumps(arguments))))

    def process_started(self, serial: int, pid: int, started_s: float) -> None:
        """A process runs, which may be ours."""
        if serial == self._serial:
            self._introductions.guard_process_group(serial, ROLE, ROLE, pid)
            self._process = {"role": ROLE, "serial": serial, "pid": pid, "started_s": started_s}

    def handle_result(self, serial: int, answer: wire.CallResult) -> bool:
        """Whether it was ours to answer."""
        if serial != self._serial:
            return False
        self._copying.pop(answer.id, None)
        then = self._pending_calls.pop(answer.id, None)
        if then is not None:
            error = from_number(answer.code, answer.text) if answer.code else None
            then(error or json.loads(answer.result))
        return True

    def process_ended(self, serial: int, reason: str, last_words: str) -> None:
        """A process is dead. The next question starts another."""
        if serial != self._serial:
            return
        self._serial, self._process = 0, {}
        self._introductions.report_death(serial, reason)
        self._copying.clear()
        asked, self._pending_calls = self._pending_calls, {}
        for then in asked.values():
            then(InternalError(f"the process that asks object stores has died: {reason}"))

    def describe(self) -> list[dict[str, Any]]:
        """The process, for the status."""
        return [self._process] if self._process else []

    # ------------------------------------------------------------------- copies

    def sweep(self, used: Iterable[str], models: Mapping[str, FetchRequest]) -> None:
        """Removes copies that none of these directories' generations uses, but the last one of a
        model that is wanted: the next poll compares with it, and takes from it what is the same."""
        if not self._local_copies:
            return
        wanted = {m for m in self._last_copies if m in models and not models[m].was_unloaded}
        still_used = {*used, *(self._last_copies[model].directory for model in wanted)}
        busy = set(self._copying.values())
        gone = [d for d, m in self._local_copies.items() if d not in still_used and m not in busy]
        for directory in gone:
            model = self._local_copies.pop(directory)
            if self._last_copies[model].directory == directory:
                del self._last_copies[model]
            path = posixpath.dirname(directory)
            self._send_call("remove", {"directory": self._directory, "path": path})


def _can_be_asked_for(model: str) -> bool:
    return "/" not in model and model.isprintable() and model not in ("", ".", "..")
