"""Models in stores, which a process copies to this machine before they are read.

A model in a directory may have more files in a store: its copy has both. If a store does not
answer, the served models stay as they are. Does no I/O.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterable, Mapping
from typing import Any

from zmqtriton.sdk.models import is_remote
from zmqtriton.sdk.supervisor import (
    CoreParts,
    Feature,
    FileSource,
    HelperOwner,
    PreparationStatus,
    Promise,
    actions,
)
from zmqtriton.sdk.wire import InternalError, Reason, ZmqTritonError, errors, wire

ROLE = "storage"
#: Maximum age in seconds of a listing that answers a question for all models.
_FRESH_S = 1.0
#: Maximum age in seconds of a listing that answers a poll's question about a single model: the
#: poll has just listed all.
_POLLED_S = 10.0
#: The problem of a model whose store could not be reached: another try may find it.
_UNREACHABLE = "unreachable"
_COPIES = "it is copied from the store"


class ObjectStores(Feature, HelperOwner):
    def __init__(self, core: CoreParts) -> None:
        super().__init__(core)
        self._claim_storage = core.info.claim_storage
        self._urls = [path for path in core.policy.repositories if is_remote(path)]
        self._directory = core.info.settings.broker.storage_directory
        #: True if a store may be missing; always true after the first successful listing.
        self._may_start_without = not core.policy.exit_on_error
        #: The serial of the process; 0 if there is none.
        self._serial = 0
        self._process: dict[str, Any] = {}
        #: Promised answers of the process, by the number of the question; of a copy, its ticket.
        self._pending_calls: dict[int, Promise[Any]] = {}
        #: The models that are being copied, by ticket.
        self._copying: dict[int, str] = {}
        #: Progress of each copy, by ticket, once something was fetched.
        self._copy_status: dict[int, PreparationStatus] = {}
        #: The listing that is under way.
        self._listing: Promise[None] | None = None
        self._listed_s = float("-inf")
        #: Models of each repository at the last listing: names with digests. Names that cannot be
        #: used have their problems.
        self._models: dict[str, dict[str, str]] = {}
        self._unusable_models: dict[str, dict[str, str]] = {}
        self._errors: dict[str, str] = {}
        #: The revisions that URLs mean as long as this server runs.
        self._revisions: dict[str, str] = {}
        #: The last copy of each model.
        self._last_copies: dict[str, actions.LocalCopy] = {}
        #: Copies on this machine, with their models.
        self._local_copies: dict[str, str] = {}

    @property
    def source(self) -> ObjectStores | None:
        return self

    @property
    def helpers(self) -> Iterable[HelperOwner]:
        return (self,)

    # ---------------------------------------------------------- what is asked

    async def fetch(
        self, ticket: int, model: str, *, is_patient: bool, is_poll: bool
    ) -> actions.LocalCopy | None:
        """Copy a model; None if no store can have it."""
        if not self._urls or not _can_be_asked_for(model):
            return None
        copy = self._known_copy(model) if is_poll else None
        return copy or await self._copy(ticket, model, {"is_patient": is_patient})

    async def complete(self, ticket: int, model: str, source: FileSource) -> actions.LocalCopy:
        """Copy the files of a model's source and of its own directory, which win."""
        copy = self._last_copies.get(model)
        # the files of a revision never change
        if (
            copy is not None
            and copy.repository_urls == (source.url,)
            and copy.digest.startswith(f"{source.fingerprint} ")
            and copy.directory in self._local_copies
        ):
            return copy._replace(is_whole=True)
        try:
            self._directory = self._directory or self._claim_storage(source.url)
        except ZmqTritonError as error:
            return actions.LocalCopy((), "", _UNREACHABLE, error.text)
        own = {"urls": [source.url], "own": (source.directory, source.fingerprint)}
        copy = await self._copy(ticket, model, {"is_patient": False, **own})
        is_there = copy.directory or copy.problem
        problem = copy.problem if is_there else f"{source.url} has no files"
        return copy._replace(problem=problem, is_whole=True)

    async def _copy(self, ticket: int, model: str, details: Mapping[str, Any]) -> actions.LocalCopy:
        arguments = {"model": model, "directory": self._directory, **details}
        answer = self._call_process(ticket, "copy", arguments)
        self._copying[ticket] = model
        return self._record_copy(model, await answer)

    def fetch_phase(self, model: str) -> str:
        """Return the step of the model's copy to this machine, in words, or ""."""
        ticket = next((t for t, copied in self._copying.items() if copied == model), None)
        if ticket is None:
            return ""
        status = self._copy_status.get(ticket)
        return status.phase if status is not None else _COPIES

    def cancel_fetch(self, ticket: int) -> None:
        """Cancel a copy, if there is one with this ticket."""
        if self._pending_calls.pop(ticket, None) is not None:
            self._end_copy(ticket)
            self._send_call("abandon", {"id": ticket})

    async def list_remote(self) -> tuple[tuple[str, str], ...]:
        """Return the models of all stores."""
        if self._urls and self._plan.now_s - self._listed_s >= _FRESH_S:
            if self._listing is None:
                self._listing = self._plan.tell(self._list_stores())
            await self._listing
        return self._known_names()

    def _known_copy(self, model: str) -> actions.LocalCopy | None:
        """Return the answer to a poll from the last listing; None to ask the stores."""
        if self._plan.now_s - self._listed_s > _POLLED_S:
            return None
        for url, odd in self._unusable_models.items():
            if model in odd:
                return actions.LocalCopy((url,), "", f"odd: {odd[model]}", odd[model])
        places = tuple(url for url, names in self._models.items() if model in names)
        if len(places) != 1:
            return actions.LocalCopy(places)
        last_copy = self._last_copies.get(model)
        if last_copy is None or (last_copy.repository_urls, last_copy.digest) != (
            places,
            self._models[places[0]][model],
        ):
            return None
        return last_copy if last_copy.problem or last_copy.directory in self._local_copies else None

    # ------------------------------------------------------------ what is heard

    def _record_copy(self, model: str, answer: Any) -> actions.LocalCopy:
        """Process the answer for a model, and record it if it has a copy."""
        if isinstance(answer, ZmqTritonError):
            return actions.LocalCopy((), "", _UNREACHABLE, answer.text)
        copied = actions.LocalCopy(
            tuple(answer["urls"]), answer["directory"], answer["digest"], answer["odd"]
        )
        self._last_copies[model] = copied
        if copied.directory:
            self._local_copies[copied.directory] = model
        return copied

    async def _list_stores(self) -> None:
        listing = await self._call_process(self._plan.new_ticket(), "names", {})
        self._listing = None
        answers: list[dict[str, Any]]
        if isinstance(listing, ZmqTritonError):
            answers = [{"error": listing.text}] * len(self._urls)
        else:
            answers = listing
            self._listed_s = self._plan.now_s
        for url, answer in zip(self._urls, answers, strict=True):
            error = answer.get("error", "")
            if error and error != self._errors.get(url):
                self._plan.log("E", f"failed to poll the model repository: {error}")
            self._errors[url] = error
            if not error:
                self._models[url], self._unusable_models[url] = answer["models"], answer["odd"]

    def _known_names(self) -> tuple[tuple[str, str], ...]:
        missing = [url for url in self._urls if url not in self._models]
        if missing and not self._may_start_without:
            raise InternalError(self._errors[missing[0]])
        # What could not be listed is assumed to be unchanged.
        names: list[tuple[str, str]] = []
        for url in self._urls:
            names += [(name, "") for name in self._models.get(url, {})]
            names += self._unusable_models.get(url, {}).items()
        self._may_start_without = True
        return tuple(names)

    # --------------------------------------------------------------- the process

    def _call_process(self, number: int, verb: str, arguments: dict[str, Any]) -> Promise[Any]:
        answer = self._pending_calls[number] = Promise()
        repositories = {"urls": self._urls, "revisions": self._revisions}
        self._send_call(verb, {**repositories, **arguments}, number)
        return answer

    def _send_call(self, verb: str, arguments: dict[str, Any], number: int = 0) -> None:
        if not self._serial:
            self._serial = self._plan.new_serial()
            self._plan.enqueue(actions.Spawn(self._serial, ROLE))
        self._plan.enqueue(
            actions.Send(self._serial, wire.Call(number, verb, json.dumps(arguments)))
        )

    def process_started(self, serial: int, pid: int, started_s: float) -> None:
        """Record the pid of a started process, if it is the one for stores."""
        if serial == self._serial:
            self._plan.tell(self._introductions.guard_process_group(serial, ROLE, ROLE, pid))
            self._process = {"role": ROLE, "serial": serial, "pid": pid, "started_s": started_s}

    def handle_progress(self, serial: int, message: wire.PreparationProgress) -> None:
        """Record the progress of a copy."""
        if serial == self._serial and message.call in self._copying:
            begun = PreparationStatus(self._copying[message.call], self._plan.now_s)
            self._copy_status.setdefault(message.call, begun).update(message)

    def _end_copy(self, ticket: int) -> None:
        self._copying.pop(ticket, None)
        self._copy_status.pop(ticket, None)

    def handle_result(self, serial: int, answer: wire.CallResult) -> bool:
        """Process a result; False if it answers no call from here."""
        if serial != self._serial:
            return False
        self._end_copy(answer.id)
        call = self._pending_calls.pop(answer.id, None)
        if call is not None and answer.code:
            call(errors.from_number(answer.code, answer.text))
        elif call is not None:
            said = json.loads(answer.result)
            self._keep_revisions(said["revisions"])
            call(said["result"])
        return True

    def _keep_revisions(self, revisions: dict[str, str]) -> None:
        for url, revision in revisions.items():
            if url not in self._revisions:
                self._revisions[url] = revision
                self._plan.log("I", f"{url} is {revision}, as long as this server runs")

    def process_ended(self, serial: int, reason: Reason, last_words: str) -> None:
        """Fail all questions to a dead process. The next question starts another one."""
        if serial != self._serial:
            return
        self._serial, self._process = 0, {}
        self._introductions.report_death(serial, reason.text)
        self._copying.clear()
        self._copy_status.clear()
        calls, self._pending_calls = self._pending_calls, {}
        for answer in calls.values():
            answer(
                InternalError(
                    f"the process that asks stores has died, load the model again: {reason.text}"
                )
            )

    def describe_processes(self) -> list[dict[str, Any]]:
        """Describe the process, for the status."""
        return [self._process] if self._process else []

    def describe_preparations(self) -> list[dict[str, Any]]:
        """Describe the progress of each copy, for the status."""
        return [status.describe(self._plan.now_s) for status in self._copy_status.values()]

    def describe(self, counts: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Describe the sources of models, for the status; `counts` are not needed."""
        sources = [
            {"model": model, "repository": url, "revision": self._revisions[url]}
            for model, copy in self._last_copies.items()
            for url in copy.repository_urls
            if url in self._revisions and copy.directory
        ]
        return {"model_sources": sources} if sources else {}

    # ------------------------------------------------------------------- copies

    def start(self) -> None:
        self._plan.server.whenever(self._unused, self._remove)

    def _remove(self, unused: Iterable[str]) -> None:
        for directory in unused:
            model = self._local_copies.pop(directory)
            if (last := self._last_copies.get(model)) and last.directory == directory:
                del self._last_copies[model]
            path = posixpath.dirname(directory)
            self._send_call("remove", {"directory": self._directory, "path": path})

    def _unused(self) -> list[str]:
        """Return the copies that no generation uses.

        The last copy of a wanted model stays: the next poll compares with it and reuses unchanged
        files.
        """
        if not self._local_copies:
            return []
        models = self._server.models
        models_to_keep = {
            m for m in self._last_copies if m in models and not models[m].was_unloaded
        }
        used = [each.blueprint.directory for each in self._server.generations.values()]
        still_used = {*used, *(self._last_copies[model].directory for model in models_to_keep)}
        busy = set(self._copying.values())
        return [d for d, m in self._local_copies.items() if d not in still_used and m not in busy]


def _can_be_asked_for(model: str) -> bool:
    return "/" not in model and model.isprintable() and model not in ("", ".", "..")
