"""Gives each instance its cores when it starts, and threads to match.

All instances that take part have one deal, which is made again at each start. Running instances
keep as many of their cores as their new set has room for; if the set has changed, their threads
move at once. An instance that replaces another one of the same name, also in a reload, gets the
same set. Instances that are about to end keep running where they are, and their cores are free for
others. Reads the machine once; does no other I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from zmqtriton.sdk.supervisor import (
    CoreParts,
    Feature,
    Generation,
    StubPlace,
    actions,
)
from zmqtriton_extras.cores import Options
from zmqtriton_extras.cores.dealing import Machine, Share, deal
from zmqtriton_extras.cores.machine import cpu_list, read_machine
from zmqtriton_extras.cores.settings import AUTO

#: Variables with the number of threads that numeric libraries start. ONNX Runtime would otherwise
#: start one for each core of the machine, and pin each to its core, whatever the process may use.
VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "ORT_INTRA_OP_NUM_THREADS",
    "ZMQTRITON_THREADS",
)
#: Pause before an instance whose process is not known yet is moved again.
_AGAIN_AFTER_S = 0.5
#: Model, version, name and device of an instance; it survives the instance's process.
_Key = tuple[str, int, str, int]


class _Placed(NamedTuple):
    key: _Key
    share: Share
    #: Number of threads in the variables of its process.
    threads: int


class CoreShares(Feature):
    def __init__(self, core: CoreParts) -> None:
        super().__init__(core)
        self._is_for_all = core.policy.options_of(Options).cores == AUTO
        #: Instances that were placed, by the serial number of their process.
        self._placed: dict[int, _Placed] = {}
        self._was_short = False

    @cached_property
    def _machine(self) -> Machine:
        return read_machine()

    def place(
        self, generation: Generation, instance: StubPlace
    ) -> tuple[tuple[int, ...], Mapping[str, str]]:
        if self._demand(generation) is None or not _has_part(generation):
            return (), {}
        key = _key(generation, instance.slot)
        share = self._deal({**self._server.generations, generation.number: generation})[key]
        self._placed[instance.serial] = _Placed(key, share, share.threads)
        return share.cpus, dict.fromkeys(VARIABLES, str(share.threads))

    def load_ended(self, name: str) -> None:
        """Deal again: models that were not read yet may have other demands than was assumed."""
        if self._placed:
            self._deal(self._server.generations)

    def _deal(self, generations: Mapping[int, Generation]) -> dict[_Key, Share]:
        """Deal the cores to all instances, and move those that run."""
        placed = self._living()
        present = {one.key: one.share.cpus for one in placed.values()}
        demands = {**dict.fromkeys(present, 0), **dict(self._demands(generations))}
        shares = deal(self._machine, demands, present)
        self._placed = {
            serial: one._replace(share=shares[one.key]) for serial, one in placed.items()
        }
        for serial, one in placed.items():
            if shares[one.key].cpus != one.share.cpus:
                self._move(serial)
        self._report_shortage(shares)
        return shares

    def _demand(self, generation: Generation) -> int | None:
        """Return the cores of each instance, 0 for an even part; None for one without a set."""
        blueprint = generation.blueprint
        demand = blueprint.add_on_settings.get("cores", 0 if self._is_for_all else -1)
        has_processes = blueprint.ensemble is None and generation.environment.host is None
        return demand if has_processes and demand >= 0 else None

    def _demands(self, generations: Mapping[int, Generation]) -> Iterator[tuple[_Key, int]]:
        """Yield the demand of each instance that there is, or will be."""
        for generation in generations.values():
            demand = self._demand(generation)
            if demand is None or not _has_part(generation):
                continue
            running = (one.slot for one in _staying(generation))
            for slot in (*running, *generation.planned_slots):
                yield _key(generation, slot), demand
        names = {generation.blueprint.name for generation in generations.values()}
        for name, model in self._server.models.items() if self._is_for_all else ():
            if model.is_loading and name not in names:
                yield (name, 0, "", 0), 0  # not read yet: one instance is expected

    def _instances(self) -> dict[int, StubPlace]:
        """Return the instances with a process, by its serial number."""
        generations = self._server.generations.values()
        return {one.serial: one for generation in generations for one in _staying(generation)}

    def _living(self) -> dict[int, _Placed]:
        alive = self._instances()
        return {serial: one for serial, one in self._placed.items() if serial in alive}

    def _move(self, serial: int) -> None:
        """Move a running instance to its new set; once its process is known."""
        instance = self._instances().get(serial)
        if instance is None:
            return
        cpus = self._placed[serial].share.cpus
        if not instance.pid:
            self._plan.call_later(_AGAIN_AFTER_S, lambda: self._move(serial))
            return
        self._plan.enqueue(actions.Pin(serial, cpus))
        self._plan.log("I", f"instance '{instance.name}' has the cores {cpu_list(cpus)} now")

    def _report_shortage(self, shares: Mapping[_Key, Share]) -> None:
        is_short = any(share.is_shared for share in shares.values())
        if is_short and not self._was_short:
            text = f"{len(shares)} instances share {len(self._machine.cores)} cores, as evenly as"
            self._plan.log("W", f"{text} possible; have fewer instances, or lower CORES")
        self._was_short = is_short

    def describe(self, counts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the set of each instance."""
        rows = [
            {
                "model": one.key[0],
                "version": one.key[1],
                "instance": one.key[2],
                "serial": serial,
                "cores": cpu_list(one.share.cpus),
                "threads": one.threads,
                "due_threads": one.share.threads,
                "is_shared": one.share.is_shared,
            }
            for serial, one in self._living().items()
        ]
        return {"cores": rows} if rows else {}


def _has_part(generation: Generation) -> bool:
    """True if the generation's instances have a part in the deal."""
    return generation.is_loading or generation.is_serving


def _staying(generation: Generation) -> list[StubPlace]:
    """Return the instances with a process that is not about to end."""
    instances = generation.instances if _has_part(generation) else ()
    return [one for one in instances if one.is_alive and not one.is_being_removed]


def _key(generation: Generation, slot: Any) -> _Key:
    return generation.blueprint.name, generation.version, slot.name, slot.device
