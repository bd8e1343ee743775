"""Decides which environments have a spare process, and which instances it forks. Does no I/O.

Each load reports the modules of installed packages that it has imported. A while after the last
load, the environment gets a spare process that imports them all. Further modules lead to another
spare process, which replaces the first one once it is ready. A package with which a process cannot
fork is left out of the next one. There is one spare process of an environment; it ends when memory
is short, and when no model has used the environment for a while.
"""

from __future__ import annotations

import json
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
    GenerationState,
    HelperOwner,
    Promise,
    actions,
)
from zmqtriton.sdk.wire import Reason, wire
from zmqtriton_standard.memory.readings import process_memory_bytes
from zmqtriton_standard.warm_starts import WarmStartOptions
from zmqtriton_standard.warm_starts.mode import AUTO, OFF

#: Available memory at the start of a spare process in the mode auto, and that which ends it.
ENOUGH_BYTES, SHORT_BYTES = 4 << 30, 1 << 30
#: Seconds of the processor that the imports must take in the mode auto.
WORTH_S = 0.2
#: Seconds without a load before a spare process is started, and between two looks.
QUIET_S = 2.0
#: Looks at the available memory from one to the next at the memory of spare processes.
_LOOKS = 10
#: Seconds for the imports.
IMPORT_WITHIN_S = 300.0
#: Seconds without a model after which a spare process ends.
UNUSED_S = 900.0
#: Maximum number of unsuccessful tries, each without one package more.
_MAX_TRIES = 8
#: Seconds until another spare process follows one that has died.
REST_S = 60.0
_NOT_READY = "no spare process was ready"


@dataclass
class _Spare:
    serial: int
    #: The modules that it imports.
    modules: frozenset[str]
    pid: int = 0
    started_s: float = 0.0
    is_ready: bool = False
    #: The imported packages, the slowest first, and the seconds of the processor for all.
    packages: tuple[str, ...] = ()
    seconds: float = 0.0
    #: Its memory at the last look: its part of shared pages, and its own.
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
    #: The spare process that imports, and will replace the present one.
    following: _Spare | None = None
    #: The modules of the last try, and the number of unsuccessful ones with the last reason.
    tried: frozenset[str] = frozenset()
    failures: int = 0
    problem: str = ""
    used_s: float = 0.0
    #: Time before which no spare process is started, after the death of one.
    rests_until_s: float = 0.0

    @property
    def wanted(self) -> frozenset[str]:
        return frozenset(n for n in self.modules if n.partition(".")[0] not in self.left_out)

    @property
    def spares(self) -> list[_Spare]:
        return [each for each in (self.spare, self.following) if each is not None]


@dataclass
class _Origin:
    """The origin of an instance's process, in words."""

    text: str
    #: Serial of the spare process; 0 without one.
    spare: int = 0


@dataclass(frozen=True)
class _Look:
    """Reads the memory of processes by pid, and the available memory; called in a thread."""

    pids: tuple[int, ...]

    def __call__(self) -> tuple[int, dict[int, int]]:
        return available_bytes(), {pid: process_memory_bytes(pid) for pid in self.pids}


