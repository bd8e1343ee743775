"""The environments that loads need, each prepared by a process that answers once.

The process reports its progress. The same environment may be prepared for several models at a time:
then the processes settle which of them makes it. Does no I/O.
"""

from __future__ import annotations

import json
import signal
from typing import Any, NamedTuple

from zmqtriton.environments.demand import SERVER_ENVIRONMENT, Environment, EnvironmentSpec
from zmqtriton.supervisor.actions import PrepareEnvironment, Send, Signal
from zmqtriton.supervisor.helper_processes import HelperOwner, PreparationStatus
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.server_processes.introductions import Introductions
from zmqtriton.supervisor.story import Promise
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InternalError, from_number
from zmqtriton_floor.reasons import Kind, Reason

_ROLE = "environment"
#: Maximum seconds for a cancelled preparation to clean up; the next preparation removes the rest.
_REMOVED_WITHIN_S = 30.0


class _Preparation(NamedTuple):
    model: str
    demand: EnvironmentSpec
    outcome: Promise[Environment]
    status: PreparationStatus


class EnvironmentPreparations(HelperOwner):
    def __init__(self, plan: Plan, introductions: Introductions) -> None:
        self._plan = plan
        self._introductions = introductions
        self._waiting: dict[int, _Preparation] = {}
        #: Rows of the status, without the step, and the preparations that know it.
        self._processes: dict[int, tuple[dict[str, Any], PreparationStatus]] = {}

    async def prepare(self, model: str, demand: EnvironmentSpec) -> Environment:
        """Return the environment for a load. Raises ZmqTritonError if that fails."""
        serial = self._plan.new_serial()
        status = PreparationStatus(model, self._plan.now_s, f"preparing {demand}")
        outcome = Promise[Environment]()
        self._waiting[serial] = _Preparation(model, demand, outcome, status)
        self._plan.enqueue(PrepareEnvironment(serial, model, demand))
        try:
            return await outcome
        except GeneratorExit:  # the load is cancelled
            self._cancel(serial)
            raise

    def process_started(self, serial: int, pid: int, started_s: float) -> None:
        """Let a started process begin, and show it in the status, if it prepares an environment."""
        if serial in self._waiting:
            model, demand, _, status = self._waiting[serial]
            row = {"role": _ROLE, "model": model, "serial": serial, "pid": pid}
            self._processes[serial] = {**row, "started_s": started_s}, status
            self._plan.tell(self._let_begin(serial, demand, pid))

    async def _let_begin(self, serial: int, demand: EnvironmentSpec, pid: int) -> None:
        """Let the process begin; what it starts from now on ends with the server."""
        await self._introductions.guard_process_group(serial, _ROLE, demand.kind, pid)
        if serial in self._waiting:
            self._plan.enqueue(Send(serial, wire.Call(0, "prepare", "{}")))

    def describe_processes(self) -> list[dict[str, Any]]:
        """Describe the processes, for the status."""
        return [{**row, "state": status.phase} for row, status in self._processes.values()]

    def describe_preparations(self) -> list[dict[str, Any]]:
        """Describe the progress of each preparation, for the status."""
        return [each.status.describe(self._plan.now_s) for each in self._waiting.values()]

    def phase(self, model: str) -> str:
        """Return the present step of the preparation for a model, in words; "" without one."""
        return next((w.status.phase for w in self._waiting.values() if w.model == model), "")

    def give_up(self, model: str) -> None:
        """Continue without the environment that is prepared for a model: it is not needed."""
        for serial in [s for s, each in self._waiting.items() if each.model == model]:
            self._cancel(serial).outcome(SERVER_ENVIRONMENT)

    def _cancel(self, serial: int) -> _Preparation:
        """Cancel a preparation: its process removes the incomplete environment and ends."""
        self._plan.enqueue(Signal(serial, int(signal.SIGTERM), group=True))
        kill = Signal(serial, int(signal.SIGKILL), group=True)
        self._plan.call_later(_REMOVED_WITHIN_S, lambda: self._plan.enqueue(kill))
        return self._waiting.pop(serial)

    def handle_progress(self, serial: int, message: wire.PreparationProgress) -> None:
        """Record the progress of a preparation, for the status."""
        if serial in self._waiting:
            self._waiting[serial].status.update(message)

    def handle_result(self, serial: int, answer: wire.CallResult) -> bool:
        """Process an answer; False if it was not awaited here."""
        if serial not in self._waiting:
            return False
        outcome = self._waiting.pop(serial).outcome
        if answer.code:
            outcome.fail(from_number(answer.code, answer.text, answer.reason))
        else:
            outcome(Environment(*json.loads(answer.result)))
        return True

    def process_ended(self, serial: int, reason: Reason, last_words: str) -> None:
        """Fail the preparation of a dead process, unless it has answered."""
        if self._processes.pop(serial, None) is not None:
            self._introductions.report_death(serial, reason.text)
        if serial in self._waiting:
            _, demand, outcome, _ = self._waiting.pop(serial)
            words = f": {last_words}" if last_words else ""
            problem = f"{demand} cannot be prepared ({reason.text}){words}"
            outcome.fail(
                InternalError(problem).because(Kind.ENVIRONMENT_FAILED, reason, problem=problem)
            )
