"""Decides which environments have a spare process, and which instances it forks. Does no I/O.

Each load reports the modules of installed packages that it has imported. A while after the last
load, the environment gets a spare process that imports them all. Further modules lead to another
spare process. A package with which a process cannot fork is left out of the next one. The spare
process ends when memory is short, and when no model has used the environment for a while.
"""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from zmqtriton.sdk.models import Environment, config_parameter, figures
from zmqtriton.sdk.process import available_bytes
from zmqtriton.sdk.supervisor import (
    Blueprint,
    CoreParts,
    Feature,
    HelperOwner,
    actions,
)
from zmqtriton.sdk.wire import Reason, wire
from zmqtriton_extras.warm_starts import WarmStartOptions
from zmqtriton_extras.warm_starts.mode import AUTO, OFF
from zmqtriton_standard.memory.readings import process_memory_bytes

#: Available memory at the start of a spare process in the mode auto, and that which ends it.
ENOUGH_BYTES, SHORT_BYTES = 4 << 30, 1 << 30
#: Seconds of the processor that the imports must take in the mode auto.
WORTH_S = 0.2
#: Seconds from a load to the start of a spare process, and between two looks at the memory.
QUIET_S = 2.0
#: Seconds until another spare process follows one that has died.
REST_S = 60.0
#: Seconds for the imports.
IMPORT_WITHIN_S = 300.0
#: Seconds without a model after which a spare process ends.
UNUSED_S = 900.0
#: Looks at the available memory from one to the next at the memory of spare processes.
_LOOKS = 10


@dataclass
class _Spare:
    serial: int
    pid: int = 0
    started_s: float = 0.0
    is_ready: bool = False
    #: The imported packages, the slowest first, and the seconds of the processor for all.
    packages: tuple[str, ...] = ()
    seconds: float = 0.0
    #: Memory at the last look: private pages, and a part of each shared one.
    bytes: int = 0


@dataclass
class _Record:
    """The imports of an environment's models."""

    #: Modules in the order of their imports, and the model that has reported some last.
    modules: dict[str, None] = field(default_factory=dict)
    model: str = ""
    #: The packages that no spare process imports, with the reasons.
    left_out: dict[str, str] = field(default_factory=dict)
    spare: _Spare | None = None
    #: The modules of the last spare process; none if another one must follow it.
    tried: frozenset[str] = frozenset()
    #: Time before which no spare process is started.
    rests_until_s: float = -math.inf
    #: Reason why there is no spare process.
    problem: str = "none was ready"
    #: Time when a model has used the environment last.
    used_s: float = 0.0

    @property
    def importable(self) -> list[str]:
        return [name for name in self.modules if name.partition(".")[0] not in self.left_out]


def measure(pids: Iterable[int]) -> tuple[int, dict[int, int]]:
    """Return the available memory, and the memory of each process; called in a thread."""
    return available_bytes(), {pid: process_memory_bytes(pid) for pid in pids}


