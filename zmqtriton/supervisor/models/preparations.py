"""The waits of loads for other processes: readings, listings, preparations of environments.

A load asks and waits; each question is answered once. Models that are not on this machine come from
a source, which makes copies that are read; without one, every reading and listing passes straight
on. An environment is prepared by a process that says how far it is and sends one answer. The same
one may be prepared for several models at a time: those processes settle between them who makes it.
Does no I/O.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

from zmqtriton.environments.demand import Environment, EnvironmentSpec
from zmqtriton.long_steps import StepProgress
from zmqtriton.repository.scan import NO_EXCEPTIONS, VersionSelection
from zmqtriton.supervisor.actions import (
    CancelReading,
    ListRepository,
    LoadOverride,
    LocalCopy,
    PrepareEnvironment,
    ReadModel,
    RemoteListing,
    RepositoryListing,
    Send,
    Signal,
)
from zmqtriton.supervisor.models.blueprint import Blueprint, FileSource, ReadFailure
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.server_processes.introductions import Introductions
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InternalError, ZmqTritonError, from_number
from zmqtriton_floor.reasons import Kind, Reason

_ROLE = "environment"
#: How long one that was cancelled may take; what is left then the next one removes.
_REMOVED_WITHIN_S = 30.0
#: Gets the environment, or why there is none.
EnvironmentCallback = Callable[[Environment | ZmqTritonError], None]


class HelperOwner:
    """Hears of the death of any process, and knows its own; by default it has none."""

    def process_started(self, serial: int, pid: int, started_s: float) -> None:
        """Take note of any process but the broker and frontends."""

    def process_ended(self, serial: int, reason: Reason, last_words: str) -> None:
        """Take note of the end of such a process."""

    def handle_result(self, serial: int, answer: wire.CallResult) -> bool:
        """Take a result; False if it is not of one of the owner's processes."""
        return False

    def handle_progress(self, serial: int, message: wire.PreparationProgress) -> None:
        """Take the progress of a process."""

    def describe_processes(self) -> list[dict[str, Any]]:
        """Describe the processes, for the status."""
        return []

    def describe_preparations(self) -> list[dict[str, Any]]:
        """Describe how far each task is, for the status."""
        return []


class PreparationStatus:
    """The latest that a preparation has reported: of an environment, or of a copy from a store."""

    def __init__(self, model: str, began_s: float, title: str = "") -> None:
        self._model = model
        self._began_s = began_s
        self._latest = StepProgress(title)

    def update(self, message: wire.PreparationProgress) -> None:
        self._latest = StepProgress(message.title, message.done, message.total)

    @property
    def phase(self) -> str:
        """The step that is taken now, in words."""
        return str(self._latest)

    def describe(self, now_s: float) -> dict[str, Any]:
        return {
            "model": self._model,
            "step": self._latest.title,
            "progress": self._latest.share,
            "seconds": round(now_s - self._began_s, 3),
        }


class _Preparation(NamedTuple):
    model: str
    demand: EnvironmentSpec
    then: EnvironmentCallback
    status: PreparationStatus


class EnvironmentPreparations(HelperOwner):
    def __init__(self, plan: Plan, introductions: Introductions) -> None:
        self._plan = plan
        self._introductions = introductions
        self._waiting: dict[int, _Preparation] = {}
        self._processes: dict[int, dict[str, Any]] = {}

    def begin(self, model: str, demand: EnvironmentSpec, then: EnvironmentCallback) -> int:
        """Begin a preparation and return its number.

        `then` is called once, unless it is cancelled.
        """
        serial = self._plan.new_serial()
        status = PreparationStatus(model, self._plan.now_s, f"preparing {demand}")
        self._waiting[serial] = _Preparation(model, demand, then, status)
        self._plan.enqueue(PrepareEnvironment(serial, model, demand))
        return serial

    def process_started(self, serial: int, pid: int, started_s: float) -> None:
        """Take note that the process runs."""
        if serial in self._waiting:
            model, demand, *_ = self._waiting[serial]
            self._processes[serial] = {
                "role": _ROLE,
                "model": model,
                "serial": serial,
                "pid": pid,
                "started_s": started_s,
                "state": f"preparing {demand}",
            }
            go_on = partial(self._send_prepare, serial)
            self._introductions.guard_process_group(serial, _ROLE, demand.kind, pid, go_on)

    def _send_prepare(self, serial: int) -> None:
        """Let the process begin; what it starts from now on ends with the server."""
        if serial in self._waiting:
            self._plan.enqueue(Send(serial, wire.Call(0, "prepare", "{}")))

    def describe_processes(self) -> list[dict[str, Any]]:
        """Describe the processes, for the status."""
        return list(self._processes.values())

    def describe_preparations(self) -> list[dict[str, Any]]:
        """Describe how far each is, for the status."""
        return [each.status.describe(self._plan.now_s) for each in self._waiting.values()]

    def phase(self, serial: int) -> str:
        """Return the present step of a preparation that has not ended, in words."""
        return self._waiting[serial].status.phase

    def cancel(self, serial: int) -> None:
        """Cancel a preparation: its process removes the incomplete environment and ends."""
        if self._waiting.pop(serial, None) is not None:
            self._plan.enqueue(Signal(serial, int(signal.SIGTERM), group=True))
            kill = Signal(serial, int(signal.SIGKILL), group=True)
            self._plan.call_later(_REMOVED_WITHIN_S, lambda: self._plan.enqueue(kill))

    def handle_progress(self, serial: int, message: wire.PreparationProgress) -> None:
        """Take note of how far a preparation is, if it is one of these."""
        if serial in self._waiting:
            status = self._waiting[serial].status
            status.update(message)
            self._processes[serial]["state"] = status.phase

    def handle_result(self, serial: int, answer: wire.CallResult) -> bool:
        """Take an answer; False if it was not awaited here."""
        if serial not in self._waiting:
            return False
        then = self._waiting.pop(serial).then
        if answer.code:
            then(from_number(answer.code, answer.text, answer.reason))
        else:
            then(Environment(*json.loads(answer.result)))
        return True

    def process_ended(self, serial: int, reason: Reason, last_words: str) -> None:
        """Take note that the process is dead; it may have answered."""
        if self._processes.pop(serial, None) is not None:
            self._introductions.report_death(serial, reason.text)
        if serial not in self._waiting:
            return
        _, demand, then, _ = self._waiting.pop(serial)
        words = f": {last_words}" if last_words else ""
        problem = f"{demand} cannot be prepared ({reason.text}){words}"
        then(InternalError(problem).because(Kind.ENVIRONMENT_FAILED, reason, problem=problem))


