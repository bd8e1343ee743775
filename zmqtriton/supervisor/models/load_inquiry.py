"""What a load begins with: what there is, whether that is new, and what has to be loaded before.

Belongs to a load, which it tells what to build, or that nothing is to be done. Does no I/O.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple, Protocol

from zmqtriton.supervisor.actions import Override
from zmqtriton.supervisor.models.blueprint import Blueprint, Ensemble, Finished, Unreadable
from zmqtriton.supervisor.models.context import ModelContext
from zmqtriton.supervisor.models.protocols import Loader
from zmqtriton_floor.errors import InternalError, ZmqTritonError


class LoadRequest(NamedTuple):
    """How a load was asked for."""

    #: What stands in for what is on disk.
    override: Override | None = None
    #: A poll does not try again what has failed and has not changed.
    is_poll: bool = False
    #: What is new is loaded when it has been the same for so long: it may be half a copy.
    settle_s: float = 0.0
    #: Members of an ensemble that have failed are tried again.
    again: bool = False


class Load(Protocol):
    """Has the slot, and hears one of these, unless it cancels."""

    def build(self, blueprint: Blueprint, combined: Finished | ZmqTritonError | None) -> None:
        """There is something to load; for an ensemble with its configuration, or why it cannot be
        served."""

    def end(self, error: ZmqTritonError | None) -> None:
        """There is nothing to do, or nothing that could be loaded."""


class LoadInquiry:
    def __init__(
        self, model: Loader, around: ModelContext, wanted: LoadRequest, load: Load
    ) -> None:
        self._model = model
        self._around = around
        self._wanted = wanted
        self._load = load
        #: What was there at the last look.
        self._seen = ""
        #: The ticket of the reading that it waits for, or 0.
        self._reading = 0
        self._is_cancelled = False

    def begin(self) -> None:
        self._around.slots.take(self._load, self._read)

    def cancel(self) -> None:
        """Nobody wants to know any more."""
        self._is_cancelled = True
        self._around.stores.abandon(self._reading)

    def _read(self) -> None:
        wanted = self._wanted
        self._reading = self._around.stores.read(
            self._model.name,
            wanted.override,
            self._have_read,
            # Who asks for a load says that all is there.
            is_patient=not wanted.again,
            is_poll=wanted.is_poll,
        )

    def _have_read(self, found: Blueprint | Unreadable) -> None:
        if self._is_unsettled(found.fingerprint):
            self._around.slots.give_back(self._load)
            self._around.plan.after(self._wanted.settle_s, self._look_again)
            return
        # What was not there has no fingerprint.
        is_known = self._wanted.is_poll and bool(found.fingerprint)
        was_tried = is_known and self._model.was_tried(found.fingerprint)
        if isinstance(found, Blueprint) and found.ensemble is not None:
            # What it lacked may be there now.
            self._require_members(found, found.ensemble, was_tried=was_tried)
        elif was_tried:
            self._load.end(None)
        elif isinstance(found, Unreadable):
            self._model.take_unreadable(found)
            text = f"failed to load '{self._model.name}', failed to poll from model repository"
            if found.fingerprint:
                text += f": {found.reason}"
            self._load.end(InternalError(text))
        elif self._model.is_current(found, self._wanted.override):
            self._model.take_current(found)
            self._load.end(None)
        else:
            self._require_callees(found)

    def _is_unsettled(self, fingerprint: str) -> bool:
        seen, self._seen = self._seen, fingerprint
        is_new = fingerprint not in ("", seen) and not self._model.was_tried(fingerprint)
        return is_new and self._wanted.settle_s > 0

    def _look_again(self) -> None:
        if not self._is_cancelled:
            self.begin()

    # ------------------------------------------------- what is loaded before

    def _require_callees(self, blueprint: Blueprint) -> None:
        """Those that it names are loaded first; whether they can be is not its concern."""
        self._model.take_needs(blueprint)
        if not blueprint.callees:
            self._load.build(blueprint, None)
            return
        around = self._around
        around.slots.give_back(self._load)
        then = partial(self._callees_tried, blueprint)
        order, again = around.load_order, self._wanted.again
        order.require(blueprint.name, blueprint.callees, then, again=again)

    def _callees_tried(self, blueprint: Blueprint) -> None:
        if not self._is_cancelled:
            build = partial(self._load.build, blueprint, None)
            self._around.slots.take(self._load, build)

    def _require_members(
        self, blueprint: Blueprint, ensemble: Ensemble, *, was_tried: bool
    ) -> None:
        """An ensemble is loaded after what it calls, which may need the slot."""
        around = self._around
        around.slots.give_back(self._load)
        self._model.take_needs(blueprint)
        try:
            around.members.check_circle(blueprint.name)
        except ZmqTritonError as error:
            self._load.build(blueprint, error)
        else:
            then = partial(self._members_tried, blueprint, was_tried=was_tried)
            around.members.require(ensemble, then, again=self._wanted.again)

    def _members_tried(self, blueprint: Blueprint, *, was_tried: bool) -> None:
        if self._is_cancelled:
            return
        is_same = was_tried
        combined: Finished | ZmqTritonError
        try:
            combined = self._around.members.finish(blueprint)
            is_same = self._model.is_current(blueprint, self._wanted.override)
        except ZmqTritonError as error:
            combined = error
        if is_same:
            self._load.end(None)
        else:
            self._load.build(blueprint, combined)
