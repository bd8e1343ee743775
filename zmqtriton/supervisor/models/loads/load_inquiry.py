"""The first part of a load: the model's files, whether they are new, and earlier loads.

Belongs to a load, which it tells what to build, or that there is nothing to do. Does no I/O.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import NamedTuple, Protocol

from zmqtriton.supervisor import states
from zmqtriton.supervisor.actions import LoadOverride
from zmqtriton.supervisor.models.blueprint import (
    Blueprint,
    EnsembleBlueprint,
    FinalConfig,
    ReadFailure,
    Scale,
)
from zmqtriton.supervisor.models.context import ModelContext
from zmqtriton.supervisor.models.loads.protocols import LoadTarget
from zmqtriton_floor.errors import InternalError, Unavailable, ZmqTritonError

#: What it waits for, in words.
WAITS_FOR_OTHERS = "it waits until others are loaded"
_READS = "its files are read"
_LOADS_CALLED = "the models that it calls are loaded first"
#: Behind Triton's text, which has no reason.
_NOT_THERE = ". No model repository has a directory of this name"


class LoadRequest(NamedTuple):
    """The request for a load, as it was made."""

    #: Used in place of what is on disk.
    override: LoadOverride | None = None
    #: A poll does not retry what has failed and has not changed.
    is_poll: bool = False
    #: New files are loaded once they have not changed for this long: they may be half a copy.
    settle_s: float = 0.0
    #: Failed members of an ensemble are retried.
    retry_failed_members: bool = False
    #: What serves gets so many instances; nothing is read.
    scale: Scale | None = None


class InquiryListener(Protocol):
    """Has a load slot and hears one of these results, unless it cancels."""

    def build(self, blueprint: Blueprint, combined: FinalConfig | ZmqTritonError | None) -> None:
        """There is something to load.

        An ensemble comes with its configuration, or why it has none.
        """

    def end(self, error: ZmqTritonError | None) -> None:
        """There is nothing to do, or nothing that could be loaded."""


class LoadInquiry:
    def __init__(
        self, model: LoadTarget, around: ModelContext, request: LoadRequest, load: InquiryListener
    ) -> None:
        self._model = model
        self._context = around
        self._request = request
        self._listener = load
        #: The fingerprint at the last look.
        self._seen = ""
        #: The ticket of the pending reading, or 0.
        self._reading = 0
        self._is_cancelled = False
        self._phase = WAITS_FOR_OTHERS

    @property
    def phase(self) -> str:
        """The phase that it is in, in words: what it waits for."""
        return self._context.readings.phase(self._model.name) or self._phase

    def begin(self) -> None:
        is_scaled = self._request.scale is not None
        then = self._scale_what_serves if is_scaled else self._read
        self._context.load_slots.acquire(self._listener, then)

    def cancel(self) -> None:
        """Cancel the inquiry."""
        self._is_cancelled = True
        self._context.readings.cancel_read(self._reading)

    def _scale_what_serves(self) -> None:
        """Have it built with another number of instances."""
        assert self._request.scale is not None
        serving = {n: v.generation for n, v in self._model.versions.items() if v.is_serving}
        newest = serving[max(serving)] if serving else None
        if newest is None:
            name = self._model.name
            self._listener.end(Unavailable(f"model '{name}' is not loaded, so it cannot be scaled"))
            return
        try:
            blueprint = newest.blueprint.scaled(self._request.scale)
        except ZmqTritonError as error:
            self._listener.end(error)
        else:
            versions = {n: v for n, v in blueprint.versions.items() if n in serving}
            # what was said of it when it was loaded need not be said again
            base = replace(blueprint, warnings=(), completed_config_text="")
            self._listener.build(replace(base, versions=versions), None)

    def _read(self) -> None:
        self._phase = _READS
        request = self._request
        self._reading = self._context.readings.request_read(
            self._model.name,
            request.override,
            self._have_read,
            # whoever asks for a load has put everything in place
            is_patient=not request.retry_failed_members,
            is_poll=request.is_poll,
            selection=self._model.selection,
        )

    def _have_read(self, reading: Blueprint | ReadFailure) -> None:
        if isinstance(reading, Blueprint):
            reading = self._model.history.keep_scale(reading)
        if self._is_unsettled(reading.fingerprint):
            self._context.load_slots.release(self._listener)
            self._context.plan.call_later(self._request.settle_s, self._read_again)
            return
        # what was not there has no fingerprint
        is_known = self._request.is_poll and bool(reading.fingerprint)
        was_tried = is_known and self._model.history.was_attempted(reading.fingerprint)
        if isinstance(reading, Blueprint) and reading.ensemble is not None:
            # a member that was missing may be there now
            self._require_members(reading, reading.ensemble, was_tried=was_tried)
        elif was_tried:
            self._model.history.record_tried()
            self._listener.end(None)
        elif isinstance(reading, ReadFailure):
            self._record_read_failure(reading)
            text = f"failed to load '{self._model.name}', failed to poll from model repository"
            text += f": {reading.reason.text}" if reading.fingerprint else _NOT_THERE
            self._listener.end(InternalError(text))
        elif self._is_current(reading):
            self._model.history.record_unchanged(reading)
            for number in reading.versions:
                self._model.versions[number].transition(states.GenerationServing())
            self._tell_unchanged(reading)
            self._listener.end(None)
        else:
            self._require_callees(reading)

    def _is_current(self, blueprint: Blueprint) -> bool:
        model = self._model
        return model.history.is_current(blueprint, self._request.override, model.versions)

    def _tell_unchanged(self, blueprint: Blueprint) -> None:
        """Say that a load has nothing to do; polls, which are many, do not say so."""
        if not self._request.is_poll:
            name = blueprint.name
            text = f"'{name}' has not changed since it was loaded; it serves on as it is"
            self._context.plan.log("I", text, model=name)

    def _record_read_failure(self, failure: ReadFailure) -> None:
        self._model.history.record_read_failure(failure)
        text = failure.reason.text
        if not failure.is_duplicate and failure.fingerprint:
            text = f"Poll failed for model directory '{self._model.name}': {text}"
        self._context.plan.log("E", text, model=self._model.name)

    def _is_unsettled(self, fingerprint: str) -> bool:
        seen, self._seen = self._seen, fingerprint
        is_new = fingerprint not in ("", seen) and not self._model.history.was_attempted(
            fingerprint
        )
        return is_new and self._request.settle_s > 0

    def _read_again(self) -> None:
        if not self._is_cancelled:
            self.begin()

    # ------------------------------------------------- what is loaded before

    def _record_dependencies(self, blueprint: Blueprint) -> None:
        self._phase = _LOADS_CALLED
        self._model.history.record_dependencies(blueprint)
        self._context.load_order.break_wait_cycles(self._model.name)

    def _require_callees(self, blueprint: Blueprint) -> None:
        """Load the models that it names first, whether or not they can be loaded."""
        self._record_dependencies(blueprint)
        if not blueprint.callees:
            self._listener.build(blueprint, None)
            return
        around = self._context
        around.load_slots.release(self._listener)
        then = partial(self._callees_tried, blueprint)
        order, again = around.load_order, self._request.retry_failed_members
        order.load_callees(blueprint.name, blueprint.callees, then, again=again)

    def _callees_tried(self, blueprint: Blueprint) -> None:
        if not self._is_cancelled:
            build = partial(self._listener.build, blueprint, None)
            self._context.load_slots.acquire(self._listener, build)

    def _require_members(
        self, blueprint: Blueprint, ensemble: EnsembleBlueprint, *, was_tried: bool
    ) -> None:
        """Load an ensemble's members first; they may need the slot."""
        around = self._context
        around.load_slots.release(self._listener)
        self._record_dependencies(blueprint)
        try:
            around.ensemble_members.check_acyclic(blueprint.name)
        except ZmqTritonError as error:
            self._listener.build(blueprint, error)
        else:
            then = partial(self._members_tried, blueprint, was_tried=was_tried)
            around.ensemble_members.load_members(
                ensemble, then, again=self._request.retry_failed_members
            )

    def _members_tried(self, blueprint: Blueprint, *, was_tried: bool) -> None:
        if self._is_cancelled:
            return
        is_same = was_tried
        combined: FinalConfig | ZmqTritonError
        try:
            combined = self._context.ensemble_members.finalize_config(blueprint)
            is_same = self._is_current(blueprint)
        except ZmqTritonError as error:
            combined = error
        if is_same:
            self._model.history.record_tried()
            self._listener.end(None)
        else:
            self._listener.build(blueprint, combined)
