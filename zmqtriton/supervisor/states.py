"""The states of instances, generations and versions, as transition tables.

Each table has the next state for a state and an event. A pair that is not listed is an error with a
name, never ignored: an event that may come late and changes nothing is also listed. This file knows
no processes, no sockets and no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from zmqtriton_floor.errors import InternalError
from zmqtriton_floor.reasons import Kind, Reason


class InstanceState(str, Enum):
    """The state of a stub, or of the place that is kept for it."""

    STARTING = "STARTING"  # the process was requested
    LOADING = "LOADING"  # it runs: import, auto-completion, initialize
    READY = "READY"
    DRAINING = "DRAINING"  # takes no new requests
    STOPPING = "STOPPING"  # told to finish, or killed; not dead yet
    STOPPED = "STOPPED"
    BACKOFF = "BACKOFF"  # dead; waits to be started again
    FAILED = "FAILED"  # dead, and given up: tried again after a long pause, if at all


class GenerationState(str, Enum):
    """The state of one loading of one version."""

    LOADING = "LOADING"
    SERVING = "SERVING"
    DRAINING = "DRAINING"
    STOPPING = "STOPPING"
    ENDED = "ENDED"  # no process is left


class ModelState(str, Enum):
    """The state of a model's version, in the words of Triton's clients."""

    LOADING = "LOADING"
    READY = "READY"
    UNLOADING = "UNLOADING"
    UNAVAILABLE = "UNAVAILABLE"


#: Why a version is UNAVAILABLE or ended that was unloaded on request.
UNLOADED = Reason.of(Kind.UNLOADED, "unloaded")


class TransitionError(Exception):
    """Raised when an event is impossible in a state."""


class Event:
    """An event of an instance, a generation or a version."""


# ---------------------------------------------------------------- instances


class StartRequested(Event):
    """A process should start."""


@dataclass(frozen=True)
class ProcessStarted(Event):
    pid: int


@dataclass(frozen=True)
class InstanceConfigCompleted(Event):
    """The model was imported and has reported its configuration."""

    document: str


@dataclass(frozen=True)
class InstanceLoaded(Event):
    """`initialize` has returned."""

    #: The model defines is_ready.
    has_is_ready: bool = False
    #: Names of the modules of installed packages that it has imported, with blanks.
    modules: str = ""


@dataclass(frozen=True)
class InstanceLoadFailed(Event):
    """The stub reports why it cannot load; it will exit."""

    reason: Reason
    code: int = InternalError.number


@dataclass(frozen=True)
class KillRequested(Event):
    """The process hangs or is frozen, and is killed for this reason."""

    reason: Reason
    #: True if the process runs, so that Python can write its stack.
    can_dump_stack: bool = False


@dataclass(frozen=True)
class ProcessExited(Event):
    reason: Reason
    #: The last line of its output.
    last_output_line: str = ""
    #: Python's report of its own crash, and the place in the model.
    crash: str = ""
    #: True if the process has begun to execute at least one batch.
    had_begun: bool = False


class BackoffElapsed(Event):
    """The pause is over; the next stub may start."""


class RestartsExhausted(Event):
    """The process died too often, or before it was ever loaded."""


class DrainRequested(Event):
    """The broker sends the instance no new requests."""


class DrainFinished(Event):
    """Its last request is answered."""


class StopRequested(Event):
    """The instance must end now, whatever it is doing."""


_I = InstanceState
INSTANCE_TRANSITIONS: Mapping[tuple[InstanceState, type[Event]], InstanceState] = {
    (_I.STOPPED, StartRequested): _I.STARTING,
    (_I.STOPPED, StopRequested): _I.STOPPED,
    (_I.STARTING, ProcessStarted): _I.LOADING,
    # The template that it was to be forked from could not load the model.
    (_I.STARTING, InstanceLoadFailed): _I.STARTING,
    (_I.STARTING, ProcessExited): _I.BACKOFF,
    (_I.STARTING, StopRequested): _I.STOPPING,
    (_I.LOADING, InstanceConfigCompleted): _I.LOADING,
    (_I.LOADING, InstanceLoaded): _I.READY,
    (_I.LOADING, InstanceLoadFailed): _I.LOADING,
    (_I.LOADING, KillRequested): _I.LOADING,
    (_I.LOADING, ProcessExited): _I.BACKOFF,
    (_I.LOADING, StopRequested): _I.STOPPING,
    (_I.READY, KillRequested): _I.READY,
    (_I.READY, ProcessExited): _I.BACKOFF,
    (_I.READY, DrainRequested): _I.DRAINING,
    # It has come up for what waited while its generation drains.
    (_I.READY, DrainFinished): _I.STOPPING,
    (_I.READY, StopRequested): _I.STOPPING,
    (_I.DRAINING, KillRequested): _I.DRAINING,
    (_I.DRAINING, DrainFinished): _I.STOPPING,
    (_I.DRAINING, ProcessExited): _I.STOPPED,
    (_I.DRAINING, StopRequested): _I.STOPPING,
    (_I.STOPPING, ProcessExited): _I.STOPPED,
    (_I.STOPPING, StopRequested): _I.STOPPING,
    # Events of a process that had not heard yet that it must stop.
    (_I.STOPPING, ProcessStarted): _I.STOPPING,
    (_I.STOPPING, InstanceConfigCompleted): _I.STOPPING,
    (_I.STOPPING, InstanceLoaded): _I.STOPPING,
    (_I.STOPPING, InstanceLoadFailed): _I.STOPPING,
    (_I.STOPPING, KillRequested): _I.STOPPING,
    (_I.BACKOFF, BackoffElapsed): _I.STARTING,
    (_I.BACKOFF, RestartsExhausted): _I.FAILED,
    (_I.BACKOFF, StopRequested): _I.STOPPED,
    (_I.FAILED, BackoffElapsed): _I.STARTING,
    (_I.FAILED, StopRequested): _I.STOPPED,
}

#: States of an instance that has a process, or has requested one.
ALIVE_STATES = frozenset({_I.STARTING, _I.LOADING, _I.READY, _I.DRAINING, _I.STOPPING})
#: States of an instance that has none, and will have none soon.
OVER_STATES = frozenset({_I.STOPPED, _I.FAILED})


# -------------------------------------------------------------- generations


class AllInstancesLoaded(Event):
    """Every instance is ready for the first time."""


class RetireRequested(Event):
    """The generation accepts no more requests, and ends when the last one is answered."""


class NothingOutstanding(Event):
    """The broker has answered the last request."""


class AbortRequested(Event):
    """The generation must end now; the requests that it executes fail."""


class LastProcessExited(Event):
    """None of the instances has a process any more, and none will."""


_G = GenerationState
GENERATION_TRANSITIONS: Mapping[tuple[GenerationState, type[Event]], GenerationState] = {
    (_G.LOADING, AllInstancesLoaded): _G.SERVING,
    (_G.LOADING, AbortRequested): _G.STOPPING,
    (_G.SERVING, RetireRequested): _G.DRAINING,
    (_G.SERVING, AbortRequested): _G.STOPPING,
    (_G.DRAINING, NothingOutstanding): _G.STOPPING,
    (_G.DRAINING, RetireRequested): _G.DRAINING,
    (_G.DRAINING, AbortRequested): _G.STOPPING,
    (_G.STOPPING, AbortRequested): _G.STOPPING,
    (_G.STOPPING, RetireRequested): _G.STOPPING,
    # It was given up while the broker was still draining it.
    (_G.STOPPING, NothingOutstanding): _G.STOPPING,
    (_G.STOPPING, LastProcessExited): _G.ENDED,
    (_G.ENDED, AbortRequested): _G.ENDED,
    (_G.ENDED, RetireRequested): _G.ENDED,
    (_G.ENDED, NothingOutstanding): _G.ENDED,
}


# ----------------------------------------------------------------- versions


class LoadStarted(Event):
    """A new generation is being loaded."""


class GenerationServing(Event):
    """The broker and every frontend know the new generation."""


class GenerationFailed(Event):
    """The new generation could not be loaded."""


class GenerationGivenUp(Event):
    """Every instance of the serving generation has failed."""


class UnloadStarted(Event):
    """The version is unloaded: new requests for it are refused."""


class UnloadFinished(Event):
    """The last process of the version has ended."""


_M = ModelState
MODEL_TRANSITIONS: Mapping[tuple[ModelState, type[Event]], ModelState] = {
    (_M.UNAVAILABLE, LoadStarted): _M.LOADING,
    (_M.UNAVAILABLE, UnloadStarted): _M.UNAVAILABLE,
    # The serving generation was given up while its replacement was being loaded, or has come back.
    (_M.UNAVAILABLE, GenerationServing): _M.READY,
    (_M.UNAVAILABLE, GenerationFailed): _M.UNAVAILABLE,
    # An instance of it was tried again, in vain.
    (_M.UNAVAILABLE, GenerationGivenUp): _M.UNAVAILABLE,
    (_M.LOADING, GenerationServing): _M.READY,
    (_M.LOADING, GenerationFailed): _M.UNAVAILABLE,
    (_M.LOADING, UnloadStarted): _M.UNLOADING,
    # A reload: what serves goes on until the new one does, and stays if that fails.
    (_M.READY, LoadStarted): _M.READY,
    (_M.READY, GenerationServing): _M.READY,
    (_M.READY, GenerationFailed): _M.READY,
    (_M.READY, GenerationGivenUp): _M.UNAVAILABLE,
    (_M.READY, UnloadStarted): _M.UNLOADING,
    # Requests of the old generation may take minutes; nobody waits for them.
    (_M.UNLOADING, LoadStarted): _M.LOADING,
    (_M.UNLOADING, UnloadStarted): _M.UNLOADING,
    (_M.UNLOADING, UnloadFinished): _M.UNAVAILABLE,
}


State = TypeVar("State", InstanceState, GenerationState, ModelState)


def next_state(
    table: Mapping[tuple[State, type[Event]], State], state: State, event: Event, whose: str
) -> State:
    """Return the next state. Raises TransitionError with the owner, the state and the event."""
    following = table.get((state, type(event)))
    if following is None:
        raise TransitionError(f"{whose}: {type(event).__name__} in state {state.value}")
    return following
