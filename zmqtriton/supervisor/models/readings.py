"""Readings of models, and listings of repositories, for loads, commands and features.

Models that are not on this machine come from a source, which makes copies to be read; without a
source, every reading and listing passes straight on. Does no I/O.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

from zmqtriton.reading.blueprint import Blueprint, FileSource, LoadOverride, ReadFailure
from zmqtriton.repository.scan import NO_EXCEPTIONS, VersionSelection
from zmqtriton.supervisor.actions import (
    CancelReading,
    ListRepository,
    LocalCopy,
    ReadModel,
    RemoteNames,
    RepositoryNames,
)
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.story import Promise
from zmqtriton_floor.errors import InternalError


class ModelSource(Protocol):
    """Brings models to this machine."""

    async def fetch(
        self, ticket: int, model: str, *, is_patient: bool, is_poll: bool
    ) -> LocalCopy | None:
        """Copy a model; None if the source does not have it."""

    async def complete(self, ticket: int, model: str, source: FileSource) -> LocalCopy:
        """Copy a model whose own directory has only some of its files."""

    def cancel_fetch(self, ticket: int) -> None:
        """Cancel the reading with this ticket."""

    def fetch_phase(self, model: str) -> str:
        """Return the step of the model's copy, in words, or ""."""

    async def list_remote(self) -> RemoteNames:
        """Return the source's models. Raises ZmqTritonError."""


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
    ) -> RepositoryNames:
        """Return the names of all models, each with a problem or None.

        A problem applies to all versions of the model. Without patience, a repository that does not
        answer is left out, or its last listing is used. Raises ZmqTritonError.
        """
        remote = await self._source.list_remote() if self._source is not None else ()
        listing: RepositoryNames = await self._plan.ask(
            partial(
                ListRepository, remote_models=remote, is_patient=is_patient, is_urgent=is_urgent
            )
        )
        return listing
