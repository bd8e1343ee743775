"""One instance of a model: its current stub, and the time when the next one is started.

Its generation sends it events and reads its state; only `handle` writes the state. The first
time a dead stub is replaced at once, later after growing pauses. An instance whose stubs have died
too often is given up: from then on it is tried once in a while. Does no I/O and does not interpret
the configuration.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable
from typing import Any, Protocol

from zmqtriton.environments.demand import Environment
from zmqtriton.reading.blueprint import Blueprint, InstanceSlot
from zmqtriton.supervisor import states
from zmqtriton.supervisor.actions import Assignment, GiveUpThread, Send, Signal, SpawnStub, Template
from zmqtriton.supervisor.backoff import MAX_DEATHS, PROVEN_AFTER_S, Backoff
from zmqtriton.supervisor.finalize_turns import FinalizeTurns
from zmqtriton.supervisor.plan import Plan, PlanTimer
from zmqtriton.supervisor.states import ALIVE_STATES, OVER_STATES, InstanceState
from zmqtriton_floor import wire
from zmqtriton_floor.errors import (
    InternalError,
    InvalidArgument,
    NotFound,
    Unavailable,
    Unsupported,
    ZmqTritonError,
    from_number,
)
from zmqtriton_floor.reasons import Kind, Reason

_WORDS = {
    InternalError.code: "Internal",
    InvalidArgument.code: "Invalid argument",
    NotFound.code: "Not found",
    Unavailable.code: "Unavailable",
    Unsupported.code: "Unsupported",
}
#: A model's traceback may be long; the log has all of it.
MAX_REASON = 4096


def describe_error(error: ZmqTritonError) -> Reason:
    """Return the reason as tables, the index and the log show it."""
    word = _WORDS.get(from_number(error.number, "").code, "Internal")
    return error.reason._replace(text=f"{word}: {shorten(error.text)}")


def shorten(text: str) -> str:
    """Shorten a text at its front: at the end Python names the error."""
    return text if len(text) <= MAX_REASON else "..." + text[-MAX_REASON + 3 :]


#: Limits for `finalize`, and for the exit of a stub that has announced it.
FINALIZE_WITHIN_S = 10.0
EXIT_WITHIN_S = 2.0
#: Time that a stub has to write its stack before it is killed.
ABORT_WITHIN_S = 1.0
NO_GROWTH = wire.MemoryGrowth(0, 0, 0)


_EXCEPTION_TYPES = {**dict.fromkeys(Kind.EXCEPTION.values, str), "line": int}


class ProcessLost(InternalError):
    """Raised when a process ended without giving a reason, so that the next one may succeed."""


class InstanceOwner(Protocol):
    """The generation of an instance, as that needs it."""

    blueprint: Blueprint
    version: int
    environment: Environment

    @property
    def finalize_turns(self) -> FinalizeTurns: ...

    def handle(self, instance: StubPlace, event: states.Event) -> None:
        """Take an event of the instance, such as the end of a pause."""

    def choose_template(self, assignment: Assignment) -> Template | None:
        """Return the origin of the next stub; None if that loads by itself."""

    def choose_spare(self, slot: InstanceSlot, assignment: Assignment) -> int:
        """Return the serial of the spare process that forks the next stub; 0 without one."""

    def place(self, instance: StubPlace) -> Assignment:
        """Return the cores and the variables of an instance that starts."""


class StubPlace:
    """A place for a stub. Its timers report through its generation."""

    #: The steady growth of its memory, as its process reports it.
    growth = NO_GROWTH
    #: Names of the modules of installed packages that its first stub has imported, with blanks,
    #: until a feature takes them.
    modules = ""
    #: The differences between its model's code and configuration, likewise.
    mismatches: tuple[str, ...] = ()

    def __init__(self, plan: Plan, place: InstanceSlot, owner: InstanceOwner) -> None:
        self.slot = place
        self.state = InstanceState.STOPPED
        #: Reason of the last death; its text includes the place in the model.
        self.death_reason: Reason | None = None
        #: Short form of the reason of death, for clients whose requests the instance had.
        self.death_summary = ""
        self.serial = 0
        self.pid = 0
        #: Pid of the process that died last.
        self.last_pid = 0
        #: Stubs that were started in place of dead ones.
        self.restarts = 0
        #: The error number of the stub's own report of why it could not load; 0 without one.
        self.failure_code = 0
        #: False until it was loaded once: if a first load fails, the whole load fails.
        self.can_restart = False
        #: True if its model defines is_ready.
        self.has_is_ready = False
        #: True if its generation continues without it.
        self.is_being_removed = False
        self._plan, self._owner = plan, owner
        self._backoff = Backoff()
        #: Number of deaths before and since it was given up; 0 if it is not given up.
        self._deaths_when_given_up = 0
        self._stated_reason: Reason | None = None
        #: The origin of its stub, if that does not load by itself.
        self._template: Template | None = None
        self._was_stack_requested = False
        self._timer: PlanTimer | None = None
        self._ready_at_s = math.inf
        #: True once the broker has reported that its first execution has ended.
        self.has_executed = False
        #: True if it has sent an invalid event, which was logged.
        self.has_sent_invalid_event = False

    @property
    def name(self) -> str:
        return self.slot.name

    @property
    def model(self) -> str:
        return self._owner.blueprint.name

    @property
    def version(self) -> int:
        return self._owner.version

    @property
    def is_alive(self) -> bool:
        return self.state in ALIVE_STATES

    @property
    def is_given_up(self) -> bool:
        """True if it has died too often and not worked since, even if it is being tried now."""
        return self.state is InstanceState.FAILED or self._deaths_when_given_up > 0

    @property
    def retry_after_s(self) -> float:
        """Return the pause before each further try once it is given up; 0 without further tries."""
        return max(0.0, self._owner.blueprint.retry_after_s) if self.can_restart else 0.0

    @property
    def recent_deaths(self) -> int:
        return self._deaths_when_given_up or self._backoff.consecutive_deaths

    def load_failure(self, suffix: str = "") -> ZmqTritonError:
        """Return why the instance could not be loaded; the suffix is added to the text."""
        death = self.death_reason
        why = death.text if death else ""
        if self.failure_code:
            return from_number(self.failure_code, f"{why}{suffix}", death)
        return ProcessLost(f"Stub process '{self.name}' is not healthy. ({why}){suffix}").because(
            Kind.STUB_LOST, death, instance=self.name
        )

    def record_finding(self, message: wire.MemoryGrowth | wire.Mismatch) -> None:
        """Record what its process has found out about its model."""
        if isinstance(message, wire.MemoryGrowth):
            self.growth = message
        else:
            self.mismatches = (*self.mismatches, message.text)[: wire.MAX_MISMATCHES]

    def drained(self) -> None:
        """Handle the broker's report of its last answer."""
        if self.state is InstanceState.DRAINING:
            self.handle(states.DrainFinished())

    def handle(self, event: states.Event) -> None:
        """Handle an event: change the state by the table, and act on the new state."""
        following = states.next_state(
            states.INSTANCE_TRANSITIONS, self.state, event, f"instance '{self.name}'"
        )
        if isinstance(event, states.ProcessExited):
            self.death_reason = self._explain_exit(event)
        if following is not self.state and self._timer is not None:
            self._timer.cancel()
        self.state = following
        act = _ACTS.get(type(event))
        if act is not None:
            act(self, event)

    def _explain_exit(self, exited: states.ProcessExited) -> Reason:
        """Return the reason why the process ended.

        Its own report, or the reason of its kill, has precedence.
        """
        verdict, self._stated_reason = self._stated_reason, None
        # while it serves, its last line is about something else
        words = exited.last_output_line if self.state is InstanceState.LOADING else exited.crash
        reason = verdict or exited.reason
        self.death_summary = reason.text
        if not words or (verdict and not self._was_stack_requested):
            return reason
        values = {**reason.values, "output": words}
        return reason._replace(text=f"{reason.text}: {words}", values=values)

    # ------------------------------------------------- what follows an event

    def _start(self, event: states.Event) -> None:
        self.serial = self._plan.new_serial()
        self._was_stack_requested = False
        self.failure_code = 0
        self._ready_at_s = math.inf
        self.has_executed = False
        self.growth, self.mismatches = NO_GROWTH, ()
        if isinstance(event, states.BackoffElapsed):
            self.restarts += 1
        where = f"{self.name} ({self.slot.kind} device {self.slot.device})"
        self._plan.log("I", f"TRITONBACKEND_ModelInstanceInitialize: {where}")
        owner, blueprint = self._owner, self._owner.blueprint
        artifact = blueprint.versions[self.version].path.rpartition("/")[2]
        where = _device_of(self.slot)
        self._plan.log("V", f"Creating instance {self.name} on {where} using artifact '{artifact}'")
        assignment = owner.place(self)
        template = self._template = owner.choose_template(assignment)
        self._plan.enqueue(
            SpawnStub(
                self.serial,
                owner.environment,
                blueprint.name,
                self.name,
                self.slot.host_policy,
                blueprint.quota,
                owner.version,
                template,
                template.spare if template else owner.choose_spare(self.slot, assignment),
                assignment,
            )
        )

    def _on_process_started(self, event: states.ProcessStarted) -> None:
        self.pid = event.pid
        if self.state is InstanceState.STOPPING:
            self._end()
        elif self._owner.blueprint.max_load_s:
            self._limit_load()

    def _limit_load(self) -> None:
        limit_s = self._owner.blueprint.max_load_s
        text = f"loading took longer than max_load_seconds ({limit_s:g})"
        self._kill_after(
            limit_s, Reason.of(Kind.LOAD_TIMEOUT, text, limit_s=limit_s), can_tell=True
        )

    def rest(self, *, is_on: bool) -> None:
        """Pause the time limit of the instance's load, or continue it."""
        if self.state is InstanceState.LOADING and self._owner.blueprint.max_load_s and self._timer:
            self._timer.cancel()
            if not is_on:
                self._limit_load()

    def _on_model_loaded(self, event: states.InstanceLoaded) -> None:
        if self.state is InstanceState.READY:
            self.has_is_ready = event.has_is_ready
            self.modules = "" if self.restarts else event.modules
            if self.has_is_ready:
                self._plan.enqueue(Send(self.serial, wire.ReadinessLifeline()))
            self.can_restart = True
            self._ready_at_s = self._plan.now_s
            text = f"instance initialization successful {self.name} (device {self.slot.device})"
            self._plan.log("V", f"TRITONBACKEND_ModelInstanceInitialize: {text}")

    def _on_load_failed(self, event: states.InstanceLoadFailed) -> None:
        self._stated_reason = event.reason
        self.failure_code = event.code
        self._kill_after(
            EXIT_WITHIN_S, Reason.of(Kind.EXIT_TIMEOUT, "it did not exit after its load had failed")
        )

    def _on_kill_requested(self, event: states.KillRequested) -> None:
        # A stub's own report is worth more than the reason for which it is killed.
        adopts = self._template and self._template.has_threads and self._template.origin
        if adopts and self.state is InstanceState.LOADING:
            # A kill would end the earlier code, which serves in the same process. This signal only
            # has the process write its stacks.
            self._plan.enqueue(Signal(self.serial, int(signal.SIGURG)))
            self._plan.enqueue(GiveUpThread(self.serial, self._stated_reason or event.reason))
        elif event.can_dump_stack and not self._stated_reason:
            # Python writes the stack before it dies of this signal.
            self._was_stack_requested = True
            self._plan.enqueue(Signal(self.serial, int(signal.SIGABRT)))
            self._kill_after(ABORT_WITHIN_S, Reason.of(Kind.EXIT_TIMEOUT, "it did not end"))
        else:
            self._kill()
        self._stated_reason = self._stated_reason or event.reason

    def _on_process_exited(self, event: states.ProcessExited) -> None:
        self.last_pid, self.pid = self.pid, 0
        self._owner.finalize_turns.leave(self.serial)
        if self.state is not InstanceState.BACKOFF:
            return
        lived_s = self._plan.now_s - self._ready_at_s
        was_idle = lived_s >= 0 and not event.had_begun
        had_worked = self.has_executed or was_idle or lived_s >= PROVEN_AFTER_S
        self._backoff.record_death(self._plan.now_s, had_worked=had_worked)
        if had_worked:
            self._deaths_when_given_up = 0
        elif self._deaths_when_given_up:
            self._deaths_when_given_up += 1
        if not self.can_restart or self._backoff.is_exhausted or self._deaths_when_given_up:
            self.handle(states.RestartsExhausted())
        else:
            self._schedule_event(self._backoff.pause_s, states.BackoffElapsed())

    def _give_up(self, _: states.RestartsExhausted) -> None:
        if self.retry_after_s:
            self._deaths_when_given_up = self.recent_deaths
            self._schedule_event(self.retry_after_s, states.BackoffElapsed())

    def _finish(self, _: states.DrainFinished) -> None:
        self._owner.finalize_turns.request(self.serial, self.pid).at_end(self._finalize)

    def _finalize(self) -> None:
        self._plan.enqueue(Send(self.serial, wire.Finalize()))
        text = f"finalize took more than {FINALIZE_WITHIN_S:g} seconds"
        self._kill_after(
            FINALIZE_WITHIN_S, Reason.of(Kind.FINALIZE_TIMEOUT, text, limit_s=FINALIZE_WITHIN_S)
        )

    def _stop(self, _: states.StopRequested) -> None:
        # Before ProcessStarted there is nothing to kill; that event does it.
        if self.state is InstanceState.STOPPING and self.pid:
            self._end()

    def _end(self) -> None:
        """End the instance now: kill its process, or finalize if other instances share it."""
        self._finalize() if self._template and self._template.has_threads else self._kill()

    def _kill_after(self, within_s: float, reason: Reason, *, can_tell: bool = False) -> None:
        self._schedule_event(within_s, states.KillRequested(reason, can_tell))

    def _schedule_event(self, delay_s: float, event: states.Event) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._plan.call_later(delay_s, lambda: self._owner.handle(self, event))

    def _kill(self) -> None:
        self._plan.enqueue(Signal(self.serial, int(signal.SIGKILL), group=True))


