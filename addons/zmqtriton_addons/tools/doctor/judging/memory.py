"""Memory, shared memory and cores."""

from __future__ import annotations

from collections.abc import Iterator

from zmqtriton.findings import Finding, note, warning
from zmqtriton_addons.tools.doctor.facts import Facts

_MIB = 1 << 20
_LEAST_AVAILABLE = 256 * _MIB
_LEAST_SHARE = 0.05
_NEARLY_ALL = 0.9
_SWAPPED_BYTES = 64 * _MIB
_WORTH_REMOVING = _MIB
_MANY_INSTANCES_PER_CORE = 4


def judge_memory(facts: Facts) -> Iterator[Finding]:
    memory = facts.memory
    least = max(_LEAST_AVAILABLE, int(_LEAST_SHARE * memory.total_bytes))
    if memory.available_bytes < least:
        yield warning(
            f"the machine has {_size(memory.available_bytes)} of {_size(memory.total_bytes)} of "
            "memory left",
            "The kernel kills processes when there is none. Unload models or give them fewer "
            "instances.",
            "zmqtriton-ctl top",
        )
    limit = memory.group_limit_bytes
    if limit is not None and memory.group_used_bytes > _NEARLY_ALL * limit:
        yield warning(
            f"the control group uses {_size(memory.group_used_bytes)} of the {_size(limit)} of "
            "memory that it may have",
            "Raise the container's limit (`docker run --memory`, resources.limits.memory, "
            "MemoryMax=), or unload models.",
            "zmqtriton-ctl top",
        )
    if memory.oom_kills:
        times = "once" if memory.oom_kills == 1 else f"{memory.oom_kills} times"
        yield warning(
            f"the kernel has killed a process of this control group for want of memory, {times}",
            "Raise the container's limit, or give models a quota (max_memory_bytes) so that one "
            "cannot take all.",
            "zmqtriton-ctl status",
        )


def judge_overcommit(facts: Facts) -> Iterator[Finding]:
    if facts.memory.overcommit == 2:
        yield note(
            "the kernel promises no more memory than it has (vm.overcommit_memory=2)",
            "Instances reserve more than they use, so starts may fail with free memory left.",
            "sysctl vm.overcommit_memory=0",
        )


def judge_swap(facts: Facts) -> Iterator[Finding]:
    processes = facts.server.processes if facts.server else ()
    swapped = sum(process.swapped_bytes for process in processes)
    if swapped > _SWAPPED_BYTES:
        worst = max(processes, key=lambda process: process.swapped_bytes)
        yield warning(
            f"{_size(swapped)} of the server's memory are in swap, most of {worst.name}",
            "Requests that touch it wait for the disk. Unload models, or add memory.",
            "zmqtriton-ctl top",
        )


def judge_shared_memory(facts: Facts) -> Iterator[Finding]:
    shared = facts.shared_memory
    if shared is None:
        return
    if shared.leftover_bytes > _WORTH_REMOVING:
        names = f"{shared.leftovers[0]}*" if shared.leftovers else ""
        yield note(
            f"an NVIDIA Triton has left {_size(shared.leftover_bytes)} in /dev/shm "
            f"({len(shared.leftovers)} files)",
            "Remove them if no tritonserver of NVIDIA runs; zmqtriton leaves none.",
            f"ls -l {names}",
        )
    is_used = bool(facts.options.get("allow-client-shm"))
    if is_used and shared.free_bytes < (1 - _NEARLY_ALL) * shared.total_bytes:
        yield warning(
            f"/dev/shm has {_size(shared.free_bytes)} of {_size(shared.total_bytes)} left, and "
            "clients may pass tensors there",
            "Remove files that no client uses, or enlarge it: `docker run --shm-size=1g`.",
            "ls -lS /dev/shm",
        )


def judge_cores(facts: Facts) -> Iterator[Finding]:
    cores = facts.cores
    if cores.quota is not None and cores.quota < cores.count:
        whole = max(1, round(cores.quota))
        yield warning(
            f"the control group allows the time of {cores.quota:g} of {cores.count} cores",
            "The server and numeric libraries start threads and processes for all cores, which "
            "then wait for each other. Limit them, or pin the container to cores (--cpuset-cpus).",
            f"zmqtriton --http-workers={whole} --grpc-processes={whole} "
            f"--model-env=OMP_NUM_THREADS ...",
        )
    if cores.instances > _MANY_INSTANCES_PER_CORE * cores.count:
        yield note(
            f"{cores.instances} instances share {cores.count} cores",
            "More instances than cores help only where models wait for something else.",
            "zmqtriton-ctl stats",
        )


def _size(number: float) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB")):
        if number >= unit:
            return f"{number / unit:.1f} {name}"
    return f"{number / 1024:.0f} KiB"