class WarmStarts(Feature, HelperOwner):
    def __init__(self, core: CoreParts) -> None:
        super().__init__(core)
        self._host_policies = core.policy.host_policies
        self._mode = core.policy.options_of(WarmStartOptions).warm_starts
        self._records: dict[Environment, _Record] = {}
        #: The origin of each instance's process in words, and the serial of the spare process or
        #: 0, by the names of model and instance.
        self._origins: dict[tuple[str, str], tuple[str, int]] = {}
        if self._mode != OFF:
            core.introductions.choose_spare = self._choose

    @property
    def helpers(self) -> Iterable[HelperOwner]:
        return (self,)

    def load_succeeded(self, blueprint: Blueprint) -> None:
        """Take the modules that the load of a model has imported."""
        model = self._server.models.get(blueprint.name)
        for generation in model.serving_generations if model else ():
            names = [name for one in generation.instances for name in one.modules.split()]
            for one in generation.instances:
                one.modules = ""
            is_slow = self._mode != AUTO or generation.load_s >= WORTH_S
            if names and is_slow and self._mode != OFF and not generation.environment.host:
                is_first = not self._records  # nobody looks without a record
                record = self._records.setdefault(generation.environment, _Record())
                record.modules.update(dict.fromkeys(names))
                record.model = blueprint.name
                if is_first:
                    self._plan.tell(self._watch())

    def forget_model(self, name: str) -> None:
        for key in [key for key in self._origins if key[0] == name]:
            del self._origins[key]

    def stop(self) -> None:
        for record in self._records.values():
            self._end(record)

    def _choose(
        self,
        environment: Environment,
        blueprint: Blueprint,
        slot: Any,
        assignment: actions.Assignment,
    ) -> int:
        """Return the serial of the spare process that forks an instance; 0 without one."""
        record, key = self._records.get(environment), (blueprint.name, slot.name)
        self._origins.pop(key, None)
        if record is None:
            return 0
        spare, serial = record.spare, 0
        if spare is None or not spare.is_ready:
            text = f"without a spare process: {record.problem}"
        elif config_parameter(json.loads(blueprint.config), "CUDA_VISIBLE_DEVICES").startswith(
            ("instance", "MIG-")
        ):
            text = "without the spare process: its CUDA_VISIBLE_DEVICES is set before its imports"
        elif assignment.cores or assignment.variables:
            text = "without the spare process: its cores or variables are set before its imports"
        elif slot.host_policy in self._host_policies:
            text = (
                f"without the spare process: the host policy {slot.host_policy} may pin it to cores"
            )
        else:
            names, serial = ", ".join(spare.packages[:3]), spare.serial
            text = f"from the spare process {spare.pid}, with {names} imported"
        self._origins[key] = text, serial
        return serial

    # -------------------------------------------------- starts of spare processes

    async def _watch(self) -> None:
        """Look at memory and records from time to time, as long as there are records."""
        count = 0
        while self._records and not self._server.is_stopping:
            await self._plan.pause(QUIET_S)
            count += 1
            spares = [record.spare for record in self._records.values() if record.spare]
            due = {one.pid: one for one in spares if not one.bytes or count % _LOOKS == 0}
            available, sizes = await self._plan.in_background(partial(measure, [*due]))
            for pid, spare in due.items():
                spare.bytes = sizes.get(pid, 0)
            self._tend(available)

    def _tend(self, available: int) -> None:
        """End spare processes that are too many or unused; start one if it is time."""
        generations, now_s = self._server.generations.values(), self._plan.now_s
        used, memory = {each.environment for each in generations}, figures.format_bytes(available)
        is_busy = any(each.is_loading for each in generations)
        needed = ENOUGH_BYTES if self._mode == AUTO else SHORT_BYTES
        for environment, record in list(self._records.items()):
            record.used_s = now_s if environment in used else record.used_s
            if now_s - record.used_s > UNUSED_S:
                self._end(record)
                del self._records[environment]
            elif available < SHORT_BYTES or (available < needed and not record.spare):
                self._end(record)
                record.problem = f"only {memory} of memory are available"
            elif record.spare is not None and not record.spare.is_ready:
                is_busy = True  # one at a time, and not while loads need the processors
        for environment, record in self._records.items():
            is_new = not record.tried.issuperset(record.importable)
            if is_new and not is_busy and now_s >= record.rests_until_s and available >= needed:
                self._start(environment, record)
                return

    def _start(self, environment: Environment, record: _Record) -> None:
        self._end(record)
        spare = record.spare = _Spare(self._plan.new_serial())
        record.tried = frozenset(record.importable)
        self._plan.enqueue(actions.StartSpare(spare.serial, environment, record.model))
        self._plan.call_later(IMPORT_WITHIN_S, partial(self._give_up, spare))

    def _give_up(self, spare: _Spare) -> None:
        if not spare.is_ready:
            self._kill(spare)

    def _kill(self, spare: _Spare) -> None:
        self._plan.enqueue(actions.Signal(spare.serial, int(signal.SIGKILL), group=True))

    def _end(self, record: _Record) -> None:
        """End the spare process of an environment; its forks stay."""
        if record.spare is not None:
            self._kill(record.spare)
        record.spare, record.tried = None, frozenset()

    # ----------------------------------------------------------- what happens

    def _find(self, serial: int) -> tuple[_Record, _Spare] | None:
        of_all = ((record, record.spare) for record in self._records.values())
        return next(((r, spare) for r, spare in of_all if spare and spare.serial == serial), None)

    def process_started(self, serial: int, pid: int, started_s: float) -> None:
        if entry := self._find(serial):
            record, spare = entry
            spare.pid, spare.started_s = pid, started_s
            call = wire.Call(0, "import", json.dumps({"modules": record.importable}))
            self._plan.enqueue(actions.Send(serial, call))

    def handle_result(self, serial: int, answer: wire.CallResult) -> bool:
        if not (entry := self._find(serial)):
            return False
        record, spare = entry
        if not answer.code:
            self._take(record, spare, json.loads(answer.result))
            return True
        # it ends by itself
        record.spare, package = None, answer.result
        record.problem = f"{package}: {answer.text}" if package else answer.text
        if package:
            record.left_out[package] = answer.text
        if spare.is_ready:
            record.left_out.clear()
            refused = [key for key, (_, origin) in self._origins.items() if origin == serial][-1:]
            text = f"without the spare process: {record.problem}"
            self._origins.update(dict.fromkeys(refused, (text, 0)))
        if package or spare.is_ready:
            record.tried = frozenset()
        return True

    def _take(self, record: _Record, spare: _Spare, result: Mapping[str, Any]) -> None:
        """Take a spare process into service, if its imports are worth it."""
        seconds: dict[str, float] = result["packages"]
        spare.seconds, spare.is_ready = result["seconds"], True
        spare.packages = tuple(sorted(seconds, key=lambda name: -seconds[name]))
        text = f"{', '.join(spare.packages[:8])} in {spare.seconds:.2f} s"
        self._plan.log("V", f"a spare process has imported {text}", model=record.model)
        if self._mode == AUTO and spare.seconds < WORTH_S:
            self._kill(spare)
            record.spare, record.problem = None, f"the imports take only {spare.seconds:.2f} s"

    def process_ended(self, serial: int, reason: Reason, last_words: str) -> None:
        if entry := self._find(serial):
            record, spare = entry
            record.spare, words = None, f": {last_words}" if last_words else ""
            record.problem = f"it has ended: {reason.text}{words}"
            if spare.is_ready:
                record.tried, record.rests_until_s = frozenset(), self._plan.now_s + REST_S

    # ---------------------------------------------------------- what is shown

    def describe(self, counts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        models: dict[Environment, set[str]] = {}
        for each in self._server.generations.values():
            models.setdefault(each.environment, set()).add(each.blueprint.name)
        spares = [
            {
                **vars(record.spare),
                "environment": environment.root or environment.python,
                "left_out": record.left_out,
                "models": sorted(models.get(environment, ())),
            }
            for environment, record in self._records.items()
            if record.spare is not None
        ]
        # the template of changed code, if it keeps objects, is a copy whatever was chosen
        kept = {
            one.blueprint.name: "as a copy of its earlier template"
            for one in self._server.generations.values()
            if one.kept and one.kept.is_kept
        }
        origins = [
            {
                "model": model,
                "instance": name,
                "text": kept.get(model, text) if name == "template" else text,
            }
            for (model, name), (text, _) in self._origins.items()
        ]
        return {"spares": spares, "starts": origins}

    def describe_processes(self) -> list[dict[str, Any]]:
        return [
            {
                "role": "spare",
                "serial": spare.serial,
                "pid": spare.pid,
                "started_s": spare.started_s,
                "state": "READY" if spare.is_ready else "imports packages",
            }
            for record in self._records.values()
            if (spare := record.spare)
        ]