def _device_of(slot: InstanceSlot) -> str:
    """Return the device of an instance, in the words of Triton's verbose line."""
    if slot.kind == "MODEL":
        return "model-specified devices"
    return f"{slot.kind} {slot.device}" if slot.kind == "GPU" else slot.kind


_ACTS: dict[type[states.Event], Callable[[StubPlace, Any], None]] = {
    states.StartRequested: StubPlace._start,
    states.BackoffElapsed: StubPlace._start,
    states.ProcessStarted: StubPlace._on_process_started,
    states.InstanceLoaded: StubPlace._on_model_loaded,
    states.InstanceLoadFailed: StubPlace._on_load_failed,
    states.KillRequested: StubPlace._on_kill_requested,
    states.ProcessExited: StubPlace._on_process_exited,
    states.RestartsExhausted: StubPlace._give_up,
    states.DrainFinished: StubPlace._finish,
    states.StopRequested: StubPlace._stop,
}


def stub_event(message: Any) -> states.Event | None:
    """Return the event of a stub's message; None if the message is not an event."""
    match message:
        case wire.ConfigCompleted():
            return states.InstanceConfigCompleted(message.config)
        case wire.ModelLoaded():
            return states.InstanceLoaded(bool(message.has_is_ready), message.modules)
        case wire.LoadFailed():
            return states.InstanceLoadFailed(
                _believable(message.reason), message.code or InternalError.number
            )
    return None