class ModelSource(Protocol):
    """Brings models to this machine."""

    def fetch(
        self,
        ticket: int,
        model: str,
        then: Callable[[LocalCopy | None], None],
        *,
        is_patient: bool,
        is_poll: bool,
    ) -> None:
        """Copy a model, now or later; `then` gets None if the source cannot have it."""

    def complete(
        self, ticket: int, model: str, source: FileSource, then: Callable[[LocalCopy], None]
    ) -> None:
        """Copy a model whose own directory has only some of its files."""

    def cancel_fetch(self, ticket: int) -> None:
        """Cancel the reading with this ticket."""

    def fetch_phase(self, model: str) -> str:
        """Return the step of the model's copy, in words, or ""."""

    def list_remote(self, then: Callable[[RemoteListing], None]) -> None:
        """Pass the source's models to `then`."""


class ModelReadings:
    def __init__(self, plan: Plan, source: ModelSource | None) -> None:
        self._plan = plan
        self._source = source

    def request_read(
        self,
        model: str,
        override: LoadOverride | None,
        then: Callable[[Blueprint | ReadFailure], None],
        *,
        is_patient: bool,
        is_poll: bool,
        selection: VersionSelection = NO_EXCEPTIONS,
    ) -> int:
        """Read a model, now or when it is on this machine; return a ticket for cancel_read()."""
        source = self._source

        def take(reading: Blueprint | ReadFailure) -> None:
            others = reading.source if isinstance(reading, ReadFailure) else None
            if others is None or source is None:
                then(reading)
                return
            self._plan.expect(then, ticket)
            source.complete(ticket, model, others, read_whole)

        def read_whole(copy: LocalCopy) -> None:
            if copy.problem:
                failure = ReadFailure(InternalError(copy.problem).reason, copy.digest)
                self._plan.answer(ticket, failure)
            else:
                read(copy)

        ticket = self._plan.expect(take)

        def read(copy: LocalCopy | None) -> None:
            self._plan.enqueue(ReadModel(ticket, model, override, copy, selection))

        if self._source is None or (override is not None and bool(override.directory)):
            read(None)
        else:
            self._source.fetch(ticket, model, read, is_patient=is_patient, is_poll=is_poll)
        return ticket

    def cancel_read(self, ticket: int) -> None:
        """Cancel a reading."""
        self._plan.forget(ticket)
        self._plan.enqueue(CancelReading(ticket))
        if self._source is not None:
            self._source.cancel_fetch(ticket)

    def phase(self, model: str) -> str:
        """Return the step that brings the model to this machine, in words, or ""."""
        return self._source.fetch_phase(model) if self._source is not None else ""

    def list_models(
        self,
        then: Callable[[RepositoryListing], None],
        *,
        is_patient: bool = False,
        is_urgent: bool = False,
    ) -> None:
        """Pass the names of all models to `then`, each with a problem or None.

        A problem holds for all versions of the model. Without patience, a repository that does not
        answer is left out, or has what it had when it was listed the last time.
        """
        listed = partial(self._list, then, (is_patient, is_urgent))
        if self._source is None:
            listed(())
        else:
            self._source.list_remote(listed)

    def _list(
        self,
        then: Callable[[RepositoryListing], None],
        patience: tuple[bool, bool],
        remote: RemoteListing,
    ) -> None:
        if isinstance(remote, ZmqTritonError):
            then(remote)
        else:
            self._plan.enqueue(ListRepository(self._plan.expect(then), remote, *patience))
