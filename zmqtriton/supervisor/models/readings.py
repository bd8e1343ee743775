"""The readings of models and the listings of repositories, each answered once. Does no I/O.

Models that are not on this machine come from a source, which makes copies that are read; without
one, every reading and listing passes straight on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from zmqtriton.repository.scan import NO_EXCEPTIONS, VersionSelection
from zmqtriton.supervisor.actions import (
    CancelReading,
    ListRepository,
    LoadOverride,
    LocalCopy,
    ReadModel,
    RemoteListing,
    RepositoryListing,
)
from zmqtriton.supervisor.models.blueprint import Blueprint, ReadFailure
from zmqtriton.supervisor.plan import Plan
from zmqtriton_floor.errors import ZmqTritonError


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
        ticket = self._plan.expect(then)

        def read(copy: LocalCopy | None) -> None:
            self._plan.enqueue(ReadModel(ticket, model, override, copy, selection))

        has_files = override is not None and bool(override.directory)
        if self._source is None or has_files:
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
            ticket = self._plan.expect(then)
            self._plan.enqueue(ListRepository(ticket, remote, *patience))
