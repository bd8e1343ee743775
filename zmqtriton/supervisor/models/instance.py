"""One instance of a model: the stub that runs for it now, and when the next one is started.

Its generation gives it events and asks for its state; `_enter` alone writes that state. A stub that
dies is replaced at once the first time, then after growing pauses, and not at all any more when it
died too often. Does no I/O and does not know what a configuration means.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable
from typing import Any, NamedTuple

from zmqtriton.environments.demand import Environment
from zmqtriton.supervisor import states
from zmqtriton.supervisor.actions import Send, Signal, SpawnStub
from zmqtriton.supervisor.backoff import PROVEN_S, Backoff
from zmqtriton.supervisor.plan import Plan, Timer
from zmqtriton.supervisor.states import ALIVE, InstanceState
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InternalError

#: For `finalize`, and for a stub that said that it will exit.
FINALIZE_WITHIN_S = 10.0
EXIT_WITHIN_S = 2.0
#: For a stub that was asked where it hangs, which it writes as its last.
ABORT_WITHIN_S = 1.0


class InstanceSlot(NamedTuple):
    """Which instance this is, as the configuration says; the name may repeat on several GPUs."""

    name: str
    kind: str
    device: int
    #: What it needs of the rate limiter; "": nothing.
    demand: str = ""
    #: Loaded, and never given a request.
    is_passive: bool = False
    #: The host policy by which its process runs; "": none.
    policy: str = ""


class Instance:
    """A place for a stub. `on_event` is how its timers speak: through its generation."""

    def __init__(
        self,
        plan: Plan,
        place: InstanceSlot,
        *,
        model: str,
        environment: Environment,
        load_within_s: float = 0.0,
        on_event: Callable[[Instance, states.Event], None],
    ) -> None:
        self.place = place
        self.state = InstanceState.STOPPED
        #: With where it was in its model.
        self.reason = ""
        #: The same in short, for those whose requests it had.
        self.death = ""
        self.serial = 0
        self.pid = 0
        #: Stubs that were started in place of one that died.
        self.restarts = 0
        #: The reason is the stub's own account of why it could not load.
        self.has_said_why = False
        #: What kind of failure that is.
        self.failure_code = InternalError.number
        #: False until it was loaded once: a first load that fails is the load's failure.
        self.may_restart = False
        #: Its model says itself whether it is ready.
        self.is_asked = False
        #: Its generation goes on without it.
        self.is_dismissed = False
        self._plan = plan
        self._model = model
        self._environment = environment
        #: It is ended when its loading takes longer; 0: it may take for ever.
        self._load_within_s = load_within_s
        self._on_event = on_event
        self._backoff = Backoff()
        self._verdict = ""
        #: It was asked to write where it hangs.
        self._has_told = False
        self._timer: Timer | None = None
        self._ready_at_s = math.inf
        self._has_executed = False
        #: It has said what made no sense, and that was logged.
        self.has_lied = False

    @property
    def name(self) -> str:
        return self.place.name

    @property
    def is_alive(self) -> bool:
        return self.state in ALIVE

    @property
    def recent_deaths(self) -> int:
        return self._backoff.deaths

    def executed(self) -> None:
        """The broker has seen its first execution end."""
        self._has_executed = True

    def handle(self, event: states.Event) -> None:
        """Goes where the table says, and does what belongs to having got there."""
        following = states.advance(
            states.INSTANCE_TRANSITIONS, self.state, event, f"instance '{self.name}'"
        )
        self._enter(following, event)
        act = _ACTS.get(type(event))
        if act is not None:
            act(self, event)

    def _enter(self, state: InstanceState, event: states.Event) -> None:
        """The only writer of the state."""
        if isinstance(event, states.ProcessExited):
            self.reason = self._judge(event)
        if state is not self.state and self._timer is not None:
            self._timer.cancel()
        self.state = state

    def _judge(self, exited: states.ProcessExited) -> str:
        """Why the process is gone: what it said itself or was killed for comes first."""
        verdict, self._verdict = self._verdict, ""
        # Once it serves, the last line that it wrote is about something else.
        words = exited.last_words if self.state is InstanceState.LOADING else exited.crash
        self.death = verdict or exited.reason
        if verdict and not self._has_told:
            return verdict
        return f"{self.death}: {words}" if words else self.death

    # ------------------------------------------------- what follows an event

    def _start(self, event: states.Event) -> None:
        self.serial = self._plan.new_serial()
        self.has_said_why = self._has_told = False
        self.failure_code = InternalError.number
        self._ready_at_s = math.inf
        self._has_executed = False
        if isinstance(event, states.BackoffElapsed):
            self.restarts += 1
        self._plan.log("I", f"TRITONBACKEND_ModelInstanceInitialize: {self._where}")
        self._plan.do(
            SpawnStub(self.serial, self._environment, self._model, self.name, self.place.policy)
        )

    @property
    def _where(self) -> str:
        return f"{self.name} ({self.place.kind} device {self.place.device})"

    def _take_process(self, event: states.ProcessStarted) -> None:
        self.pid = event.pid
        if self.state is InstanceState.STOPPING:
            self._kill()
        elif self._load_within_s:
            reason = f"loading took longer than max_load_seconds ({self._load_within_s:g})"
            self._limit(self._load_within_s, reason, can_tell=True)

    def _take_loaded(self, event: states.ModelLoaded) -> None:
        if self.state is InstanceState.READY:
            self.is_asked = event.is_asked
            if self.is_asked:
                self._plan.do(Send(self.serial, wire.ReadinessLifeline()))
            self.may_restart = True
            self._ready_at_s = self._plan.now_s
            text = f"instance initialization successful {self.name} (device {self.place.device})"
            self._plan.log("V", f"TRITONBACKEND_ModelInstanceInitialize: {text}")

    def _take_failure(self, event: states.LoadFailed) -> None:
        self._verdict = event.text
        self.has_said_why = True
        self.failure_code = event.code
        self._limit(EXIT_WITHIN_S, "it did not exit after its load had failed")

    def _take_verdict(self, event: states.Condemned) -> None:
        # What the stub has said itself is worth more than what it is killed for.
        if event.can_tell and not self._verdict:
            # Python writes where it is before it dies of that.
            self._has_told = True
            self._plan.do(Signal(self.serial, int(signal.SIGABRT)))
            self._limit(ABORT_WITHIN_S, "it did not end")
        else:
            self._kill()
        self._verdict = self._verdict or event.reason

    def _take_death(self, _: states.ProcessExited) -> None:
        self.pid = 0
        if self.state is not InstanceState.BACKOFF:
            return
        lived_s = self._plan.now_s - self._ready_at_s
        had_worked = self._has_executed or lived_s >= PROVEN_S
        self._backoff.record(self._plan.now_s, had_worked=had_worked)
        if not self.may_restart or self._backoff.is_exhausted:
            self.handle(states.RestartsExhausted())
        else:
            self._later(self._backoff.pause_s, states.BackoffElapsed())

    def _finish(self, _: states.DrainFinished) -> None:
        self._plan.do(Send(self.serial, wire.Finalize()))
        self._limit(FINALIZE_WITHIN_S, f"finalize took more than {FINALIZE_WITHIN_S:g} seconds")

    def _stop(self, _: states.StopRequested) -> None:
        # Before ProcessStarted there is nothing to kill; that event does it.
        if self.state is InstanceState.STOPPING and self.pid:
            self._kill()

    def _limit(self, within_s: float, reason: str, *, can_tell: bool = False) -> None:
        self._later(within_s, states.Condemned(reason, can_tell))

    def _later(self, delay_s: float, event: states.Event) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._plan.after(delay_s, lambda: self._on_event(self, event))

    def _kill(self) -> None:
        self._plan.do(Signal(self.serial, int(signal.SIGKILL), group=True))


_ACTS: dict[type[states.Event], Callable[[Instance, Any], None]] = {
    states.StartRequested: Instance._start,
    states.BackoffElapsed: Instance._start,
    states.ProcessStarted: Instance._take_process,
    states.ModelLoaded: Instance._take_loaded,
    states.LoadFailed: Instance._take_failure,
    states.Condemned: Instance._take_verdict,
    states.ProcessExited: Instance._take_death,
    states.DrainFinished: Instance._finish,
    states.StopRequested: Instance._stop,
}


def stub_message(message: Any) -> states.Event | None:
    """The event that a stub's message is, or None if it is none."""
    if isinstance(message, wire.ConfigCompleted):
        return states.ConfigCompleted(message.config)
    if isinstance(message, wire.ModelLoaded):
        return states.ModelLoaded(bool(message.has_is_ready))
    if isinstance(message, wire.LoadFailed):
        return states.LoadFailed(message.text, message.code)
    return None