class WarmStarts(Feature, HelperOwner):
    def __init__(self, core: CoreParts) -> None:
        super().__init__(core)
        self._mode = core.policy.options_of(WarmStartOptions).warm_starts
        self._records: dict[Environment, _Record] = {}
        #: By the names of model and instance.
        self._origins: dict[tuple[str, str], _Origin] = {}
        self._is_watching = False
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
                record = self._records.setdefault(generation.environment, _Record())
                record.modules.update(dict.fromkeys(names))
                record.model = blueprint.name
                self._watch()

    def forget_model(self, name: str) -> None:
        for key in [key for key in self._origins if key[0] == name]:
            del self._origins[key]

    def stop(self) -> None:
        for record in self._records.values():
            self._end(record)

    # ------------------------------------------------------------- what forks

    def _choose(self, environment: Environment, blueprint: Blueprint, slot: Any) -> int:
        """Return the serial of the spare process that forks an instance; 0 without one."""
        record = self._records.get(environment)
        if record is None or environment.host:
            return 0
        origin = self._origins[blueprint.name, slot.name] = _Origin("")
        spare = record.spare
        config = json.loads(blueprint.config)
        if spare is None:
            origin.text = f"without a spare process: {record.problem or _NOT_READY}"
        elif config_parameter(config, "CUDA_VISIBLE_DEVICES") == "instance":
            reason = "its CUDA_VISIBLE_DEVICES is set before its imports"
            origin.text = f"without the spare process: {reason}"
        else:
            names = ", ".join(spare.packages[:3])
            origin.text = f"from the spare process {spare.pid}, with {names} imported"
            origin.spare = spare.serial
        return origin.spare

    # ------------------------------------------------------- spare processes

    def _watch(self) -> None:
        if not self._is_watching:
            self._is_watching = True
            self._plan.tell(self._look())

    async def _look(self) -> None:
        """Look at memory and records from time to time, as long as there are any."""
        count = 0
        while self._records and not self._server.is_stopping:
            await self._plan.pause(QUIET_S)
            count += 1
            spares = [record.spare for record in self._records.values() if record.spare]
            due = [one for one in spares if not one.bytes or count % _LOOKS == 0]
            available, sizes = await self._measure(one.pid for one in due)
            for one in due:
                one.bytes = sizes.get(one.pid, 0)
            self._tend(available)
        self._is_watching = False

    def _measure(self, pids: Iterable[int]) -> Promise[tuple[int, dict[int, int]]]:
        """Return the available memory, and that of processes."""
        look = _Look(tuple(pids))
        return self._plan.ask(lambda ticket: actions.InBackground(ticket, look))

    def _tend(self, available: int) -> None:
        generations = self._server.generations.values()
        used = {each.environment for each in generations}
        for environment, record in list(self._records.items()):
            if environment in used:
                record.used_s = self._plan.now_s
            if available < SHORT_BYTES:
                record.problem = f"only {figures.format_bytes(available)} of memory are available"
                self._end(record)
            elif self._plan.now_s - record.used_s > UNUSED_S:
                self._end(record)
                del self._records[environment]
        is_loading = any(each.state is GenerationState.LOADING for each in generations)
        if is_loading or any(record.following for record in self._records.values()):
            return  # one at a time, and not while loads need the processors
        needed = ENOUGH_BYTES if self._mode == AUTO else SHORT_BYTES
        for environment, record in self._records.items():
            wanted = record.wanted
            has_all = record.spare is not None and wanted <= record.spare.modules
            is_resting = self._plan.now_s < record.rests_until_s or record.failures > _MAX_TRIES
            if not wanted or has_all or wanted <= record.tried or is_resting:
                continue
            if available < needed:
                size = figures.format_bytes(available)
                record.problem = f"only {size} of memory are available"
                continue
            self._start(environment, record, wanted)
            return

    def _start(self, environment: Environment, record: _Record, wanted: frozenset[str]) -> None:
        spare = record.following = _Spare(self._plan.new_serial(), wanted)
        record.tried = wanted
        self._plan.enqueue(actions.StartSpare(spare.serial, environment, record.model))
        self._plan.call_later(IMPORT_WITHIN_S, partial(self._give_up, spare))

    def _give_up(self, spare: _Spare) -> None:
        if not spare.is_ready:
            self._kill(spare)

    def _kill(self, spare: _Spare) -> None:
        self._plan.enqueue(actions.Signal(spare.serial, int(signal.SIGKILL), group=True))

    def _end(self, record: _Record) -> None:
        """End the spare processes of an environment; its instances stay."""
        for spare in record.spares:
            self._kill(spare)
        record.spare = record.following = None
        record.tried = frozenset()

    def _find(self, serial: int) -> tuple[_Record | None, _Spare | None]:
        for record in self._records.values():
            for spare in record.spares:
                if spare.serial == serial:
                    return record, spare
        return None, None

    # ----------------------------------------------------------- what happens

    def process_started(self, serial: int, pid: int, started_s: float) -> None:
        record, spare = self._find(serial)
        if record is not None and spare is not None:
            spare.pid, spare.started_s = pid, started_s
            names = [name for name in record.modules if name in spare.modules]
            call = wire.Call(0, "import", json.dumps({"modules": names}))
            self._plan.enqueue(actions.Send(serial, call))

    def handle_result(self, serial: int, answer: wire.CallResult) -> bool:
        record, spare = self._find(serial)
        if record is None or spare is None:
            return False
        if not answer.code:
            self._ready(record, spare, json.loads(answer.result))
        elif spare.is_ready:
            self._refused(record, spare, answer.text)
        elif answer.result:
            record.left_out[answer.result] = answer.text
            record.failures, record.tried = record.failures + 1, frozenset()
            record.problem = f"{answer.result}: {answer.text}"
        else:
            record.problem = answer.text
        return True

    def _ready(self, record: _Record, spare: _Spare, result: Mapping[str, Any]) -> None:
        seconds: dict[str, float] = result["packages"]
        spare.seconds = result["seconds"]
        spare.packages = tuple(sorted(seconds, key=lambda name: -seconds[name]))
        if self._mode == AUTO and spare.seconds < WORTH_S:
            record.problem = f"the imports take {spare.seconds:.2g} s, which is too little"
            record.following = None
            self._kill(spare)
            return
        if record.spare is not None:
            self._kill(record.spare)
        spare.is_ready, record.spare, record.following = True, spare, None
        record.failures, record.problem = 0, ""
        text = f"the spare process {spare.pid} has imported {', '.join(spare.packages[:8])}"
        self._plan.log("V", f"{text} in {spare.seconds:.2f} s", model=record.model)

    def _refused(self, record: _Record, spare: _Spare, reason: str) -> None:
        """Replace a spare process that has ended by itself, in place of a fork."""
        record.spare, record.tried, record.problem = None, frozenset(), reason
        record.left_out.clear()
        last = [each for each in self._origins.values() if each.spare == spare.serial][-1:]
        for origin in last:
            origin.text, origin.spare = f"without the spare process: {reason}", 0

    def process_ended(self, serial: int, reason: Reason, last_words: str) -> None:
        record, spare = self._find(serial)
        if record is None or spare is None:
            return
        if spare is record.spare:
            record.spare, record.tried = None, frozenset()
            record.rests_until_s = self._plan.now_s + REST_S
        else:
            record.following = None
        if not record.problem:
            words = f": {last_words}" if last_words else ""
            record.problem = f"its spare process has ended: {reason.text}{words}"
            record.failures += 1

    # ---------------------------------------------------------- what is shown

    def describe(self, counts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        spares = [
            {
                "pid": spare.pid,
                "environment": environment.root or environment.python,
                "is_ready": spare.is_ready,
                "packages": spare.packages,
                "left_out": record.left_out,
                "seconds": spare.seconds,
                "bytes": spare.bytes,
                "models": sorted(self._models_of(environment)),
            }
            for environment, record in self._records.items()
            for spare in record.spares
        ]
        origins = [
            {"model": model, "instance": name, "text": origin.text, "is_warm": origin.spare > 0}
            for (model, name), origin in self._origins.items()
        ]
        return {"spares": spares, "starts": origins}

    def _models_of(self, environment: Environment) -> set[str]:
        generations = self._server.generations.values()
        return {each.blueprint.name for each in generations if each.environment == environment}

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
            for spare in record.spares
        ]
