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
from functools import partial
from typing import Any, NamedTuple, Protocol

from zmqtriton.environments.demand import SERVER_ENVIRONMENT, Environment, EnvironmentSpec
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
from zmqtriton.supervisor.story import Promise, tell
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InternalError, ZmqTritonError, from_number
from zmqtriton_floor.reasons import Kind, Reason

_ROLE = "environment"
#: Maximum seconds for a cancelled preparation to clean up; the next one removes the rest.
_REMOVED_WITHIN_S = 30.0


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
    outcome: Promise[Environment | ZmqTritonError]
    status: PreparationStatus


class EnvironmentPreparations(HelperOwner):
    def __init__(self, plan: Plan, introductions: Introductions) -> None:
        self._plan = plan
        self._introductions = introductions
        self._waiting: dict[int, _Preparation] = {}
        self._processes: dict[int, dict[str, Any]] = {}

    async def prepare(self, model: str, demand: EnvironmentSpec) -> Environment | ZmqTritonError:
        """Return the environment for a load, or the error that prevents it."""
        serial = self._plan.new_serial()
        status = PreparationStatus(model, self._plan.now_s, f"preparing {demand}")
        outcome = Promise[Environment | ZmqTritonError]()
        self._waiting[serial] = _Preparation(model, demand, outcome, status)
        self._plan.enqueue(PrepareEnvironment(serial, model, demand))
        try:
            return await outcome
        except GeneratorExit:  # the load is cancelled
            self._cancel(serial)
            raise

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
            tell(self._let_begin(serial, demand, pid))

    async def _let_begin(self, serial: int, demand: EnvironmentSpec, pid: int) -> None:
        """Let the process begin; what it starts from now on ends with the server."""
        await self._introductions.guard_process_group(serial, _ROLE, demand.kind, pid)
        if serial in self._waiting:
            self._plan.enqueue(Send(serial, wire.Call(0, "prepare", "{}")))

    def describe_processes(self) -> list[dict[str, Any]]:
        """Describe the processes, for the status."""
        return list(self._processes.values())

    def describe_preparations(self) -> list[dict[str, Any]]:
        """Describe how far each is, for the status."""
        return [each.status.describe(self._plan.now_s) for each in self._waiting.values()]

    def phase(self, model: str) -> str:
        """Return the present step of the preparation for a model, in words; "" without one."""
        phases = (each.status.phase for each in self._waiting.values() if each.model == model)
        return next(phases, "")

    def give_up(self, model: str) -> None:
        """Go on without the environment that is prepared for a model: nothing needs it."""
        for serial in [s for s, each in self._waiting.items() if each.model == model]:
            self._cancel(serial).outcome(SERVER_ENVIRONMENT)

    def _cancel(self, serial: int) -> _Preparation:
        """Cancel a preparation: its process removes the incomplete environment and ends."""
        self._plan.enqueue(Signal(serial, int(signal.SIGTERM), group=True))
        kill = Signal(serial, int(signal.SIGKILL), group=True)
        self._plan.call_later(_REMOVED_WITHIN_S, lambda: self._plan.enqueue(kill))
        return self._waiting.pop(serial)

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
        outcome = self._waiting.pop(serial).outcome
        if answer.code:
            outcome(from_number(answer.code, answer.text, answer.reason))
        else:
            outcome(Environment(*json.loads(answer.result)))
        return True

    def process_ended(self, serial: int, reason: Reason, last_words: str) -> None:
        """Take note that the process is dead; it may have answered."""
        if self._processes.pop(serial, None) is not None:
            self._introductions.report_death(serial, reason.text)
        if serial not in self._waiting:
            return
        _, demand, outcome, _ = self._waiting.pop(serial)
        words = f": {last_words}" if last_words else ""
        problem = f"{demand} cannot be prepared ({reason.text}){words}"
        outcome(InternalError(problem).because(Kind.ENVIRONMENT_FAILED, reason, problem=problem))


class ModelSource(Protocol):
    """Brings models to this machine."""

    async def fetch(
        self, ticket: int, model: str, *, is_patient: bool, is_poll: bool
    ) -> LocalCopy | None:
        """Copy a model; None if the source cannot have it."""

    async def complete(self, ticket: int, model: str, source: FileSource) -> LocalCopy:
        """Copy a model whose own directory has only some of its files."""

    def cancel_fetch(self, ticket: int) -> None:
        """Cancel the reading with this ticket."""

    def fetch_phase(self, model: str) -> str:
        """Return the step of the model's copy, in words, or ""."""

    async def list_remote(self) -> RemoteListing:
        """Return the source's models."""


class ModelReadings:
    def __init__(self, plan: Plan, source: ModelSource | None) -> None:
        self._plan = plan
        self._source = source

    async def read(
        self,
        model: str,
        override: LoadOverride | None,
        *,
        is_patient: bool,
        is_poll: bool,
        selection: VersionSelection = NO_EXCEPTIONS,
    ) -> Blueprint | ReadFailure:
        """Read a model, now or when it is on this machine."""
        plan, source, ticket = self._plan, self._source, self._plan.new_ticket()

        def read(copy: LocalCopy | None) -> Promise[Blueprint | ReadFailure]:
            return plan.ask(lambda _: ReadModel(ticket, model, override, copy, selection), ticket)

        try:
            if source is None or (override is not None and bool(override.directory)):
                return await read(None)
            fetched = source.fetch(ticket, model, is_patient=is_patient, is_poll=is_poll)
            reading = await read(await fetched)
            if isinstance(reading, Blueprint) or reading.source is None:
                return reading
            copy = await source.complete(ticket, model, reading.source)
            if copy.problem:
                return ReadFailure(InternalError(copy.problem).reason, copy.digest)
            return await read(copy)
        except GeneratorExit:  # the load is cancelled
            plan.forget(ticket)
            plan.enqueue(CancelReading(ticket))
            if source is not None:
                source.cancel_fetch(ticket)
            raise

    def phase(self, model: str) -> str:
        """Return the step that brings the model to this machine, in words, or ""."""
        return self._source.fetch_phase(model) if self._source is not None else ""

    async def list_models(
        self, *, is_patient: bool = False, is_urgent: bool = False
    ) -> RepositoryListing:
        """Return the names of all models, each with a problem or None.

        A problem holds for all versions of the model. Without patience, a repository that does not
        answer is left out, or has what it had when it was listed the last time.
        """
        remote: RemoteListing = ()
        if self._source is not None:
            remote = await self._source.list_remote()
        if isinstance(remote, ZmqTritonError):
            return remote
        make = partial(
            ListRepository, remote_models=remote, is_patient=is_patient, is_urgent=is_urgent
        )
        listing: RepositoryListing = await self._plan.ask(make)
        return listing