def _believable(reason: Reason) -> Reason:
    """Return a trusted form of a stub's failure reason: an exception of the model, or plain text.

    A model can make its stub send anything.
    """
    types = {name: type(value) for name, value in reason.values.items()}
    if reason.kind == Kind.EXCEPTION and types == _EXCEPTION_TYPES:
        return reason._replace(cause=None)
    return Reason.of(Kind.OTHER, reason.text)


def describe_giving_up(instance: StubPlace) -> str:
    """Return a text: after how many deaths an instance was given up, and the next try's time."""
    text = f"given up after {instance.recent_deaths} deaths"
    pause_s = instance.retry_after_s
    return f"{text}, tried again every {pause_s:g} s" if pause_s else text


def _downtime(instance: StubPlace, death: Reason) -> Reason:
    """Return the reason why a dead instance is missing, and the next step for it."""
    text, deaths = f"instance '{instance.name}': {shorten(death.text)}", instance.recent_deaths
    if instance.is_given_up:
        return Reason.of(
            Kind.GIVEN_UP,
            f"{text} ({describe_giving_up(instance)})",
            death,
            instance=instance.name,
            deaths=deaths,
            retry_after_s=instance.retry_after_s,
        )
    return Reason.of(
        Kind.RESTARTING,
        f"{text}, restarting ({deaths}/{MAX_DEATHS})",
        death,
        instance=instance.name,
        deaths=deaths,
        max_deaths=MAX_DEATHS,
    )


