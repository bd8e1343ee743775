"""Measurements of the memory of models. Does no I/O: a thread answers its question."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from zmqtriton.sdk.process import available_bytes
from zmqtriton.sdk.supervisor import CoreParts, Generation, HelperOwner, Plan, Promise
from zmqtriton.sdk.wire import Reason
from zmqtriton_standard.memory.readings import (
    family,
    gpu_memory,
    process_memory_bytes,
    read_shares,
)
from zmqtriton_standard.on_demand import OnDemandOptions

#: The place of memory that is no GPU's; these have their numbers.
HOST = -1
#: Bytes by place.
Sizes = Counter[int]


def budgets_of(core: CoreParts) -> Sizes:
    """Return the configured limits by place: the machine, or a GPU."""
    budgets = core.policy.options_of(OnDemandOptions)
    return +Sizes({**dict(budgets.gpu_memory_budget), HOST: budgets.model_memory_budget})


def budgeted_gpus(budgets: Sizes) -> list[int]:
    """Return the numbers of the GPUs that have a limit."""
    return [place for place in budgets if place != HOST]


class MemoryReport(NamedTuple):
    """The memory of each model, and what the machine has left."""

    by_model: Mapping[str, Sizes]
    available_bytes: int
    #: Why the memory on GPUs is not known, or "".
    gpu_problem: str = ""
    #: The bytes of its own that an instance has on average, of models whose instances are forks.
    of_forks: Mapping[str, int] = {}


@dataclass(frozen=True)
class MemoryQuestion:
    """The processes to measure with their models, and the models on each GPU to measure."""

    model_by_pid: Mapping[int, str]
    models_by_gpu: Mapping[int, Collection[str]]
    #: The instances that are forks, by model.
    forks: Mapping[str, Collection[int]] = field(default_factory=dict)

    def __call__(self) -> MemoryReport:
        """Measure the memory of the processes; called in a thread, as reading takes time."""
        sums = {name: Sizes() for name in self.model_by_pid.values()}
        models, problem = family(self.model_by_pid), ""
        for pid, name in models.items():
            sums[name][HOST] += process_memory_bytes(pid)
        try:
            for name, gpu, size in gpu_memory(models, self.models_by_gpu):
                sums.setdefault(name, Sizes())[gpu] += size
        except OSError as error:
            problem = str(error)
        of_forks = {name: own for name, pids in self.forks.items() if (own := _own_bytes(pids))}
        return MemoryReport(sums, available_bytes(), problem, of_forks)


def _own_bytes(pids: Collection[int]) -> int:
    """Return the private bytes of a process on average; 0 if they are not known."""
    sizes = [shares.private for pid in pids if (shares := read_shares(pid))]
    return sum(sizes) // max(1, len(sizes))


class ModelProcesses(HelperOwner):
    """The processes of models: those of their instances, and the templates that these are of."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._pids: dict[int, int] = {}

    def process_started(self, serial: int, pid: int, started_s: float) -> None:
        self._pids[serial] = pid

    def process_ended(self, serial: int, reason: Reason, last_words: str) -> None:
        self._pids.pop(serial, None)

    def measure(
        self, generations: Iterable[Generation], gpus: Iterable[int]
    ) -> Promise[MemoryReport]:
        """Measure the memory of these generations' processes in a thread; return the sums."""
        model_by_pid: dict[int, str] = {}
        models_by_gpu: dict[int, set[str]] = {gpu: set() for gpu in gpus}
        forks: dict[str, list[int]] = {}
        for generation in generations:
            name, templates = generation.blueprint.name, generation.templates
            serials = [one.serial for one in generation.instances if one.is_alive]
            pids = [pid for serial in serials if (pid := self._pids.get(serial))]
            if templates and not templates[0].has_threads:
                forks.setdefault(name, []).extend(pids)
            origins = [pid for one in templates if (pid := self._pids.get(one.serial))]
            model_by_pid.update(dict.fromkeys([*pids, *origins], name))
            for one in generation.instances:
                if one.is_alive and one.slot.kind == "GPU" and one.slot.device in models_by_gpu:
                    models_by_gpu[one.slot.device].add(name)
        return self._plan.in_background(MemoryQuestion(model_by_pid, models_by_gpu, forks))