class InstanceSet(list[StubPlace]):
    """All instances, in the order of their slots."""

    @property
    def active(self) -> list[StubPlace]:
        """Return the instances that may get requests."""
        return [instance for instance in self if not instance.slot.is_passive]

    @property
    def staying(self) -> list[StubPlace]:
        """Return the instances that no change of the generation is removing."""
        return [instance for instance in self if not instance.is_being_removed]

    @property
    def unstarted(self) -> list[StubPlace]:
        """Return the instances that are yet to be started for the first time."""
        return [instance for instance in self if not instance.serial]

    @property
    def ready(self) -> list[StubPlace]:
        """Return the instances that can execute."""
        return [i for i in self.active if i.state is InstanceState.READY]

    @property
    def ready_count(self) -> int:
        return len(self.ready)

    @property
    def is_one_loading(self) -> bool:
        return any(i.is_alive and i.state is not InstanceState.READY for i in self)

    @property
    def have_all_failed(self) -> bool:
        return {i.state for i in self.active if not i.is_being_removed} == {InstanceState.FAILED}

    @property
    def why_not_ready(self) -> Reason | None:
        """Return why no instance is ready; None if one is, or none has died."""
        if self.ready_count:
            return None
        return next((_downtime(i, i.death_reason) for i in self.active if i.death_reason), None)

    def with_is_ready(self) -> list[StubPlace]:
        """Return the ready instances whose models must also be asked."""
        return [instance for instance in self.ready if instance.has_is_ready]

    def find(self, serial: int) -> StubPlace | None:
        return next((i for i in self if i.serial == serial), None)

    def discard_removed(self) -> None:
        """Forget instances that have been removed and have ended."""
        self[:] = [i for i in self if not (i.is_being_removed and i.state in OVER_STATES)]
